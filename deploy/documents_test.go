package deploy_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var yamlBlock = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")

// TestDocumentedValues renders the chart with the values that documents show.
func TestDocumentedValues(t *testing.T) {
	t.Parallel()
	var known map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, "chart/values.yaml")), &known); err != nil {
		t.Fatal(err)
	}
	documents, err := filepath.Glob("../docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatalf("got documents %q, %v", documents, err)
	}
	rendered := make(map[string]bool)
	for _, document := range append(documents, "../README.md", "chart/README.md") {
		for _, m := range yamlBlock.FindAllStringSubmatch(readFile(t, document), -1) {
			text := strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n")[1:]
			var values map[string]any
			if err := yaml.Unmarshal([]byte(text), &values); err != nil {
				continue // a list, or several documents
			}
			isValue := func(name string) bool { _, ok := known[name]; return ok }
			if len(values) == 0 || values["kind"] != nil || !slices.ContainsFunc(slices.Collect(maps.Keys(values)), isValue) ||
				rendered[text] {
				continue
			}
			rendered[text] = true
			if values["plugins"] == nil {
				text += "\nplugins: {AlwaysPullImages: {}}\n"
			}
			if _, stderr, err := try(t, "", tool(t, "helm"), helm(t, "template", text, "")...); err != nil {
				t.Errorf("%s: %v %s with\n%s", document, err, stderr, text)
			}
		}
	}
	if len(rendered) < 5 {
		t.Errorf("got %d blocks of values, want more", len(rendered))
	}
}

// TestConfigurationSchema compares the schema for editors with the files that fastadmit accepts and
// refuses.
func TestConfigurationSchema(t *testing.T) {
	t.Parallel()
	validate := func(file string) (string, error) {
		stdout, stderr, err := try(t, "", tool(t, "kubeconform"), "-strict", "-schema-location", "../docs/configuration.schema.json", file)
		return stdout + stderr, err
	}
	good := readFile(t, "../testdata/config.yaml")
	f := func(old, replacement string, valid bool) {
		t.Helper()
		text := strings.Replace(good, old, replacement, 1)
		if text == good && old != "" {
			t.Fatalf("testdata/config.yaml has no %q", old)
		}
		file := writeFile(t, "configuration.yaml", text)
		if said, err := validate(file); (err == nil) != valid {
			t.Errorf("%s: the schema says %v: %s", text, err, said)
		}
		if _, stderr, err := try(t, "", binary, "config", "--config="+file); (err == nil) != valid {
			t.Errorf("%s: fastadmit config says %v: %s", text, err, stderr)
		}
	}
	f("", "", true)
	f("failurePolicy: Ignore", "failurePolicy: Never", false)
	f("failurePolicy: Ignore", "failurePolicies: Ignore", false)
	f("action: deny", "action: block", false)
	f("operator: DoesNotExist", "operator: Missing", false)
	f("500ms", "soon", false)
	f("kind: Configuration", "kind: Configuration\nserver: {securePort: 8443, shutdownDelayDuration: 10s}", true)
	f("kind: Configuration", "kind: Configuration\nserver: {securePort: '8443'}", false)
	f("kind: Configuration", "kind: Configuration\nimageReview: {rules: [{name: a, requireDigest: true}]}", true)
	f("kind: Configuration", "kind: Configuration\nimageReview: {rules: [{requireDigest: true}]}", false)
	f("kind: Configuration", "kind: Configuration\nregistration: {name: a.b, timeoutSeconds: 5, matchPolicy: Exact}", true)
	f("fastadmit.io/v1alpha1", "fastadmit.io/v1", false)
}
