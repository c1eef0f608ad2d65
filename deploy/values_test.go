package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// schemaRefuses returns a function that checks that the chart's schema refuses values, at the path want.
func schemaRefuses(t *testing.T) func(values, want string) {
	t.Parallel()
	return func(values, want string) {
		t.Helper()
		if !strings.Contains(values, "plugins:") {
			values = "plugins: {AlwaysPullImages: {}}\n" + values
		}
		_, stderr, err := try(t, "", tool(t, "helm"), helm(t, "template", values, "")...)
		if err == nil || !strings.Contains(stderr, "values don't meet the specifications") || !strings.Contains(stderr, "at '"+want+"'") {
			t.Errorf("%s: got %v %s, want it refused at %s", values, err, stderr, want)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	f := schemaRefuses(t)
	f("replica: 2", "")
	f("replicas: 0", "/replicas")
	f("replicas: two", "/replicas")
	f("securePort: 0", "/securePort")
	f("securePort: 443", "/securePort") // needs a capability
	f("securePort: 65536", "/securePort")
	f("metrics: {port: 80}", "/metrics/port")
	f("metrics: {serviceMonitor: {interval: often}}", "/metrics/serviceMonitor/interval")
	f("metrics: {podMonitor: {interval: often}}", "/metrics/podMonitor/interval")
	f("metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}}", "/metrics/podMonitor/enabled") // pods would count twice
	f("service: {port: 0}", "/service/port")
	f("service: {type: LoadBalancer}", "/service")
	f("bindAddress: localhost", "/bindAddress")
	f("webhooks: {timeoutSeconds: 0}", "/webhooks/timeoutSeconds")
	f("webhooks: {timeoutSeconds: 31}", "/webhooks/timeoutSeconds")
	f("webhooks: {name: fastadmit}", "/webhooks/name") // the names of webhooks have three segments
	f("webhooks: {failurePolicy: Fail}", "/webhooks")
	f("webhooks: {matchConditions: [{name: a}]}", "/webhooks/matchConditions/0")
	f("plugins: {AlwaysPullImages: {matchConditions: [{name: a, expresion: b}]}}", "/plugins/AlwaysPullImages/matchConditions/0")
	f("webhooks: {namespaceSelector: {matchLabel: {a: b}}}", "/webhooks/namespaceSelector")
	f("webhooks: {namespaceSelector: {matchExpressions: [{key: a, operator: in}]}}",
		"/webhooks/namespaceSelector/matchExpressions/0/operator")
	f("webhooks: {annotations: {a: true}}", "/webhooks/annotations/a")
	f("certificates: {mode: self}", "/certificates/mode")
	f("certificates: {mode: secret}", "/certificates/secretName")
	f("certificates: {mode: secret, secretName: a}", "/certificates/caBundle")
	f("certificates: {mode: secret, secretName: a, caBundle: LS0t}", "/certificates/caBundle") // PEM, not base64
	f("certificates: {mode: managed, caBundle: '-----BEGIN CERTIFICATE-----'}", "/certificates/caBundle")
	f("certificates: {webhookConfigurations: [fastadmit.io]}", "/certificates/webhookConfigurations/0")
	f("certificates: {webhookConfigurations: [mutating/a/b]}", "/certificates/webhookConfigurations/0")
	f("certificates: {webhookConfigurations: [mutating/a, mutating/a]}", "/certificates/webhookConfigurations")
	f("certificates: {mode: certManager, webhookConfigurations: [mutating/a]}", "/certificates/webhookConfigurations")
	f("callers: {clientCAKey: ca.crt}", "/callers/secretName")
	f("callers: {secretName: a}", "/callers/secretName") // no key of it is used
	f("callers: {secretName: a, tokensKey: b, allowedNames: [c]}", "/callers/clientCAKey")
	f("callers: {secretName: a, tokensKey: ../b}", "/callers/tokensKey")
	f("callers: {secretName: a, clientCAKey: b, allowedNames: ['a,b']}", "/callers/allowedNames/0")
	f("callers: {pathTokensKey: tokens}", "/callers/secretName")
	f("callers: {pathToken: maybe}", "/callers/pathToken")
	f("callers: {allowUnauthenticatedWrites: maybe}", "/callers/allowUnauthenticatedWrites")
	f("webhooks: {pathToken: "+strings.Repeat("a", 25)+"}", "/webhooks/pathToken")
	f("webhooks: {pathToken: "+strings.Repeat("a", 64)+"}", "/webhooks/pathToken")
	f("webhooks: {pathToken: "+strings.Repeat("A", 26)+"}", "/webhooks/pathToken")
}

func TestSchemaRefusesPods(t *testing.T) {
	f := schemaRefuses(t)
	f("networkPolicy: {enabled: sometimes}", "/networkPolicy/enabled")
	f("image: {pullPolicy: Sometimes}", "/image/pullPolicy")
	f("image: {digest: 'sha256:abc'}", "/image/digest")
	f("image: {repository: ''}", "/image/repository")
	f("server: {maxRequestsInflight: 0}", "/server/maxRequestsInflight")
	f("server: {maxConnectionAge: 10}", "/server/maxConnectionAge")
	f("server: {maxConnections: -1}", "/server/maxConnections")
	f("server: {maxConnectionsPerAddress: many}", "/server/maxConnectionsPerAddress")
	f("shutdownDelaySeconds: 10s", "/shutdownDelaySeconds")
	f("registrationCheck: {timeoutSeconds: 0}", "/registrationCheck/timeoutSeconds")
	f("registrationCheck: {enabled: always}", "/registrationCheck/enabled")
	f("registrationCheck: {timeout: 5m}", "/registrationCheck")
	f("resources: {limits: {memory: null}}", "/resources/limits")                        // bounds the memory of the heap
	f("podDisruptionBudget: {maxUnavailable: 0}", "/podDisruptionBudget/maxUnavailable") // it would block every drain
	f("podDisruptionBudget: {minAvailable: 1}", "/podDisruptionBudget")
	f("autoscaling: {minReplicas: 0}", "/autoscaling/minReplicas")
	f("audit: {enabled: sometimes}", "/audit/enabled")
	f("audit: {schedule: ''}", "/audit/schedule")
	f("audit: {operation: DELETE}", "/audit/operation")
	f("commonLabels: {app.kubernetes.io/name: other}", "/commonLabels/app.kubernetes.io~1name") // selectors use it
	f("commonLabels: {a: 1}", "/commonLabels/a")
	f("deploymentAnnotations: {a: true}", "/deploymentAnnotations/a")
	f("extraArgs: [profiling]", "/extraArgs/0")
	f("extraEnv: [{value: a}]", "/extraEnv/0")
	f("extraVolumes: [{emptyDir: {}}]", "/extraVolumes/0")
	f("extraVolumeMounts: [{name: a}]", "/extraVolumeMounts/0")
	f("audit: {writeReports: true}", "/audit/writeReports")
	f("audit: {resources: {limits: {memory: null}}}", "/audit/resources/limits")
	f("topologySpreadConstraints: [{topologyKey: a}]", "/topologySpreadConstraints/0")
	f("networkPolicy: {enabled: true}", "/networkPolicy/apiServerCIDRs") // nobody could call
	f("networkPolicy: {apiServerCIDRs: [10.0.0.1]}", "/networkPolicy/apiServerCIDRs/0")
}

func TestSchemaRefusesPlugins(t *testing.T) {
	f := schemaRefuses(t)
	f("plugins: {always.pull: {}}", "/plugins")
	f("plugins: {AlwaysPullImages: {failurePolicy: fail}}", "/plugins/AlwaysPullImages/failurePolicy")
	f("plugins: {AlwaysPullImages: {policy: Fail}}", "/plugins/AlwaysPullImages")
	f("plugins: {AlwaysPullImages: {enforcement: [{action: block}]}}", "/plugins/AlwaysPullImages/enforcement/0/action")
	f("plugins: {AlwaysPullImages: {enforcement: [{}]}}", "/plugins/AlwaysPullImages/enforcement/0")
	f("plugins: {AlwaysPullImages: {timeout: 5}}", "/plugins/AlwaysPullImages/timeout")
	f("plugins: {AlwaysPullImages: {rules: []}}", "/plugins/AlwaysPullImages/rules")
	f("plugins: {AlwaysPullImages: {rules: [{operations: [PATCH], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}}",
		"/plugins/AlwaysPullImages/rules/0/operations/0")
	f("plugins: {AlwaysPullImages: {configuration: file.yaml}}", "/plugins/AlwaysPullImages/configuration")
}

// A schema contains the parts of a JSON schema that describe values.
type schema struct {
	Ref                  string             `json:"$ref"`
	Properties           map[string]*schema `json:"properties"`
	AdditionalProperties any                `json:"additionalProperties"`
}

// TestValuesAreInSchema checks that values.yaml and the schema have the same values.
func TestValuesAreInSchema(t *testing.T) {
	t.Parallel()
	var s schema
	var values map[string]any
	if err := json.Unmarshal([]byte(readFile(t, "chart/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "chart/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	delete(s.Properties, "global") // Helm's own
	compareValues(t, "", values, &s)
}

func compareValues(t *testing.T, path string, values map[string]any, s *schema) {
	t.Helper()
	if s.AdditionalProperties != false {
		t.Errorf("%s: the schema allows more than it knows", path)
	}
	if got, want := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(got, want) {
		t.Errorf("%s: values.yaml has %q, the schema %q", path, got, want)
	}
	for name, value := range values {
		inner, isMap := value.(map[string]any)
		if p := s.Properties[name]; p != nil && isMap && len(p.Properties) > 0 &&
			!slices.Contains([]string{"resources", "plugins"}, name) {
			compareValues(t, path+"/"+name, inner, p)
		}
	}
}

// TestValuesHaveComments checks that a comment stands right before each value, or before its
// section.
func TestValuesHaveComments(t *testing.T) {
	t.Parallel()
	key := regexp.MustCompile(`^( *)([A-Za-z]+):(.*)$`)
	commented := make(map[int]bool) // by indentation, whether the section has a comment
	before := ""
	for line := range strings.Lines(readFile(t, "chart/values.yaml")) {
		line = strings.TrimRight(line, "\n")
		if m := key.FindStringSubmatch(line); m != nil {
			depth := len(m[1])
			has := strings.HasPrefix(strings.TrimSpace(before), "#")
			section := m[3] == ""
			if !has && !commented[depth-2] && !section {
				t.Errorf("values.yaml: %s has no comment", line)
			}
			commented[depth] = has
		}
		before = line
	}
}

// TestPresetsSayWhatFor checks that each preset begins with a comment.
func TestPresetsSayWhatFor(t *testing.T) {
	t.Parallel()
	entries, err := os.ReadDir("chart/presets")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !strings.HasPrefix(readFile(t, "chart/presets/"+entry.Name()), "# ") {
			t.Errorf("%s: want a comment that says what for", entry.Name())
		}
	}
}
