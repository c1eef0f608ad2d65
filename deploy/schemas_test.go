package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestKubeconform validates everything against the schemas of Kubernetes' own
// API, which come with its module, and of the CRDs of cert-manager and the
// Prometheus operator, which come with theirs. It reads the schemas, which takes a second, once for
// all settings.
func TestKubeconform(t *testing.T) {
	t.Parallel()
	var all release
	others := make(map[string]bool)
	each(t, func(_ *testing.T, s setting, r release) {
		for _, object := range r {
			others[object.GetKind()] = true
			object.SetName(object.GetName() + "-of-" + s.name) // kubeconform prints the name
			all = append(all, object)
		}
	})
	if said, err := kubeconform(t, schemas(t), all); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	for _, kind := range []string{"Certificate", "Issuer", "ServiceMonitor", "PodMonitor", "PrometheusRule"} {
		if !others[kind] {
			t.Errorf("no setting has a %s", kind)
		}
	}
}

// TestKubeconformRefuses checks that the schemas refuse invalid objects.
func TestKubeconformRefuses(t *testing.T) {
	t.Parallel()
	dir := schemas(t)
	f := func(kind string, value any, path ...string) {
		t.Helper()
		for _, object := range slices.Concat(render(t, somePlugins, "cert-manager.yaml"), render(t, somePlugins, "monitoring.yaml"),
			render(t, somePlugins+podMonitor, "")) {
			if object.GetKind() != kind {
				continue
			}
			if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
				t.Fatal(err)
			}
			if said, err := kubeconform(t, dir, release{object}); err == nil || !strings.Contains(said, path[len(path)-1]) {
				t.Errorf("%s with %q of %v: got %v %s, want it refused", kind, path, value, err, said)
			}
			return
		}
		t.Errorf("got no %s", kind)
	}
	f("Deployment", "two", "spec", "replicas")
	f("Deployment", int64(2), "spec", "replica")
	f("Certificate", "a", "spec", "dnsName")
	f("Certificate", "a", "spec", "dnsNames")
	f("Certificate", "ED25518", "spec", "privateKey", "algorithm")
	f("Certificate", nil, "spec", "secretName")
	f("Issuer", true, "spec", "selfSigned")
	f("Issuer", "a", "metadata", "label")
	f("ServiceMonitor", "often", "spec", "endpoints")
	f("ServiceMonitor", "a", "spec", "selector", "matchLabels")
	f("PodMonitor", "often", "spec", "podMetricsEndpoints")
	f("PodMonitor", "a", "spec", "selector", "matchLabels")
	f("PodMonitor", "a", "spec", "endpoints")
	f("PrometheusRule", "a", "spec", "groups")
	f("PrometheusRule", "a", "spec", "rules")
}

// kubeconform validates a release and returns its output.
func kubeconform(t *testing.T, dir string, r release) (string, error) {
	t.Helper()
	var documents strings.Builder
	for _, object := range r {
		document, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		documents.WriteString("---\n" + string(document) + "\n")
	}
	stdout, stderr, err := try(t, documents.String(), tool(t, "kubeconform"), "-strict", "-summary",
		"-schema-location", filepath.Join(dir, "{{.ResourceKind}}{{.KindSuffix}}.json"))
	return stdout + stderr, err
}

// schemas writes the schemas of all kinds in Kubernetes' swagger.json and in other projects' CRDs
// into a folder for kubeconform, and returns the folder.
func schemas(t *testing.T) string {
	t.Helper()
	module := strings.TrimSpace(run(t, "go", "-C", "../e2e", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
	var swagger struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal([]byte(readFile(t, filepath.Join(module, "api/openapi-spec/swagger.json"))), &swagger); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content any) {
		text, err := json.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, d := range swagger.Definitions {
		if _, has := d["properties"]; has {
			d["additionalProperties"] = false
		}
		if d["format"] == "int-or-string" {
			swagger.Definitions[name] = map[string]any{"type": []string{"string", "integer"}}
		}
		if strings.HasSuffix(name, "api.resource.Quantity") {
			swagger.Definitions[name] = map[string]any{"type": []string{"string", "number"}}
		}
		kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			kind := k.(map[string]any)
			file := schemaFile(kind["kind"].(string), kind["group"].(string), kind["version"].(string))
			write(file, map[string]any{"$ref": filepath.Join(dir, "all.json") + "#/definitions/" + name})
		}
	}
	write("all.json", map[string]any{"definitions": swagger.Definitions})
	for _, crd := range definitions(t) {
		for _, v := range crd.Spec.Versions {
			schema := v.Schema.OpenAPIV3Schema
			closeSchema(schema)
			// Kubernetes adds the common fields of all kinds.
			schema["properties"].(map[string]any)["metadata"] = map[string]any{
				"$ref": filepath.Join(dir, "all.json") + "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
			}
			write(schemaFile(crd.Spec.Names.Kind, crd.Spec.Group, v.Name), schema)
		}
	}
	return dir
}

// schemaFile returns the file in which kubeconform looks for the schema of a kind.
func schemaFile(kind, group, version string) string {
	first, _, _ := strings.Cut(group, ".")
	return strings.ReplaceAll(strings.ToLower(kind)+"-"+first+"-"+version+".json", "--", "-")
}

// A definition contains the validation of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Kind string }
		Versions []struct {
			Name   string
			Schema struct{ OpenAPIV3Schema map[string]any }
		}
	}
}

// definitions reads the CRDs of cert-manager and the Prometheus operator, in
// the versions that tools/deploy/go.mod names.
func definitions(t *testing.T) (all []definition) {
	t.Helper()
	for module, folder := range map[string]string{
		"github.com/cert-manager/cert-manager":               "deploy/crds",
		"github.com/prometheus-operator/prometheus-operator": "example/prometheus-operator-crd",
	} {
		var downloaded struct{ Dir string }
		printed := run(t, "go", "-C", "../tools/deploy", "mod", "download", "-json", module)
		if err := json.Unmarshal([]byte(printed), &downloaded); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(downloaded.Dir, folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: got no CRDs in %s, %v", module, folder, err)
		}
		for _, file := range files {
			var crd definition
			if err := yaml.Unmarshal([]byte(readFile(t, file)), &crd); err != nil {
				t.Fatal(err)
			}
			all = append(all, crd)
		}
	}
	return all
}

// closeSchema makes a schema refuse unknown fields, which Kubernetes drops with a warning.
func closeSchema(schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	if properties != nil && schema["additionalProperties"] == nil && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	inner := []any{schema["items"], schema["additionalProperties"]}
	for _, p := range properties {
		inner = append(inner, p)
	}
	for _, s := range inner {
		if s, ok := s.(map[string]any); ok {
			closeSchema(s)
		}
	}
}
