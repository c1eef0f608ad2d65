// Package deploy_test compares the chart, the kustomization, the dashboard and the alerts with the
// built fastadmit. "make chart" runs it; "go test . -update" rewrites the generated parts.
package deploy_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite chart/files/plugins.yaml and kustomize/base/fastadmit.yaml")

// binary is the fastadmit that make build builds.
const binary = "../bin/fastadmit"

// tool returns the path of a tool that tools/deploy/go.mod pins, which make chart builds.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../bin/tools", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: run make chart", err)
	}
	return path
}

// try runs a command and returns what it prints.
func try(t *testing.T, stdin, command string, arguments ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.Command(command, arguments...)
	cmd.Stdin = strings.NewReader(stdin)
	// helm and kustomize must not read the user's settings. They run for less than a second, and
	// helm uses a quarter of its time for garbage collection.
	cmd.Env = append(os.Environ(), "HELM_NAMESPACE=", "HELM_KUBECONTEXT=", "KUBECONFIG=/dev/null", "GOGC=400")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// run is try for a command that must succeed.
func run(t *testing.T, command string, arguments ...string) string {
	t.Helper()
	stdout, stderr, err := try(t, "", command, arguments...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", command, strings.Join(arguments, " "), err, stdout, stderr)
	}
	return stdout
}

// writeFile writes a file that lives as long as the test and returns its path.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// helm returns the arguments of a helm command on the chart, with values in YAML and the documents'
// release. A file of values is a preset.
func helm(t *testing.T, command, values, preset string) []string {
	t.Helper()
	arguments := []string{command}
	if command == "template" {
		arguments = append(arguments, "fastadmit")
	}
	arguments = append(arguments, "chart", "--namespace", "fastadmit")
	if preset != "" {
		arguments = append(arguments, "--values", filepath.Join("chart/presets", preset))
	}
	return append(arguments, "--values", writeFile(t, "values.yaml", values))
}

// A release contains the objects that helm renders.
type release []*unstructured.Unstructured

// rendered caches helm's output for values and a preset: most tests need the same releases, and
// helm is the slowest part.
var rendered sync.Map

// render returns the release with these values.
func render(t *testing.T, values, preset string) release {
	t.Helper()
	printed, _ := rendered.LoadOrStore([2]string{values, preset}, sync.OnceValues(func() (string, error) {
		stdout, stderr, err := try(t, "", tool(t, "helm"), helm(t, "template", values, preset)...)
		if err != nil {
			err = fmt.Errorf("helm template: %w\n%s%s", err, stdout, stderr)
		}
		return stdout, err
	}))
	text, err := printed.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, text)
}

// parse reads documents of YAML.
func parse(t *testing.T, text string) (all release) {
	t.Helper()
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		object := new(unstructured.Unstructured)
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if object.Object != nil {
			all = append(all, object)
		}
	}
	return all
}

// only returns the objects of a kind, decoded strictly into its type.
func only[T any](t *testing.T, r release, kind string) (all []*T) {
	t.Helper()
	for _, object := range r {
		if object.GetKind() != kind {
			continue
		}
		typed := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true); err != nil {
			t.Fatalf("%s %s: %v", kind, object.GetName(), err)
		}
		all = append(all, typed)
	}
	return all
}

// one returns the only object of a kind.
func one[T any](t *testing.T, r release, kind string) *T {
	t.Helper()
	all := only[T](t, r, kind)
	if len(all) != 1 {
		t.Fatalf("got %d objects of kind %s, want 1", len(all), kind)
	}
	return all[0]
}

// A setting is a way to install fastadmit: values over those of a preset.
type setting struct{ name, values, preset string }

// Values that the settings have in common.
const (
	somePlugins = `plugins:
  AlwaysPullImages: {}
  DenyServiceExternalIPs: {failurePolicy: Ignore, enforcement: [{action: warn}]}
  EventRateLimit:
    configuration:
      apiVersion: eventratelimit.admission.k8s.io/v1alpha1
      kind: Configuration
      limits: [{type: Server, qps: 50, burst: 100}]
`
	podMonitor = "metrics: {podMonitor: {enabled: true, interval: 30s, labels: {team: monitoring}}}\n"
)

// triedValues try a plugin with side effects, another configuration and other settings.
const triedValues = `
shadow:
  plugins:
    NamespaceAutoProvision: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
    PodSecurity: {namespaceSelector: {matchLabels: {a: b}}}
    DenyServiceExternalIPs: {failurePolicy: Ignore}
    EventRateLimit:
      configuration:
        apiVersion: eventratelimit.admission.k8s.io/v1alpha1
        kind: Configuration
        limits: [{type: Server, qps: 5, burst: 10}]
  processorPercent: 5
`

// ownCertificate returns the values for a certificate of the user's own.
var ownCertificate = sync.OnceValue(func() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return fmt.Sprintf("\ncertificates: {mode: secret, secretName: own, caBundle: %q}\n", authority)
})

// settings are the defaults, each preset, and settings that no preset has.
func settings(t *testing.T) []setting {
	t.Helper()
	all := []setting{
		{"default", somePlugins, ""},
		{"registered-by-others", somePlugins + "certificates: {webhookConfigurations: [mutating/a.example.com, " +
			"validating/a.example.com, validating/b]}", ""},
		{"everything", somePlugins + `
callers: {secretName: callers, clientCAKey: ca.crt, allowedNames: [a, b], tokensKey: tokens.csv, passwordsKey: passwords.csv}
networkPolicy: {enabled: true, apiServerCIDRs: [10.0.0.0/8, "fd00::/8"], metricsFrom: [{podSelector: {}}]}
autoscaling: {enabled: true, behavior: {scaleDown: {stabilizationWindowSeconds: 60}}}
hostNetwork: true
bindAddress: "::"
service: {port: 9443, annotations: {a: b}}
webhooks: {name: a.b, timeoutSeconds: 3, excludedNamespaces: [x, z], annotations: {a: b}, objectSelector: {matchLabels: {c: d}},
  matchConditions: [{name: leases, expression: 'request.resource.resource != "leases"'}]}
image: {repository: example.com/fastadmit, digest: "sha256:` + strings.Repeat("0", 64) + `"}
imagePullSecrets: [{name: pull}]
podLabels: {a: b}
podAnnotations: {a: b}
record: {enabled: true, resources: [pods, deployments.apps, pods/exec]}
tracing: {endpoint: "collector.monitoring:4317", samplingRatePerMillion: 100}
serviceAccount: {annotations: {a: b}}
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: ` +
			`Exists}]}]}}}
`, "monitoring.yaml"},
		{"network-policy-without-api", somePlugins +
			"networkPolicy: {enabled: true, apiServerCIDRs: [10.0.0.0/8]}" + ownCertificate(), ""},
		{"namespace-selector", "plugins: {AlwaysPullImages: {enforcement: [{action: audit, namespaceSelector: {matchLabels: {a: b}}}]}}",
			"cert-manager.yaml"},
		{"match-conditions", `plugins: {AlwaysPullImages: {matchConditions: [{name: may-not, expression: ` +
			`"!authorizer.requestResource.check('approve').allowed()"}]}}`, ""},
		{"plugins-that-know-the-cluster", "plugins: {AlwaysPullImages: {namespaceSelector: {matchLabels: {a: b}}}, " +
			"DefaultStorageClass: {}, PersistentVolumeClaimResize: {}}", ""},
		{"shadow", somePlugins + triedValues, ""},
		{"pod-monitor", somePlugins + podMonitor, ""},
		{"least", somePlugins + "podDisruptionBudget: {enabled: false}\ntopologySpreadConstraints: []\npriorityClassName: ''\n" +
			"serviceAccount: {create: false}\nwebhooks: {create: false}\nserver: {profiling: true}\n", "cert-manager.yaml"},
	}
	presets, err := filepath.Glob("chart/presets/*.yaml")
	if err != nil || len(presets) == 0 {
		t.Fatalf("got presets %q, %v", presets, err)
	}
	for _, path := range presets {
		preset, values := filepath.Base(path), somePlugins
		if preset == "own-certificate.yaml" {
			values += ownCertificate()
		}
		all = append(all, setting{preset, values, preset})
	}
	return all
}

// each runs f for every setting.
func each(t *testing.T, f func(t *testing.T, s setting, r release)) {
	for _, s := range settings(t) {
		t.Run(s.name, func(t *testing.T) { f(t, s, render(t, s.values, s.preset)) })
	}
}

// argument returns the value of a container's flag.
func argument(arguments []string, flag string) (value string, ok bool) {
	i := slices.IndexFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "--"+flag+"=") })
	if i < 0 {
		return "", false
	}
	return strings.TrimPrefix(arguments[i], fmt.Sprintf("--%s=", flag)), true
}
