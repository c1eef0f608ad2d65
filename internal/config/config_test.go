package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/policy/matchconditions"
)

// shop is a cluster with one namespace.
type shop struct{}

func (shop) Labels(context.Context, string) (labels.Set, error) {
	return labels.Set{"kubernetes.io/metadata.name": "shop"}, nil
}

func compile(_ string, conditions []admissionregistrationv1.MatchCondition, policy admissionregistrationv1.FailurePolicyType,
	path *field.Path) (Conditions, field.ErrorList) {
	return matchconditions.Compile(conditions, policy, new(atomic.Pointer[cluster.Access]), false, path)
}

// read writes a configuration and, if it is not empty, an AdmissionConfiguration to
// files, and reads them.
func read(t testing.TB, own, admission string) (*Loaded, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	source := Source{
		Known: []string{"AlwaysPullImages", "DenyServiceExternalIPs", "EventRateLimit"}, NotHere: map[string]string{"Gone": "was removed"},
		Namespaces: shop{}, Compile: compile,
	}
	for _, f := range []struct {
		content, name string
		in            *string
	}{{own, "own.yaml", &source.File}, {admission, "admission.yaml", &source.AdmissionFile}} {
		if f.content == "" {
			continue
		}
		if err := os.WriteFile(f.name, []byte(f.content), 0o600); err != nil {
			t.Fatal(err)
		}
		*f.in = f.name
	}
	if err := os.WriteFile("limits.yaml", []byte("limits: in a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(source)
}

const head = "apiVersion: fastadmit.io/v1alpha1\nkind: Configuration\n"

func TestRead(t *testing.T) {
	loaded, err := read(t, head+`
enableAdmissionPlugins: [AlwaysPullImages]
server:
  securePort: 443
  shutdownDelayDuration: 10s
plugins:
- name: AlwaysPullImages
  rules:
  - {operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods], scope: Namespaced}
  namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]
  objectSelector:
    matchLabels: {app: web}
  failurePolicy: Ignore
  timeout: 500ms
  reinvocationPolicy: IfNeeded
  enforcement:
  - {action: deny, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: prod}}}
  - {action: warn}
- name: DenyServiceExternalIPs
registration:
  name: admission.example.com
  clientConfig:
    service: {namespace: fastadmit, name: fastadmit, port: 8443}
  timeoutSeconds: 3
`, `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  path: limits.yaml
  configuration: null
- name: AlwaysPullImages
  configuration: {a: 1}
- name: DenyServiceExternalIPs
  configuration: 5
`)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Server.SecurePort != 443 || loaded.Server.ShutdownDelayDuration.Duration != 10*time.Second ||
		loaded.EnableAdmissionPlugins[0] != "AlwaysPullImages" {
		t.Errorf("got %+v", loaded.Configuration)
	}
	if string(loaded.Configs["EventRateLimit"]) != "limits: in a file" || string(loaded.Configs["AlwaysPullImages"]) != `{"a":1}` ||
		string(loaded.Configs["DenyServiceExternalIPs"]) != "5" {
		t.Errorf("got configs %q", loaded.Configs)
	}
	if got := strings.Join(loaded.Files, " "); got != "own.yaml admission.yaml limits.yaml" {
		t.Errorf("got files %s", got)
	}
	if r := loaded.Registration; r.Name != "admission.example.com" || *r.ClientConfig.Service.Port != 8443 || *r.TimeoutSeconds != 3 {
		t.Errorf("got registration %+v", r)
	}
	if s := loaded.Settings["DenyServiceExternalIPs"]; s.Selector != nil || s.FailurePolicy != "" || s.Timeout != 0 {
		t.Errorf("got %+v without anything said", s)
	}
	s := loaded.Settings["AlwaysPullImages"]
	if s.FailurePolicy != admissionregistrationv1.Ignore || s.ReinvocationPolicy != admissionregistrationv1.IfNeededReinvocationPolicy ||
		s.Timeout != 500*time.Millisecond || len(s.Enforcement) != 2 || s.Enforcement[1].Selector != nil || !loaded.NeedsNamespaces {
		t.Errorf("got %+v, needs namespaces: %v", s, loaded.NeedsNamespaces)
	}
	review := codec.Acquire()
	defer review.Release()
	ask := func(selector admission.Selector, recording string) bool {
		if err := review.Decode(corpus.MustRead(recording)); err != nil {
			t.Fatal(err)
		}
		matches, err := selector.Matches(t.Context(), review, admission.AttributesOf(review))
		if err != nil {
			t.Fatal(err)
		}
		return matches
	}
	if !ask(s.Selector, "pods-create-v1-1.json") || ask(s.Selector, "pods-delete-v1-1.json") ||
		ask(s.Enforcement[0].Selector, "pods-create-v1-1.json") {
		t.Error("the selectors do not select what they say")
	}
}

// TestReadLimits reads the least and the largest valid values.
func TestReadLimits(t *testing.T) {
	for _, text := range []string{
		"server: {securePort: 0, maxConnections: 0, maxConnectionsPerAddress: 0, maxConnectionAge: 0s, shutdownDelayDuration: 0s}",
		"server: {securePort: 65535, maxRequestsInflight: 1, maxRequestBytesInflight: 1}",
		"plugins: [{name: EventRateLimit, timeout: 1ns}, {name: AlwaysPullImages, timeout: 30s}]",
	} {
		if _, err := read(t, head+text, ""); err != nil {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// TestNeeds tests which selectors need the labels of namespaces, and which conditions
// need permission checks.
func TestNeeds(t *testing.T) {
	f := func(wantNamespaces, wantAccess bool, first, second string) {
		t.Helper()
		loaded, err := read(t,
			fmt.Sprintf("%splugins: [{name: AlwaysPullImages, %s}, {name: EventRateLimit, %s}]", head, first, second), "")
		if err != nil || loaded.NeedsNamespaces != wantNamespaces || loaded.NeedsAccess != wantAccess {
			t.Errorf("%s; %s: got namespaces %v, access %v, %v", first, second, loaded.NeedsNamespaces, loaded.NeedsAccess, err)
		}
	}
	const none, objects, namespaces = "timeout: 1s", "objectSelector: {matchLabels: {a: b}}", "namespaceSelector: {matchLabels: {a: b}}"
	const holds, asks = "matchConditions: [{name: a, expression: 'true'}]", "matchConditions: [{name: a, expression: " +
		"authorizer.path('/a').check('get').allowed()}]"
	f(false, false, none, none)
	f(false, false, objects, holds)
	f(true, false, namespaces, objects)
	f(true, false, none, namespaces)
	f(true, false, none, "enforcement: [{action: warn, "+namespaces+"}]")
	f(false, true, asks, holds)
	f(false, true, holds, asks)
}

// TestReadRefuses expects all errors of a configuration in one message.
// refuse tests that two files are refused, with these errors.
func refuse(t *testing.T, own, admission string, want ...string) {
	t.Helper()
	_, err := read(t, own, admission)
	if err == nil {
		t.Fatalf("%s %s\nwas taken", own, admission)
	}
	if got := err.Error(); got != strings.Join(want, "\n") {
		t.Errorf("%s %s\ngot\n%s\nwant\n%s", own, admission, got, strings.Join(want, "\n"))
	}
}

func TestReadRefusesWorkloadPods(t *testing.T) {
	refuse(t, head+"plugins: [{name: EventRateLimit, workloadPods: audit}]", "",
		`own.yaml:3: plugins[0].workloadPods: got "audit", want one of off, warn, deny`)
	refuse(t, head+"podTemplatePaths:\n  rollouts.argoproj.io: spec.template\n", "",
		"own.yaml:4: podTemplatePaths: got rollouts.argoproj.io=spec.template, "+
			"want a resource with its group, and a path, as in rollouts.argoproj.io and .spec.template")
}

// TestReadRefusesTogether has values of wrong types beside others that are wrong.
func TestReadRefusesTogether(t *testing.T) {
	refuse(t, head+"enableAdmissionPlugins: [Nothing, 7]\nplugins:\n- name: EventRateLimit\n  timeout: 5\n  rules: pods\n"+
		"  failurePolicy: ignore\nserver: {securePort: many, maxConnections: -1}\n", "",
		"own.yaml:3: enableAdmissionPlugins[1]: got 7, want a string",
		"own.yaml:6: plugins[0].timeout: got 5, want a duration such as 1m30s or 500ms",
		`own.yaml:7: plugins[0].rules: got "pods", want a list`,
		`own.yaml:9: server.securePort: got "many", want a whole number`,
		`own.yaml:3: enableAdmissionPlugins[0]: unknown plugin "Nothing" (fastadmit plugins lists all)`,
		"own.yaml:9: server.maxConnections: got -1, want 0 or more",
		`own.yaml:8: plugins[0].failurePolicy: got "ignore", want one of Fail, Ignore`)
}

func TestReadRefuses(t *testing.T) {
	f := func(own, admission string, want ...string) {
		t.Helper()
		refuse(t, own, admission, want...)
	}
	const known = " (fastadmit plugins lists all)"
	f("kind: Other\napiVersion: v9", "",
		`own.yaml:1: kind: got "Other", want "Configuration"`, `own.yaml:2: apiVersion: got "v9", want "fastadmit.io/v1alpha1"`)
	f("kind: AdmissionConfiguration", "",
		`own.yaml:1: kind: got "AdmissionConfiguration", want "Configuration": --admission-control-config-file takes this file`)
	f("", "kind: Configuration", `admission.yaml:1: kind: got "Configuration", want "AdmissionConfiguration": --config takes this file`)
	f("a: [", "{}\n---\n{}", "own.yaml: line 1: did not find expected node content", "admission.yaml:2: got a second document, want one")
	f(head+"enableAdmissionPlugins: [Nothing, EventRateLimit, EventRateLimit]", "",
		`own.yaml:3: enableAdmissionPlugins[0]: unknown plugin "Nothing"`+known,
		`own.yaml:3: enableAdmissionPlugins[2]: EventRateLimit is configured twice`)
	f(head+"server:\n  securePort: 65536\n  shutdownDelayDuration: -1s\n  maxRequestsInflight: 0\n", "",
		"own.yaml:4: server.securePort: got 65536, want 0 to 65535", "own.yaml:5: server.shutdownDelayDuration: got -1s, want 0s or more",
		"own.yaml:6: server.maxRequestsInflight: got 0, want 1 or more")
	f(head+"registration:\n  timeoutSeconds: 31\n  clientConfig: {caBundle: Y2VydA==}\n", "",
		"own.yaml:5: registration.clientConfig.caBundle: Invalid value: got no PEM block, want at least one certificate",
		"own.yaml:4: registration.timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds")
	f(head+"registration: {clientConfig: {caBundle: no base64}}", "",
		`own.yaml:3: registration.clientConfig.caBundle: got "no base64": illegal base64 data at input byte 2`)
	f(head+"plugins: 5", "", "own.yaml:3: plugins: got 5, want a list")
	f("", "kind: Other\napiVersion: v9", `admission.yaml:1: kind: got "Other", want "AdmissionConfiguration"`,
		`admission.yaml:2: apiVersion: got "v9", want "apiserver.config.k8s.io/v1" or "apiserver.k8s.io/v1alpha1"`)
	f(head+"enableAdmissionPlugins: [Gone, EventRateLimit]", "",
		"own.yaml:3: enableAdmissionPlugins[0]: fastadmit has no plugin Gone: it was removed")
	f(head+"imageReview: {rules: []}", "",
		"own.yaml:3: imageReview.rules: Required value: want at least one rule; without rules, every image may run")
	f(head+"server: {securePort: -1}", "", "own.yaml:3: server.securePort: got -1, want 0 to 65535")
	f(head+"server: {maxConnectionAge: -1s}", "", "own.yaml:3: server.maxConnectionAge: got -1s, want 0s or more")
	f(head+"server: {maxConnections: -1}", "", "own.yaml:3: server.maxConnections: got -1, want 0 or more")
	f(head+"server: {maxConnectionsPerAddress: -1}", "", "own.yaml:3: server.maxConnectionsPerAddress: got -1, want 0 or more")
	f(head+"server: {maxRequestBytesInflight: -1}", "", "own.yaml:3: server.maxRequestBytesInflight: got -1, want 0 or more")
	f(head+`plugins:
- name: Nothing
- name: EventRateLimit
  failurePolicy: fail
  timeout: 31s
  reinvocationPolicy: Always
  rules:
  - {operations: [EAT], apiGroups: [""], apiVersions: [v1], resources: [events]}
  namespaceSelector:
    matchLabels:
      "not a label": x
  enforcement:
  - action: shout
  - action: warn
    objectSelector: {matchExpressions: [{key: a, operator: Is, values: [b]}]}
- name: EventRateLimit
`, "",
		`own.yaml:4: plugins[0].name: unknown plugin "Nothing"`+known,
		`own.yaml:10: plugins[1].rules[0].operations[0]: Unsupported value: "EAT": supported values: "*", "CONNECT", `+
			`"CREATE", "DELETE", "UPDATE"`,
		`own.yaml:13: plugins[1].namespaceSelector.matchLabels: Invalid value: "not a label": name part must consist of `+
			`alphanumeric characters, `+
			`'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', `+
			`regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		`own.yaml:6: plugins[1].failurePolicy: got "fail", want one of Fail, Ignore`,
		`own.yaml:8: plugins[1].reinvocationPolicy: got "Always", want one of Never, IfNeeded`,
		`own.yaml:7: plugins[1].timeout: got 31s, want more than 0s and at most 30s`,
		`own.yaml:15: plugins[1].enforcement[0].action: got "shout", want one of deny, warn, audit`,
		`own.yaml:17: plugins[1].enforcement[1].objectSelector.matchExpressions[0].operator: Invalid value: "Is": not a `+
			`valid selector operator`,
		`own.yaml:18: plugins[2].name: EventRateLimit is configured twice`)
	f(head+"plugins: [{name: EventRateLimit, timeout: 0s}]", "",
		"own.yaml:3: plugins[0].timeout: got 0s, want more than 0s and at most 30s")
	f(head+"plugins: [{name: EventRateLimit, timeout: 30000000001ns}]", "",
		"own.yaml:3: plugins[0].timeout: got 30.000000001s, want more than 0s and at most 30s")
	f(head+"plugins: [{name: EventRateLimit, rules: []}]", "",
		"own.yaml:3: plugins[0].rules: Required value: omit it to match everything that the plugin handles")
	f(head+"bogus: 1", "kind: AdmissionConfiguration\napiVersion: apiserver.k8s.io/v1alpha1\nplugins:\n- {name: Nothing, "+
		"path: /none/y.yaml}\n- {name: EventRateLimit, path: /none/x.yaml}\n- {name: Gone, path: /none/z.yaml}",
		"own.yaml:3: bogus: unknown field, want one of apiVersion, kind, enableAdmissionPlugins, emulatedVersion, server, record, shadow, "+
			"plugins, podTemplatePaths, registration, imageReview",
		`admission.yaml:4: plugins[0].name: unknown plugin "Nothing"`+known,
		"admission.yaml:5: plugins[1].path: cannot read the configuration of EventRateLimit: open /none/x.yaml: no such file or directory",
		"admission.yaml:6: plugins[2].name: fastadmit has no plugin Gone: it was removed")
	if _, err := Read(Source{File: "missing.yaml"}); err == nil ||
		err.Error() != "cannot read configuration: open missing.yaml: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

// TestReadRelative reads a path that is relative to the configuration file.
func TestReadRelative(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.yaml":     "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nplugins: [{name: P, path: sub/p.yaml}]",
		"sub/p.yaml": "found",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := Read(Source{AdmissionFile: filepath.Join(dir, "a.yaml"), Known: []string{"P"}})
	if err != nil || string(loaded.Configs["P"]) != "found" {
		t.Errorf("got %v", err)
	}
}

// TestMatchConditions evaluates conditions on the reviews that the selectors select.
// Errors have the file and line of the condition.
func TestWorkloadPods(t *testing.T) {
	loaded, err := read(t, head+`
plugins: [{name: AlwaysPullImages, workloadPods: warn}]
podTemplatePaths: {rollouts.argoproj.io: .spec.template}
shadow: {plugins: [{name: AlwaysPullImages, workloadPods: deny}]}
`, "")
	if err != nil {
		t.Fatal(err)
	}
	for want, settings := range map[admission.WorkloadPods]admission.Settings{
		admission.WorkloadPodsWarn: loaded.Settings["AlwaysPullImages"],
		admission.WorkloadPodsDeny: loaded.Shadowed.Settings["AlwaysPullImages"],
	} {
		if settings.WorkloadPods != want || settings.PodTemplatePaths["rollouts.argoproj.io"] != ".spec.template" {
			t.Errorf("got %+v, want %s", settings, want)
		}
	}
}

func TestMatchConditions(t *testing.T) {
	const plugin = head + "plugins:\n- name: AlwaysPullImages\n"
	f := func(want bool, text string) {
		t.Helper()
		loaded, err := read(t, plugin+text, "")
		if err != nil {
			t.Fatal(err)
		}
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(corpus.MustRead("pods-create-v1-1.json")); err != nil {
			t.Fatal(err)
		}
		got, err := loaded.Settings["AlwaysPullImages"].Selector.Matches(t.Context(), review, admission.AttributesOf(review))
		if got != want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
	const holds, fails = "  matchConditions: [{name: a, expression: \"object.kind == 'Pod'\"}]\n", "  matchConditions: " +
		"[{name: a, expression: object.missing == 1}]\n"
	f(true, holds)
	f(true, holds+"  objectSelector: {}\n")
	f(false, holds+"  objectSelector: {matchLabels: {no: pod}}\n")
	f(false, fails+"  objectSelector: {matchLabels: {no: pod}}\n") // is not evaluated
	f(false, fails+"  failurePolicy: Ignore\n")
	f(false, "  matchConditions: [{name: a, expression: \"object.kind != 'Pod'\"}]\n  objectSelector: {}\n")

	refuse := func(text string, want ...string) {
		t.Helper()
		_, err := read(t, plugin+text, "")
		for _, want := range want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %s", text, err, want)
			}
		}
	}
	refuse("  matchConditions:\n  - name: a\n    expression: true\n  - name: b\n    expression: object.\n",
		"own.yaml:7: plugins[0].matchConditions[0].expression: got true, want a string")
	refuse("  matchConditions:\n  - name: a\n    expression: \"true\"\n  - name: b\n    expression: object.\n",
		`own.yaml:9: plugins[0].matchConditions[1].expression: Invalid value: "object.": compilation failed: ERROR: <input>:1:8:`)
	refuse("  matchConditions:\n  - {name: a, expression: \"true\"}\n  - {name: a, expression: \"true\"}\n",
		`own.yaml:7: plugins[0].matchConditions[1].name: Duplicate value: "a"`)
	refuse("  matchConditions: [{expression: \"true\"}]", "own.yaml:5: plugins[0].matchConditions[0].name: Required value")

	for expression, want := range map[string]bool{"true": false, "authorizer.requestResource.check('get').allowed()": true} {
		loaded, err := read(t, plugin+"  matchConditions: [{name: a, expression: \""+expression+"\"}]\n", "")
		if err != nil || loaded.NeedsAccess != want {
			t.Errorf("%s: got %v, %v, want %v", expression, loaded.NeedsAccess, err, want)
		}
	}
}
