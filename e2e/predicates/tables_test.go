package predicates

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

// A table counts its cases.
type table struct {
	*testing.T
	*world
	row tally.Row
}

func newTable(t *testing.T, predicate string) *table {
	table := &table{t, newWorld(t), tally.Row{Plugin: predicate, Test: "tables of predicates"}}
	t.Cleanup(func() { mustWrite(t, table.row) })
	return table
}

// f compares both. The API server's result must be that of its own test.
func (t *table) f(about string, c *match.Criteria, r *request, want bool) {
	t.Helper()
	t.row.Cases++
	upstream, different := t.compare(t.T, c, r)
	if got := upstream[t.row.Plugin]; got.Matches != want || got.Status != nil {
		t.Errorf("%s: got %v from the API server, want %v as in its test", about, got, want)
	}
	if len(different) > 0 {
		t.row.Different = append(t.row.Different, about)
	}
}

// in makes requests in a namespace, none without one, for a resource with a subresource.
func in(group, version, resource, subresource string, operation admission.Operation) *request {
	return &request{operation: operation, namespace: "ns", name: "name",
		kind:     schema.GroupVersionKind{Group: group, Version: version, Kind: "k" + resource},
		resource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, subresource: subresource}
}

func none(group, version, resource, subresource string) *request {
	r := in(group, version, resource, subresource, admission.Create)
	r.namespace = ""
	return r
}

// TestRulesTables has the cases of rules_test.go. That tests parts of rules; here, the other parts
// match.
func TestRulesTables(t *testing.T) {
	table := newTable(t, byRules)
	f := func(about string, change func(*admissionregistrationv1.RuleWithOperations), matches, others []*request) {
		t.Helper()
		rule := anyRule()
		change(&rule)
		for _, r := range matches {
			table.f(about, &match.Criteria{Rules: []admissionregistrationv1.RuleWithOperations{rule}}, r, true)
		}
		for _, r := range others {
			table.f(about, &match.Criteria{Rules: []admissionregistrationv1.RuleWithOperations{rule}}, r, false)
		}
	}
	type requests []*request
	const create, update, remove, connect = admission.Create, admission.Update, admission.Delete, admission.Connect
	groups := func(groups ...string) func(*admissionregistrationv1.RuleWithOperations) {
		return func(r *admissionregistrationv1.RuleWithOperations) { r.APIGroups = groups }
	}
	f("group: wildcard", groups("*"), requests{in("g", "v", "r", "", create)}, nil)
	f("group: exact", groups("g1", "g2"),
		requests{in("g1", "v", "r", "", create), in("g2", "v2", "r3", "", create)},
		requests{in("g3", "v", "r", "", create), in("g4", "v", "r", "", create)})

	versions := func(versions ...string) func(*admissionregistrationv1.RuleWithOperations) {
		return func(r *admissionregistrationv1.RuleWithOperations) { r.APIVersions = versions }
	}
	f("version: wildcard", versions("*"), requests{in("g", "v", "r", "", create)}, nil)
	f("version: exact", versions("v1", "v2"),
		requests{in("g1", "v1", "r", "", create), in("g2", "v2", "r", "", create)},
		requests{in("g1", "v3", "r", "", create), in("g2", "v4", "r", "", create)})

	f4 := func(about string, operations []admissionregistrationv1.OperationType, matches, others []admission.Operation) {
		t.Helper()
		all := func(operations []admission.Operation) (requests []*request) {
			for _, operation := range operations {
				requests = append(requests, in("g", "v", "r", "", operation))
			}
			return requests
		}
		f("operation: "+about, func(r *admissionregistrationv1.RuleWithOperations) { r.Operations = operations }, all(matches),
			all(others))
	}
	type wanted []admissionregistrationv1.OperationType
	type operations []admission.Operation
	f4("wildcard", wanted{"*"}, operations{create, update, remove, connect}, nil)
	f4("create", wanted{"CREATE"}, operations{create}, operations{update, remove, connect})
	f4("update", wanted{"UPDATE"}, operations{update}, operations{create, remove, connect})
	f4("delete", wanted{"DELETE"}, operations{remove}, operations{create, update, connect})
	f4("connect", wanted{"CONNECT"}, operations{connect}, operations{create, update, remove})
	f4("multiple", wanted{"UPDATE", "DELETE"}, operations{update, remove}, operations{create, connect})

	resources := func(resources ...string) func(*admissionregistrationv1.RuleWithOperations) {
		return func(r *admissionregistrationv1.RuleWithOperations) { r.Resources = resources }
	}
	f("resource: no subresources", resources("*"),
		requests{in("g", "v", "r", "", create), in("2", "v", "r2", "", create)},
		requests{in("g", "v", "r", "exec", create), in("2", "v", "r2", "proxy", create)})
	f("resource: r & subresources", resources("r/*"),
		requests{in("g", "v", "r", "", create), in("g", "v", "r", "exec", create)},
		requests{in("2", "v", "r2", "", create), in("2", "v", "r2", "proxy", create)})
	f("resource: r & subresources or r2", resources("r/*", "r2"),
		requests{in("g", "v", "r", "", create), in("g", "v", "r", "exec", create), in("2", "v", "r2", "", create)},
		requests{in("2", "v", "r2", "proxy", create)})
	f("resource: proxy or exec", resources("*/proxy", "*/exec"),
		requests{in("g", "v", "r", "exec", create), in("2", "v", "r2", "proxy", create), in("2", "v", "r3", "proxy", create)},
		requests{in("g", "v", "r", "", create), in("2", "v", "r2", "", create), in("2", "v", "r4", "scale", create)})

	scope := func(scope admissionregistrationv1.ScopeType) func(*admissionregistrationv1.RuleWithOperations) {
		return func(r *admissionregistrationv1.RuleWithOperations) { r.Scope = &scope }
	}
	cluster := requests{
		none("g", "v", "r", ""), none("g", "v", "r", "exec"), none("", "v1", "namespaces", ""), none("", "v1", "namespaces", "finalize"),
		in("", "v1", "namespaces", "", create), in("", "v1", "namespaces", "finalize", create),
	}
	namespaced := requests{in("g", "v", "r", "", create), in("g", "v", "r", "exec", create)}
	f("scope: cluster scope", scope("Cluster"), cluster, namespaced)
	f("scope: namespace scope", scope("Namespaced"), namespaced, cluster)
	f("scope: all scopes", scope("*"), append(cluster, namespaced...), nil)
}

// TestNamespaceTables has the cases of namespace/matcher_test.go. That compares labels; here,
// selectors distinguish them.
func TestNamespaceTables(t *testing.T) {
	table := newTable(t, byNamespaceSelector)
	object := func() runtime.Object { return newNamespace("2", map[string]string{"runlevel": "2"}) }
	f := func(about, namespace, name, resource, subresource string, operation admission.Operation, object runtime.Object,
		runlevel string) {
		t.Helper()
		r := in("", "", resource, subresource, operation)
		r.namespace, r.name, r.object = namespace, name, object
		for _, level := range []string{"1", "2"} {
			c := &match.Criteria{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"runlevel": level}}}
			table.f(about, c, r, level == runlevel)
		}
	}
	f("request is for creating namespace, the labels should be from the object itself",
		"", "2", "namespaces", "", admission.Create, object(), "2")
	f("request is for updating namespace, the labels should be from the new object",
		"2", "2", "namespaces", "", admission.Update, object(), "2")
	f("request is for deleting namespace, the labels should be from the cache",
		"1", "1", "namespaces", "", admission.Delete, object(), "1")
	f("request is for namespace/finalizer", "1", "mock-name", "namespaces", "finalizers", admission.Create, nil, "1")
	f("request is for pod", "1", "mock-name", "pods", "", admission.Create, nil, "1")

	r := none("", "v1", "nodes", "")
	table.f("not exempt cluster scoped resource", &match.Criteria{NamespaceSelector: &metav1.LabelSelector{}}, r, true)
	c := &match.Criteria{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"runlevel": "1"}}}
	table.f("not exempt cluster scoped resource, with a selector", c, r, true)
}

// TestObjectTables has the cases of object/matcher_test.go.
func TestObjectTables(t *testing.T) {
	table := newTable(t, byObjectSelector)
	node := func(level string) runtime.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"runlevel": level}}}
	}
	excluder := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "runlevel", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"1"}},
	}}
	f := func(about string, selector *metav1.LabelSelector, operation admission.Operation, object, oldObject runtime.Object, want bool) {
		t.Helper()
		r := &request{operation: operation, name: "name", object: object, oldObject: oldObject}
		table.f(about, &match.Criteria{ObjectSelector: selector}, r, want)
	}
	all := new(metav1.LabelSelector)
	f("empty object selector matches everything", all, admission.Create, nil, nil, true)
	f("matches new object", excluder, admission.Create, node("2"), nil, true)
	f("matches old object", excluder, admission.Delete, nil, node("2"), true)
	f("does not match new object", excluder, admission.Create, node("1"), nil, false)
	f("does not match old object", excluder, admission.Create, nil, node("1"), false)
	f("does not match object that does not implement Object interface", excluder, admission.Create, &corev1.NodeProxyOptions{}, nil, false)
	f("empty selector matches everything, including object that does not implement Object interface",
		all, admission.Create, &corev1.NodeProxyOptions{}, nil, true)
}
