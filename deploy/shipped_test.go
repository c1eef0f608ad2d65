package deploy_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestShippedPolicies reviews with the policies that come with the chart, as the pods
// have them.
func TestShippedPolicies(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("chart/policies/*.test.yaml")
	if err != nil || len(names) < 10 {
		t.Fatalf("got suites %q, %v", names, err)
	}
	values := "policies:\n  shipped:\n"
	for _, name := range names {
		values += "    " + strings.TrimSuffix(filepath.Base(name), ".test.yaml") + ": {}\n"
	}
	values = strings.Replace(values, "no-latest-tag: {}", "no-latest-tag: {validationActions: [Deny], matchResources: {objectSelector: "+
		"{matchLabels: {a: b}}}}", 1)
	values = strings.Replace(values, "allowed-registries: {}", `allowed-registries: {variables: {registries: "['example.com/']"}}`, 1)
	r := render(t, values, "")
	dir := writeConfiguration(t, r)
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {a: b}}\nspec: {hostNetwork: true, " +
		"containers: [{name: app, image: 'example.com/app'}]}\n"
	review := func(pod string) (string, error) {
		stdout, stderr, err := try(t, pod, binary, "review", "-", "--config="+dir+"/configuration.yaml",
			"--admission-control-config-file="+dir+"/admission.yaml")
		return stdout + stderr, err
	}
	got, err := review(pod)
	if err == nil || !strings.Contains(got, "denied request: images need a tag other than latest, or a digest: app (example.com/app)") {
		t.Errorf("got %v and %s, want a denial", err, got)
	}
	if got, err = review(strings.Replace(pod, "{a: b}", "{}", 1)); err != nil ||
		!strings.Contains(got, "pods must not use namespaces of their node: hostNetwork") ||
		strings.Contains(got, "images must come from") {
		t.Errorf("got %v and %s, want a warning of the host's network alone", err, got)
	}
	f := func(values, want string) {
		t.Helper()
		if _, stderr, err := try(t, "", tool(t, "helm"), helm(t, "template", values, "")...); err == nil ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: got %v %s, want %q", values, err, stderr, want)
		}
	}
	f("policies: {shipped: {no-latest: {}}}", "policies.shipped: got no-latest, did you mean no-latest-tag? If not, want one of allowed-")
	f("policies: {shipped: {no-latest-tags: {}}}",
		"policies.shipped: got no-latest-tags, did you mean no-latest-tag? If not, want one of allowed-")
	f("policies: {shipped: {xyz: {}}}", "policies.shipped: got xyz, want one of allowed-")
	f("policies: {shipped: {no-host-path: {variables: {wrongs: b}}}}",
		"policies.shipped.no-host-path.variables: got wrongs, did you mean wrong? If not, want one of podSpec, wrong")
	f("policies: {shipped: {resource-maximums: {variables: {xyz: b}}}}",
		"policies.shipped.resource-maximums.variables: got xyz, want one of cpu, memory, podSpec, containers, wrong")
	f("policies: {shipped: {no-bare-pods: {variables: {a: b}}}}", "policies.shipped.no-bare-pods.variables: got a, want none: "+
		"the policy has no variables")
	f("policies: {shipped: {no-host-path: {validationActions: [Refuse]}}}", "at '/policies/shipped/no-host-path/validationActions/0'")
}

// TestShippedPages renders the chart with the values that the pages of its policies show, which have the defaults of all variables.
func TestShippedPages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/policy-library/*.md")
	if err != nil || len(pages) < 10 {
		t.Fatalf("got pages %q, %v", pages, err)
	}
	const begin = "policies:\n  shipped:\n"
	shown, defaults := begin, begin
	for _, page := range pages {
		_, values, _ := strings.Cut(readFile(t, page), "```yaml\n"+begin)
		values, _, _ = strings.Cut(values, "```")
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		if !strings.HasPrefix(values, "    "+name+":") {
			t.Errorf("%s: got values %q, want some for %s", page, values, name)
		}
		shown += values
		defaults += "    " + name + ": {}\n"
	}
	policies := func(values string) map[string]string {
		return one[corev1.ConfigMap](t, render(t, values, ""), "ConfigMap").Data
	}
	got, want := policies(shown), policies(defaults)
	for name, text := range want {
		if strings.ReplaceAll(got[name], "- Deny", "- Warn") != text {
			t.Errorf("%s: got\n%s\nwant denials and otherwise\n%s", name, got[name], text)
		}
	}
	if len(got) != len(want) || len(got) < len(pages) {
		t.Errorf("got %d files with the values of %d pages, want %d", len(got), len(pages), len(want))
	}
}

// TestShippedMutations reviews with policies that change objects: one in force, and one in the shadow beside it.
func TestShippedMutations(t *testing.T) {
	t.Parallel()
	r := render(t, `
policies: {shipped: {default-seccomp-profile: {matchResources: {objectSelector: {matchLabels: {a: b}}}}, no-latest-tag: {}}}
shadow: {policies: {shipped: {default-job-ttl: {variables: {seconds: "60"}}}}}
`, "")
	c := configured(t, r)
	if got, want := c.EnableAdmissionPlugins, []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}; !slices.Equal(got, want) {
		t.Errorf("got plugins %q, want %q", got, want)
	}
	if got, want := c.Shadow.EnableAdmissionPlugins, []string{"MutatingAdmissionPolicy"}; !slices.Equal(got, want) {
		t.Errorf("got plugins %q in the shadow, want %q", got, want)
	}
	dir := writeConfiguration(t, r)
	for folder, want := range map[string][]string{
		"policies": {"no-latest-tag.yaml"}, "mutating-policies": {"default-seccomp-profile.yaml"},
		"shadow-mutating-policies": {"default-job-ttl.yaml", "default-seccomp-profile.yaml"}, "shadow-policies": nil,
	} {
		paths, err := filepath.Glob(filepath.Join(dir, folder, "*"))
		for i := range paths {
			paths[i] = filepath.Base(paths[i])
		}
		if err != nil || !slices.Equal(paths, want) {
			t.Errorf("got %q in %s, %v, want %q", paths, folder, err, want)
		}
	}
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, labels: {a: b}}\nspec: {containers: [{name: app, " +
		"image: 'example.com/app:1'}]}\n"
	for text, want := range map[string]string{pod: "seccompProfile", strings.Replace(pod, "{a: b}", "{}", 1): "allowed"} {
		stdout, stderr, err := try(t, text, binary, "review", "-", "--config="+dir+"/configuration.yaml",
			"--admission-control-config-file="+dir+"/admission.yaml")
		if err != nil || !strings.Contains(stdout, want) {
			t.Errorf("got %v, %s%s, want %q", err, stdout, stderr, want)
		}
	}
	_, stderr, err := try(t, "", tool(t, "helm"),
		helm(t, "template", "policies: {shipped: {default-job-ttl: {validationActions: [Deny, Audit]}}}", "")...)
	if want := "policies.shipped.default-job-ttl.validationActions: got Deny, Audit, want none: the policy changes objects"; err == nil ||
		!strings.Contains(stderr, want) {
		t.Errorf("got %v %s, want %q", err, stderr, want)
	}
}

// writeConfiguration writes the files of the configuration volume as the pods have them, and returns their folder.
func writeConfiguration(t *testing.T, r release) string {
	t.Helper()
	dir := t.TempDir()
	data := one[corev1.ConfigMap](t, r, "ConfigMap").Data
	items := one[appsv1.Deployment](t, r, "Deployment").Spec.Template.Spec.Volumes[0].ConfigMap.Items
	mounted := make(map[string]bool)
	for _, item := range items {
		mounted[item.Key] = true
		file := filepath.Join(dir, item.Path)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(data[item.Key]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(mounted) != len(data) {
		t.Errorf("got items for %d keys of a ConfigMap with %d", len(mounted), len(data))
	}
	return dir
}
