package registration_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/registration"
	"github.com/fastadmit/fastadmit/internal/workload"
)

var update = flag.Bool("update", false, "write the golden files anew")

// rule returns a rule with one element in each list, or with several if the text has commas.
func rule(operations, groups, versions, resources string) admission.Rule {
	r := admission.Rule{
		Groups: strings.Split(groups, ","), Versions: strings.Split(versions, ","), Resources: strings.Split(resources, ","),
	}
	for operation := range strings.SplitSeq(operations, ",") {
		r.Operations = append(r.Operations, codec.Operation(operation))
	}
	return r
}

// plugin returns a plugin that mutates ("m"), validates ("v") or both.
func plugin(name, does string, rules ...admission.Rule) registration.Plugin {
	return registration.Plugin{Plugin: &admission.Plugin{
		Name: name, Mutates: strings.Contains(does, "m"), Validates: strings.Contains(does, "v"), Rules: rules,
	}}
}

// configured returns the plugin with criteria and a failure policy, which may be empty.
func configured(p registration.Plugin, criteria string, policy admissionregistrationv1.FailurePolicyType) registration.Plugin {
	if err := yaml.UnmarshalStrict([]byte(criteria), &p.Criteria); err != nil {
		panic(err)
	}
	p.FailurePolicy = policy
	return p
}

// options parses options as in a file.
func options(t *testing.T, text string) *registration.Options {
	t.Helper()
	o := new(registration.Options)
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o
}

const (
	pods    = "rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]"
	tenants = "namespaceSelector: {matchLabels: {tenant: 'yes'}}"
)

func TestNew(t *testing.T) {
	f := func(name, text string, plugins ...registration.Plugin) {
		t.Helper()
		r, err := registration.New(plugins, options(t, text), field.NewPath("registration"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []byte
		for _, note := range r.Notes {
			got = append(got, "# "+note+"\n"...)
		}
		if r.Mutating != nil {
			got = append(got, "---\n"+marshal(t, r.Mutating)...)
		}
		if r.Validating != nil {
			got = append(got, "---\n"+marshal(t, r.Validating)...)
		}
		file := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
	images := plugin("Images", "mv", admission.CreateUpdate("pods"))
	services := plugin("Services", "v", admission.CreateUpdate("services"))
	events := plugin("Events", "v", admission.CreateUpdate("events"))
	events.SideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	volumes := plugin("Volumes", "m", rule("CREATE", "", "v1", "persistentvolumes,persistentvolumeclaims"),
		rule("CREATE", "storage.k8s.io", "v1", "volumeattributesclasses"))

	f("defaults", "", images, services, volumes)
	f("policies", "", configured(images, "", admissionregistrationv1.Ignore), services,
		configured(events, "", admissionregistrationv1.Ignore), configured(volumes, "", admissionregistrationv1.Fail))
	f("side-effects", "", services, events)
	f("everything", "", plugin("Deny", "mv", admission.Any()))
	f("everything-narrowed", "", configured(plugin("Deny", "v", admission.Any()), pods, ""))
	f("nothing-of-one", "", configured(services, pods, ""), images)
	f("all-options", `
name: admission.example.com
labels: {app: fastadmit}
annotations: {cert-manager.io/inject-ca-from: fastadmit/fastadmit}
namespace: pods-are-here
clientConfig:
  service: {namespace: service-is-here, name: webhook, path: /fastadmit/, port: 8443}
timeoutSeconds: 3
matchPolicy: Exact
namespaceSelector: {matchLabels: {a: b}}
objectSelector: {matchExpressions: [{key: c, operator: Exists}]}
matchConditions: [{name: no-nodes, expression: '!request.userInfo.username.startsWith("system:node:")'}]
admissionReviewVersions: [v1beta1]
`, images)
	f("url", "{namespace: own, clientConfig: {url: 'https://fastadmit.example.com:8443/base/?'}}", images)
	f("selectors-of-all", "", configured(images, tenants, ""), configured(services, tenants, ""))
	f("selectors-of-some", "", configured(images, tenants, ""), services)
	f("selectors-that-clash", "{namespaceSelector: {matchLabels: {tenant: 'no', a: b}}}", configured(images, tenants, ""))
}

func TestNotesAboutEverything(t *testing.T) {
	f := func(want bool, rules ...admission.Rule) {
		t.Helper()
		r, err := registration.New([]registration.Plugin{plugin("P", "v", rules...)}, new(registration.Options), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(r.Notes, "\n"), "P handles every resource"); got != want {
			t.Errorf("%+v: got %v, want %v", rules, got, want)
		}
	}
	f(true, admission.Any())
	f(true, admission.CreateUpdate("pods"), rule("CREATE", "*", "v1", "*"))
	f(false, rule("*", "apps", "*", "*/*"))
	f(false, rule("*", "*", "*", "*/scale"))
	f(false, rule("*", "*", "*", "pods"))
}

func TestNewStatic(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		o := options(t, "clientConfig: {url: 'https://127.0.0.1:8443'}")
		o.Name, o.Static = name, true
		r, err := registration.New([]registration.Plugin{plugin("Images", "mv", admission.CreateUpdate("pods"))}, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		webhooks := r.Mutating.Webhooks[0].Name + " " + *r.Mutating.Webhooks[0].ClientConfig.URL
		if got := r.Mutating.Name + " " + r.Validating.Name + " " + webhooks; got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
	const url = " https://127.0.0.1:8443/mutate/fail"
	f("", "fastadmit.io.static.k8s.io fastadmit.io.static.k8s.io mutate-fail.fastadmit.io"+url)
	f("a.b.static.k8s.io", "a.b.static.k8s.io a.b.static.k8s.io mutate-fail.a.b"+url)
}

// TestNewKeepsItsArguments creates two registrations from the same arguments.
func TestNewKeepsItsArguments(t *testing.T) {
	o := options(t, "{namespaceSelector: {matchLabels: {a: b}}, clientConfig: {service: {namespace: n, name: s, path: /p}}}")
	plugins := []registration.Plugin{configured(plugin("Images", "mv", admission.CreateUpdate("pods")), tenants, "")}
	before := marshal(t, o) + marshal(t, plugins[0].Criteria)
	for range 2 {
		if _, err := registration.New(plugins, o, nil); err != nil {
			t.Fatal(err)
		}
	}
	if after := marshal(t, o) + marshal(t, plugins[0].Criteria); after != before {
		t.Errorf("got\n%s\nwant\n%s", after, before)
	}
}

func TestNewNothing(t *testing.T) {
	_, err := registration.New([]registration.Plugin{configured(plugin("Services", "v", admission.CreateUpdate("services")), pods, "")},
		new(registration.Options), nil)
	const want = "no plugin handles what its configured rules select, so there is nothing to register"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRules(t *testing.T) {
	f := func(want string, plugins ...registration.Plugin) {
		t.Helper()
		r, err := registration.New(plugins, new(registration.Options), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rule := range r.Validating.Webhooks[0].Rules {
			got = append(got, show(&rule))
		}
		if got := strings.Join(got, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	v := func(rules ...admission.Rule) registration.Plugin { return plugin("P", "v", rules...) }
	scoped := func(scope admissionregistrationv1.ScopeType, r admission.Rule) admission.Rule {
		r.Scope = scope
		return r
	}
	const cluster, namespaced = admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope

	f("CREATE,UPDATE /v1 pods *", v(admission.CreateUpdate("pods")), v(admission.CreateUpdate("pods")))
	f("CREATE,UPDATE /v1 events,pods,services *", v(admission.CreateUpdate("services")), v(admission.CreateUpdate("pods")),
		v(admission.CreateUpdate("events")))
	f("CREATE,DELETE,UPDATE /v1 pods *\nCREATE,UPDATE /v1 services *",
		v(rule("DELETE,CREATE", "", "v1", "pods")), v(admission.CreateUpdate("services")), v(admission.CreateUpdate("pods")))
	f("CREATE /v1 a *\nCREATE apps/v1 a,b *", v(rule("CREATE", ",apps", "v1", "a")), v(rule("CREATE", "apps", "v1", "b")))
	f("CREATE batch/v1,v1beta1 jobs *", v(rule("CREATE", "batch", "v1beta1", "jobs")), v(rule("CREATE", "batch", "v1", "jobs")))
	f("CREATE ,apps/v1 x *", v(rule("CREATE", "", "v1", "x")), v(rule("CREATE", "apps", "v1", "x")))
	f("* */* */* *", v(admission.Any()), v(admission.CreateUpdate("pods")))
	f("CREATE /v1 pods/* *", v(rule("CREATE", "", "v1", "pods,pods/exec,pods/*")))
	f("CREATE /v1 */exec,pods *", v(rule("CREATE", "", "v1", "pods,pods/exec,*/exec")))
	f("CREATE /v1 *,pods/exec *", v(rule("CREATE", "", "v1", "pods,pods/exec,*")))
	f("CREATE /v1 */* *", v(rule("CREATE", "", "v1", "pods,pods/exec,*")), v(rule("CREATE", "", "v1", "*/*")))
	f("* /v1 pods *\nCREATE */v1 pods *", v(rule("*", "", "v1", "pods")), v(rule("CREATE", "*", "v1", "pods")))
	f("CREATE /v1 x Cluster", v(scoped(cluster, rule("CREATE", "", "v1", "x"))))
	f("CREATE /v1 x *", v(scoped(cluster, rule("CREATE", "", "v1", "x"))), v(rule("CREATE", "", "v1", "x")))
	f("* /v1 x *", v(scoped(cluster, rule("*", "", "v1", "x"))), v(scoped(namespaced, rule("*", "", "v1", "x"))),
		v(rule("CREATE", "", "v1", "x")))
	f("CREATE /v1 x Namespaced\nUPDATE /v1 x Cluster", v(scoped(cluster, rule("UPDATE", "", "v1", "x"))),
		v(scoped(namespaced, rule("CREATE", "", "v1", "x"))))
	// Two resources differ from one with a space in its name.
	f("CREATE /v1 x,y *\nCREATE /v2 x y *", v(rule("CREATE", "", "v1", "x,y")), v(rule("CREATE", "", "v2", "x y")))

	narrowed := func(operations, groups, versions, resources, scope string, rules ...admission.Rule) registration.Plugin {
		return configured(v(rules...), "rules: [{operations: ["+operations+"], apiGroups: ["+groups+"], apiVersions: ["+versions+
			"], resources: ["+resources+"], scope: '"+scope+"'}]", "")
	}
	f("CREATE /v1 pods *", narrowed("CREATE, DELETE", "'', apps", "v1, v2", "pods, services", "*", admission.CreateUpdate("pods")))
	f("CREATE,UPDATE /v1 pods Namespaced", narrowed("'*'", "'*'", "'*'", "'*/*'", "Namespaced", admission.CreateUpdate("pods")))
	f("CREATE apps/v1 deployments Namespaced", narrowed("CREATE", "apps", "v1", "deployments", "Namespaced", admission.Any()))
	f("CREATE /v1 pods *\nUPDATE /v1 services *", narrowed("CREATE", "'*'", "'*'", "'*'", "*", admission.CreateUpdate("pods")),
		narrowed("UPDATE", "'*'", "'*'", "services", "*", admission.CreateUpdate("services")))
	f("CREATE /v1 pods/exec *", narrowed("CREATE", "''", "v1", "pods/*", "*", rule("CREATE", "", "v1", "*/exec")))
	f("CREATE /v1 pods *", narrowed("CREATE", "''", "v1", "'*'", "*", rule("CREATE", "", "v1", "pods/*")))
}

func show(r *admissionregistrationv1.RuleWithOperations) string {
	var operations []string
	for _, o := range r.Operations {
		operations = append(operations, string(o))
	}
	return strings.Join(operations, ",") + " " + strings.Join(r.APIGroups, ",") + "/" + strings.Join(r.APIVersions, ",") +
		" " + strings.Join(r.Resources, ",") + " " + string(*r.Scope)
}

// TestSelectorsAreShared checks when the webhook has the selectors of its plugins.
// TestWorkloads tests the rules of a plugin that checks the Pods of workloads when those are written.
func TestWorkloads(t *testing.T) {
	f := func(p registration.Plugin, resources ...string) {
		t.Helper()
		p.ChecksWorkloads = true
		p.PodTemplatePaths = workload.Paths{"rollouts.argoproj.io": ".spec.template"}
		r, err := registration.New([]registration.Plugin{p}, options(t, "{}"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rule := range r.Validating.Webhooks[0].Rules {
			for _, resource := range rule.Resources {
				got = append(got, strings.Join(rule.APIGroups, ",")+"/"+strings.Join(rule.APIVersions, ",")+"/"+resource)
			}
		}
		if !slices.Equal(got, resources) {
			t.Errorf("%s: got rules for %q, want %q", p.Name, got, resources)
		}
		if s := r.Validating.Webhooks[0].ObjectSelector; len(s.MatchLabels) > 0 {
			t.Errorf("%s: got %v, want no objectSelector: it selects Pods", p.Name, s)
		}
		if r.Mutating != nil {
			for _, rule := range r.Mutating.Webhooks[0].Rules {
				if slices.Contains(rule.Resources, "deployments") {
					t.Errorf("%s: got %v, want no workloads in the mutating configuration", p.Name, rule)
				}
			}
		}
	}
	all := []string{
		"/v1/pods", "/v1/podtemplates", "/v1/replicationcontrollers", "apps/v1/daemonsets", "apps/v1/deployments", "apps/v1/replicasets",
		"apps/v1/statefulsets", "argoproj.io/*/rollouts", "batch/v1/cronjobs", "batch/v1/jobs",
	}
	f(plugin("Both", "mv", rule("CREATE,UPDATE", "", "v1", "pods")), all...)
	f(configured(plugin("Labels", "v", rule("CREATE,UPDATE", "", "v1", "pods")), "objectSelector: {matchLabels: {app: web}}", ""), all...)
	f(plugin("Updates", "v", rule("UPDATE", "", "v1", "pods")), "/v1/pods")
	const services = "rules: [{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [services]}]"
	f(configured(plugin("Narrowed", "v", admission.Any()), services, ""), "/v1/services")
	f(plugin("Any", "v", admission.Any()), "*/*/*/*")
}

func TestSelectorsAreShared(t *testing.T) {
	f := func(want bool, criteria ...string) {
		t.Helper()
		var plugins []registration.Plugin
		for _, c := range criteria {
			plugins = append(plugins, configured(plugin("P", "v", admission.CreateUpdate("pods")), c, ""))
		}
		r, err := registration.New(plugins, new(registration.Options), nil)
		if err != nil {
			t.Fatal(err)
		}
		w := r.Validating.Webhooks[0]
		got := len(w.NamespaceSelector.MatchLabels)+len(w.ObjectSelector.MatchExpressions) > 0
		if got != want {
			t.Errorf("%q: got %v, want %v", criteria, got, want)
		}
	}
	const objects = "objectSelector: {matchExpressions: [{key: a, operator: Exists}]}"
	f(true, tenants)
	f(true, tenants, tenants)
	f(true, objects, objects)
	f(true, tenants, strings.Replace(tenants, "'yes'", `"yes"`, 1))
	f(false, tenants, "")
	f(false, "", tenants)
	f(false, tenants, strings.Replace(tenants, "yes", "no", 1))
	f(false, tenants, tenants, objects)
	f(false, "namespaceSelector: {}", tenants)
}
