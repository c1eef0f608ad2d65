package app

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestDidYouMean misspells names slightly.
func TestDidYouMean(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, code := execute("", args...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: got exit code %d, %s%s, want 2 and %q", args, code, stdout, stderr, want)
		}
	}
	f("Did you mean this?\n\treview\n", "revew")
	f("unknown flag: --enable-admision-plugins, did you mean --enable-admission-plugins?\nfastadmit serve --help", "serve",
		"--enable-admision-plugins=x")
	f("unknown shorthand flag: 'z' in -z\nfastadmit review --help", "review", "-z")
	f(`unknown admission plugin "AlwaysPullImage", did you mean AlwaysPullImages?; unknown admission plugin "Nothing" `+
		`(fastadmit plugins lists all)`,
		"serve", "--enable-admission-plugins=AlwaysPullImage,Nothing")
	f(`--rate: got "many", want a number`, "bench", "--rate=many", "http://localhost")
	f(`--duration: got "5", want a time such as 30s or 5m`, "bench", "--duration=5", "http://localhost")
	f(`--output: got "table", want one of text, wide, json, yaml, name`, "plugins", "-o", "table")
	if stdout, stderr, code := execute("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "review", "-",
		"--enable-admission-plugins=AlwaysAdmit"); code != 0 {
		t.Errorf("review with an argument: got exit code %d, %s%s", code, stdout, stderr)
	}
}

func TestVersionFlag(t *testing.T) {
	flag, _, code := execute("", "--version")
	command, _, _ := execute("", "version")
	if code != 0 || flag != command || !strings.HasPrefix(flag, "fastadmit v1.2.3 go1.") {
		t.Errorf("got exit code %d, %q, want %q", code, flag, command)
	}
}

// TestPluginsFormats lists the plugins in all formats. All have the same
// plugins, and the short one fits a terminal.
func TestPluginsFormats(t *testing.T) {
	const columnsMax = 100
	table := handlers.InTree(handlers.DefaultOptions())
	list := func(format string) string {
		t.Helper()
		got, errs, code := execute("", "plugins", "-o", format)
		if code != 0 || errs != "" {
			t.Fatalf("-o %s: got exit code %d, %s", format, code, errs)
		}
		return got
	}
	for line := range strings.Lines(list("text")) {
		if len(line) > columnsMax {
			t.Errorf("got a line of %d characters, want at most %d: %s", len(line), columnsMax, line)
		}
	}
	names := strings.Fields(list("name"))
	var fromJSON, fromYAML []listed
	if err := json.Unmarshal([]byte(list("json")), &fromJSON); err != nil {
		t.Error(err)
	}
	if err := yaml.UnmarshalStrict([]byte(list("yaml")), &fromYAML); err != nil {
		t.Error(err)
	}
	wide := strings.Split(list("wide"), "\n")
	if len(names) != len(table) || len(fromJSON) != len(table) || len(fromYAML) != len(table) || len(wide) != len(table)+2 {
		t.Fatalf("got %d names, %d in JSON, %d in YAML, %d lines, want %d plugins", len(names), len(fromJSON), len(fromYAML),
			len(wide), len(table))
	}
	for i, p := range table {
		if names[i] != p.Name || fromJSON[i].Name != p.Name || fromYAML[i].Summary != p.Summary || fromJSON[i].Mutates != p.Mutates ||
			!strings.HasPrefix(wide[i+1], p.Name+" ") || !strings.Contains(wide[i+1], p.Summary) {
			t.Errorf("%s: got %s, %+v, %+v, %s", p.Name, names[i], fromJSON[i], fromYAML[i], wide[i+1])
		}
	}
}

// TestCompletion makes the requests that shells make for completions.
func TestCompletion(t *testing.T) {
	f := func(want []string, not string, args ...string) {
		t.Helper()
		got, _, code := execute("", append([]string{"__complete"}, args...)...)
		for _, line := range want {
			if !strings.Contains("\n"+got, "\n"+line+"\n") {
				t.Errorf("%q: got exit code %d, no %q in\n%s", args, code, line, got)
			}
		}
		if not != "" && strings.Contains("\n"+got, "\n"+not+"\n") {
			t.Errorf("%q: got %q in\n%s", args, not, got)
		}
	}
	const noFile, noSpace, extensions, folders = ":4", ":6", ":8", ":16"
	f([]string{"PodSecurity", "AlwaysDeny", noSpace}, "", "serve", "--enable-admission-plugins", "")
	f([]string{"AlwaysDeny,PodSecurity", noSpace}, "AlwaysDeny,AlwaysDeny", "review", "--disable-admission-plugins", "AlwaysDeny,Pod")
	f([]string{"sarif", "diff", noFile}, "", "review", "-o", "")
	f([]string{"DELETE", noFile}, "", "review", "--operation", "")
	f([]string{"wide", noFile}, "", "plugins", "-o", "")
	f([]string{"yaml", "json", extensions}, "", "review", "")
	f([]string{"yaml", extensions}, "", "config", "--config", "")
	f([]string{folders}, "", "serve", "--cluster-state-dir", "")
	f([]string{"MutatingWebhookConfiguration", noFile}, "", "manifests", "--kind", "")
	if got, _, code := execute("", "completion", "bash"); code != 0 || !strings.Contains(got, "__start_fastadmit") {
		t.Errorf("bash: got exit code %d, %.100s", code, got)
	}
}

// TestAllFaultsAtOnce has faults in both files and in the plugins' own
// configurations, inline and in a separate file. All are reported together.
func TestAllFaultsAtOnce(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	servertest.WriteFile(t, "own.yaml", `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
bogus: 1
enableAdmissionPlugins: [AlwaysPullImage, EventRateLimit, PodSecurity]
server: {securePort: 70000}
plugins:
- name: Podsecurity
  timeout: 40s
`)
	servertest.WriteFile(t, "admission.yaml", `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits:
    - type: Server
      qps: 0
      burst: 1
      bogus: 1
- name: PodSecurity
  path: level.yaml
`)
	servertest.WriteFile(t, "level.yaml",
		"apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults:\n  enforce: restrictedd\n")
	f := func(want string, args ...string) {
		t.Helper()
		stdout, stderr, got := execute("", append([]string{"config"}, args...)...)
		if stderr != "fastadmit: "+want || stdout != "" || got != exitBroken {
			t.Errorf("%q: got exit code %d, %s\n%s\nwant %d\n%s", args, got, stdout, stderr, exitBroken, want)
		}
	}
	const plugin = `level.yaml:4: defaults.enforce: plugin PodSecurity: Invalid value: "restrictedd": must be one of ` +
		`privileged, baseline, restricted
admission.yaml:12: plugins[0].configuration.limits[0].bogus: plugin EventRateLimit: unknown field, want one of type, qps, burst, cacheSize
admission.yaml:10: plugins[0].configuration.limits[0].qps: plugin EventRateLimit: Invalid value: 0: must be positive
`
	f(plugin, "--admission-control-config-file=admission.yaml", "--enable-admission-plugins=EventRateLimit,PodSecurity")
	servertest.WriteFile(t, "missing.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"+
		"plugins: [{name: EventRateLimit, path: none.yaml}]\n")
	f("missing.yaml:3: plugins[0].path: cannot read the configuration of EventRateLimit: open none.yaml: no such file or directory\n",
		"--admission-control-config-file=missing.yaml", "--enable-admission-plugins=EventRateLimit")
	f("cannot read configuration: open nowhere.yaml: no such file or directory\n",
		"--admission-control-config-file=nowhere.yaml", "--enable-admission-plugins=EventRateLimit")
	f(`own.yaml:3: bogus: unknown field, want one of apiVersion, kind, enableAdmissionPlugins, emulatedVersion, server, record, shadow, `+
		`plugins, podTemplatePaths, registration, imageReview
own.yaml:4: enableAdmissionPlugins[0]: unknown plugin "AlwaysPullImage", did you mean AlwaysPullImages? (fastadmit plugins lists all)
own.yaml:5: server.securePort: got 70000, want 0 to 65535
own.yaml:7: plugins[0].name: unknown plugin "Podsecurity", did you mean PodSecurity? (fastadmit plugins lists all)
own.yaml:8: plugins[0].timeout: got 40s, want more than 0s and at most 30s
`+plugin, "--config=own.yaml", "--admission-control-config-file=admission.yaml")
	f("admission.yaml:2: kind: got \"AdmissionConfiguration\", want \"Configuration\": --admission-control-config-file takes this file\n",
		"--config=admission.yaml")
	f("own.yaml:2: kind: got \"Configuration\", want \"AdmissionConfiguration\": --config takes this file\n",
		"--admission-control-config-file=own.yaml", "--enable-admission-plugins=AlwaysDeny")
	f("cannot enable plugin EventRateLimit: it has no configuration, which --admission-control-config-file would name: "+
		"limits: Invalid value: null: must not be empty\n",
		"--enable-admission-plugins=EventRateLimit")
	servertest.WriteFile(t, filepath.Join(dir, "level.yaml"), "a: [")
	f("level.yaml: plugin PodSecurity: cannot decode configuration: yaml: line 1: did not find expected node content\n",
		"--admission-control-config-file=admission.yaml", "--enable-admission-plugins=PodSecurity")
	f("cannot read configuration: open nosuch.yaml: no such file or directory\n", "--config=nosuch.yaml")
}
