package deploy_test

import (
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// example builds the binary with custom plugins, and returns its path and the values that describe
// them to the chart.
func example(t *testing.T) (path, values string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "example")
	run(t, "go", "build", "-C", "..", "-o", path, "./admission/example")
	return path, run(t, path, "plugins", "-o", "chart")
}

// TestExtraPlugins installs a binary with custom plugins: webhooks and rules are those that it
// prints itself.
func TestExtraPlugins(t *testing.T) {
	t.Parallel()
	path, values := example(t)
	values += "plugins: {TeamLabel: {}, NamespaceCreator: {failurePolicy: Ignore}, LimitRanger: {namespaceSelector: {matchLabels: " +
		"{a: b}}}}\n"
	r := render(t, values+ownCertificate(), "")
	own := func(arguments ...string) release {
		return parse(t, run(t, path, append(append([]string{"manifests"}, files(t, r)...), arguments...)...))
	}
	got, want := webhooks(t, r), webhooks(t, own())
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) || len(want) != 4 {
		t.Fatalf("got the webhooks %q, want %q, four of them", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for name := range want {
		compareWebhooks(t, got[name], want[name], false)
	}
	gotRules, wantRules := clusterRules(t, r), clusterRules(t, own("--kind=ClusterRole"))
	if !reflect.DeepEqual(gotRules, wantRules) || wantRules["teams.example.com"] != "get,list,watch" || wantRules["configmaps"] == "" ||
		len(wantRules) != 4 {
		t.Errorf("got the rules %v, want those that the binary prints: %v", gotRules, wantRules)
	}
}

// TestExtraPluginsAudit checks that an audit may list and read what custom plugins need.
func TestExtraPluginsAudit(t *testing.T) {
	t.Parallel()
	_, values := example(t)
	for _, role := range only[rbacv1.ClusterRole](t, render(t, values+"plugins: {TeamLabel: {}}\n"+auditAll+ownCertificate(), ""),
		"ClusterRole") {
		if !strings.HasSuffix(role.Name, "-audit") {
			continue
		}
		got := permissions(role.Rules)
		want := permissions([]rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"example.com"}, Resources: []string{"teams"}, Verbs: []string{"get", "list", "watch"}},
		})
		for permission := range want {
			if _, ok := got[permission]; !ok {
				t.Errorf("got no right to %s", permission)
			}
		}
		return
	}
	t.Error("got no ClusterRole for audits")
}

// clusterRules returns the verbs of each resource in the ClusterRole.
func clusterRules(t *testing.T, r release) map[string]string {
	t.Helper()
	verbs := make(map[string]string)
	for _, object := range r {
		if object.GetKind() != "ClusterRole" {
			continue
		}
		role := new(rbacv1.ClusterRole)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			name := strings.TrimSuffix(rule.Resources[0]+"."+rule.APIGroups[0], ".")
			verbs[name] = strings.Join(slices.Sorted(slices.Values(rule.Verbs)), ",")
		}
	}
	return verbs
}

// TestExtraPluginsRefused checks that names and values are validated as for other plugins.
func TestExtraPluginsRefused(t *testing.T) {
	t.Parallel()
	_, values := example(t)
	f := func(values, want string) {
		t.Helper()
		_, stderr, err := try(t, "", tool(t, "helm"), helm(t, "template", values, "")...)
		if err == nil || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %v %s, want it refused with %q", values, err, stderr, want)
		}
	}
	f(values+"plugins: {TeamLabels: {}}", "plugins: got TeamLabels, did you mean TeamLabel? If not, want one of AlwaysAdmit, ")
	f(values+"plugins: {TeamLabel: {}, AlwaysPullImage: {}}",
		"plugins: got AlwaysPullImage, did you mean AlwaysPullImages? If not, want one of AlwaysAdmit, ")
	f("plugins: {TeamLabel: {}}", "add the values that your fastadmit prints with plugins -o chart")
	f("plugins: {TeamLabel: {}}\nwebhooks: {create: false}", "plugins: got TeamLabel, want one of")
	f("plugins: {LimitRanger: {}}\nextraPlugins: {LimitRanger: {mutate: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], "+
		"resources: ['*']}]}}",
		"extraPlugins: got LimitRanger, which is built in")
	f("plugins: {LimitRanger: {}}\nextraPlugins: {A: {}}", "at '/extraPlugins/A'")
	f("plugins: {LimitRanger: {}}\nextraPlugins: {a: {validate: []}}", "at '/extraPlugins'")
	f(strings.Replace(values, "verbs:", "verb:", 1)+"plugins: {TeamLabel: {}}", "at '/extraPlugins/TeamLabel/cluster/0'")
	f(values+"plugins: {TeamLabel: {failurePolicy: fail}}", "at '/plugins/TeamLabel/failurePolicy'")
}
