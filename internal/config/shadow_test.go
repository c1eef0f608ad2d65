package config

import (
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestShadow reads what is to be tried. It replaces what the plugins have outside of the shadow, and there nothing
// changes.
func TestShadow(t *testing.T) {
	loaded, err := read(t, head+`
enableAdmissionPlugins: [AlwaysPullImages]
plugins:
- name: AlwaysPullImages
  failurePolicy: Ignore
- name: EventRateLimit
  timeout: 1s
shadow:
  enableAdmissionPlugins: [EventRateLimit]
  plugins:
  - name: AlwaysPullImages
    enforcement: [{action: warn}]
    namespaceSelector: {matchLabels: {a: b}}
  admissionConfiguration:
    plugins:
    - {name: EventRateLimit, path: limits.yaml}
  processorPercent: 25
`, `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- {name: EventRateLimit, configuration: {a: 1}}
- {name: AlwaysPullImages, configuration: {b: 2}}
`)
	if err != nil {
		t.Fatal(err)
	}
	s := loaded.Shadowed
	changes := loaded.Shadow.Changes
	if s == nil || loaded.Shadow.ProcessorPercent != 25 || !changes("AlwaysPullImages") || !changes("EventRateLimit") ||
		changes("DenyServiceExternalIPs") {
		t.Fatalf("got %+v", loaded.Shadow)
	}
	if string(loaded.Configs["EventRateLimit"]) != `{"a":1}` || string(s.Configs["EventRateLimit"]) != "limits: in a file" ||
		string(s.Configs["AlwaysPullImages"]) != `{"b":2}` {
		t.Errorf("got %q, in the shadow %q", loaded.Configs, s.Configs)
	}
	before, after := loaded.Settings["AlwaysPullImages"], s.Settings["AlwaysPullImages"]
	if before.FailurePolicy != admissionregistrationv1.Ignore || before.Enforcement != nil || loaded.NeedsNamespaces ||
		after.FailurePolicy != "" || len(after.Enforcement) != 1 || !s.NeedsNamespaces ||
		s.Settings["EventRateLimit"].Timeout != time.Second {
		t.Errorf("got %+v, in the shadow %+v", before, after)
	}
	if got := strings.Join(loaded.Files, " "); got != "own.yaml admission.yaml limits.yaml" {
		t.Errorf("got files %s", got)
	}
}

// TestNoShadow has settings of the shadow, and nothing to try.
func TestNoShadow(t *testing.T) {
	for _, text := range []string{"", "shadow: {}", "shadow: {processorPercent: 1, maxMemoryBytes: 1}", "shadow: {processorPercent: 100}"} {
		if loaded, err := read(t, head+text, ""); err != nil || loaded.Shadowed != nil {
			t.Errorf("%s: got %+v, %v", text, loaded, err)
		}
	}
}

func TestShadowRefuses(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, err := read(t, head+text, "")
		if err == nil || err.Error() != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%v\nwant\n%s", text, err, strings.Join(want, "\n"))
		}
	}
	f("shadow: {processorPercent: 0, maxMemoryBytes: -1}",
		"own.yaml:3: shadow.processorPercent: got 0, want 1 to 100", "own.yaml:3: shadow.maxMemoryBytes: got -1, want 0 or more")
	f("shadow: {processorPercent: 101}", "own.yaml:3: shadow.processorPercent: got 101, want 1 to 100")
	f(`shadow:
  enableAdmissionPlugins: [Nothing]
  plugins: [{name: EventRateLimit, timeout: 31s}]
  admissionConfiguration: {plugins: [{name: EventRateLimit}, {name: EventRateLimit, path: none.yaml}]}
`, `own.yaml:4: shadow.enableAdmissionPlugins[0]: unknown plugin "Nothing" (fastadmit plugins lists all)`,
		"own.yaml:5: shadow.plugins[0].timeout: got 31s, want more than 0s and at most 30s",
		"own.yaml:6: shadow.admissionConfiguration.plugins[1].name: EventRateLimit is configured twice")
	f("shadow: {bogus: 1}", "own.yaml:3: shadow.bogus: unknown field, want one of enableAdmissionPlugins, plugins, "+
		"admissionConfiguration, processorPercent, maxMemoryBytes")
}
