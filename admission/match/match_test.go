package match_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	state "github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// namespaces maps the names of existing namespaces to their labels. The lookup
// of a name whose labels are nil fails.
type namespaces map[string]labels.Set

func (n namespaces) Labels(ctx context.Context, name string) (labels.Set, error) {
	ls, ok := n[name]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !ok:
		return nil, missing(ctx, name)
	case ls == nil:
		return nil, errors.New("no connection")
	}
	return ls, nil
}

// missing returns the error for a namespace that does not exist.
func missing(ctx context.Context, name string) error {
	empty, err := state.New(state.Options{Objects: []runtime.Object{}})
	if err == nil {
		_, err = state.Namespaces.In(empty.View(state.Namespaces.Called("get"))).GetLive(ctx, "", name)
	}
	return err
}

var cluster = namespaces{"shop": {"env": "prod", "empty": ""}, "bare": {}, "broken": nil}

// newMatcher compiles criteria that are written as YAML.
func newMatcher(t testing.TB, criteria string) *match.Matcher {
	t.Helper()
	c := new(match.Criteria)
	if err := yaml.UnmarshalStrict([]byte(criteria), c); err != nil {
		t.Fatalf("%s: %v", criteria, err)
	}
	m, err := match.New(c, field.NewPath("match"))
	if err != nil {
		t.Fatalf("%s: %v", criteria, err)
	}
	return m
}

// body returns the review of a request that is written as YAML.
func body(t *testing.T, request string) []byte {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(request))
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",%s}`, content[1:])
}

// matches matches a review after edits to it, nil for none.
func matches(t *testing.T, m *match.Matcher, body []byte, edit func(*codec.Object)) (bool, error) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(&review.Object)
	}
	attributes := admission.AttributesOf(review)
	matched, err := m.Matches(t.Context(), review, &attributes, cluster)
	if err := review.Err(); err != nil {
		t.Fatal(err)
	}
	return matched, err
}

func TestMatchesNamespace(t *testing.T) {
	const (
		prod     = "namespaceSelector: {matchLabels: {env: prod}}"
		notProd  = "namespaceSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}"
		pods     = "resource: {group: '', version: v1, resource: pods}\n"
		nodes    = "resource: {group: '', version: v1, resource: nodes}\n"
		itself   = "resource: {group: '', version: v1, resource: namespaces}\n"
		likewise = "resource: {group: example.com, version: v1, resource: namespaces}\n"
	)
	f := func(criteria, request string, want bool) {
		t.Helper()
		if got, err := matches(t, newMatcher(t, criteria), body(t, request), nil); got != want || err != nil {
			t.Errorf("%s: %s: got %v, %v, want %v", criteria, request, got, err, want)
		}
	}
	f(prod, pods+"operation: CREATE\nnamespace: shop", true)
	f(prod, pods+"operation: CREATE\nnamespace: bare", false)
	f(notProd, pods+"operation: CREATE\nnamespace: shop", false)
	f(notProd, pods+"operation: CREATE\nnamespace: bare", true)
	f("namespaceSelector: {matchLabels: {empty: ''}}", pods+"operation: DELETE\nnamespace: shop", true)
	f("namespaceSelector: {matchLabels: {empty: ''}}", pods+"operation: DELETE\nnamespace: bare", false)

	// Empty selectors need no lookup.
	f("{}", pods+"operation: CREATE\nnamespace: missing", true)
	f("namespaceSelector: {}", pods+"operation: CREATE\nnamespace: broken", true)

	// Cluster-scoped objects.
	f(prod, nodes+"operation: CREATE", true)
	f(notProd, nodes+"operation: CREATE", true)

	// Namespaces: the API server sets the namespace of the request to their own
	// name.
	f(prod, itself+"operation: CREATE\nname: new\nnamespace: new\nobject: {metadata: {labels: {env: prod}}}", true)
	f(prod, itself+"operation: CREATE\nname: new\nnamespace: new\nobject: {metadata: {labels: {env: test}}}", false)
	f(prod, itself+"operation: CREATE\nname: new\nnamespace: new\nobject: {metadata: {}}", false)
	f(notProd, itself+"operation: CREATE\nobject: {metadata: {}}", true)
	f(prod, itself+"operation: UPDATE\nname: shop\nnamespace: shop\n"+
		"object: {metadata: {labels: {env: test}}}\noldObject: {metadata: {labels: {env: prod}}}", false)
	f(prod, itself+"operation: UPDATE\nname: bare\nnamespace: bare\nobject: {metadata: {labels: {env: prod}}}\noldObject: {metadata: {}}",
		true)
	f(prod, itself+"operation: DELETE\nname: shop\nnamespace: shop\noldObject: {metadata: {labels: {env: test}}}", true)
	f(prod, itself+"operation: UPDATE\nsubResource: finalize\nname: shop\nnamespace: shop\nobject: {metadata: {labels: {env: test}}}",
		true)
	f(prod, likewise+"operation: CREATE\nobject: {metadata: {labels: {env: prod}}}", true)
}

// TestMatchesNamespaceErrors tests lookups of namespaces that fail.
func TestMatchesNamespaceErrors(t *testing.T) {
	const (
		prod  = "namespaceSelector: {matchLabels: {env: prod}}\n"
		pod   = "operation: CREATE\nresource: {group: '', version: v1, resource: pods}\n"
		space = "resource: {group: '', version: v1, resource: namespaces}\n"

		failure = "Internal error occurred: no connection" // of the lookup, not of the review
	)
	f := func(criteria, request string, code int32, message string) {
		t.Helper()
		got, err := matches(t, newMatcher(t, criteria), body(t, request), nil)
		if code == 0 {
			if got || err != nil {
				t.Errorf("%s: %s: got %v, %v, want false", criteria, request, got, err)
			}
			return
		}
		status, ok := errors.AsType[*apierrors.StatusError](err)
		_, refused := errors.AsType[*admission.RefusalError](err)
		if got || !ok || status.Status().Code != code || err.Error() != message || refused != (message != failure) {
			t.Errorf("%s: %s: got %v, %v, refused %v, want code %d: %s", criteria, request, got, err, refused, code, message)
		}
	}
	f(prod, pod+"namespace: missing", http.StatusNotFound, `namespaces "missing" not found`)
	f(prod, pod+"namespace: broken", http.StatusInternalServerError, failure)
	f(prod, pod+"namespace: a/b", http.StatusInternalServerError,
		`Internal error occurred: invalid resource name "a/b": [may not contain '/']`)
	f(prod, space+"operation: DELETE\nnamespace: missing", http.StatusNotFound, `namespaces "missing" not found`)
	f(prod, space+"operation: DELETE", http.StatusInternalServerError,
		"Internal error occurred: resource name may not be empty")
	f(prod, space+"operation: CREATE\nnamespace: shop", http.StatusInternalServerError,
		"Internal error occurred: object does not implement the Object interfaces")

	// The error does not matter if the rest does not match.
	f(prod+"objectSelector: {matchLabels: {a: b}}", pod+"namespace: missing\nobject: {metadata: {}}", 0, "")
	f(prod+"rules: [{operations: [DELETE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]", pod+"namespace: missing", 0, "")
}

// TestMatchesInTime looks up a namespace after the context has ended.
func TestMatchesInTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(corpus.MustRead("pods-create-v1-1.json")); err != nil {
		t.Fatal(err)
	}
	attributes := admission.AttributesOf(review)
	got, err := newMatcher(t, "namespaceSelector: {matchLabels: {env: prod}}").Matches(ctx, review, &attributes, cluster)
	if want := "Internal error occurred: context canceled"; got || err == nil || err.Error() != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
}

// TestMatchesFaults tests invalid JSON in the parts that a Matcher reads.
func TestMatchesFaults(t *testing.T) {
	m := newMatcher(t, "objectSelector: {matchLabels: {tier: web}}")
	f := func(object string) {
		t.Helper()
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(fmt.Appendf(nil,
			`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":%s}}`, object)); err != nil {
			t.Fatal(err)
		}
		attributes := admission.AttributesOf(review)
		got, err := m.Matches(t.Context(), review, &attributes, cluster)
		if got || err != nil || review.Err() == nil {
			t.Errorf("%s: got %v, %v, fault %v, want a fault of the review", object, got, err, review.Err())
		}
	}
	f(`{"metadata":{"labels":{"tier" "web"}}}`)
	f(`{"metadata":{"labels":{"tier":"w\x"}}}`)
	f(`{"metadata":{"labels":{"a":"b" "tier":"web"}}}`)
	f(`{"metadata":{"labels":{"tier":"` + "\xff" + `"}}}`)
	f(`{"metadata" {}}`)
}

// TestMatchesConcurrently uses one Matcher from many goroutines.
func TestMatchesConcurrently(t *testing.T) {
	m := newMatcher(t, "objectSelector: {matchLabels: {tier: web}}")
	var group sync.WaitGroup
	for i := range 8 {
		tier := [...]string{"web", "db"}[i%2]
		b := body(t, "operation: CREATE\nobject: {metadata: {labels: {tier: "+tier+"}}}")
		group.Go(func() {
			for range 1000 {
				if got, err := matches(t, m, b, nil); got != (tier == "web") || err != nil {
					t.Errorf("%s: got %v, %v", tier, got, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestMatchesObject(t *testing.T) {
	const (
		is     = "objectSelector: {matchLabels: {tier: web}}"
		isNot  = "objectSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [web]}]}"
		has    = "objectSelector: {matchExpressions: [{key: tier, operator: Exists}]}"
		hasNot = "objectSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}"
		both   = "objectSelector: {matchLabels: {tier: web}, matchExpressions: [{key: a/b, operator: In, values: [x, 'y']}]}"
		blank  = "objectSelector: {matchLabels: {tier: ''}}"
		zero   = "objectSelector: {matchExpressions: [{key: '0', operator: Exists}]}"
	)
	in := func(operation, object, oldObject string, want ...string) {
		t.Helper()
		b := body(t, "operation: "+operation+"\nresource: {group: '', version: v1, resource: pods}\n"+
			"object: "+object+"\noldObject: "+oldObject)
		for _, criteria := range []string{is, isNot, has, hasNot, both, blank, zero} {
			wanted := slices.Contains(want, criteria)
			if got, err := matches(t, newMatcher(t, criteria), b, nil); got != wanted || err != nil {
				t.Errorf("%s: %s, object %s, oldObject %s: got %v, %v, want %v", criteria, operation, object, oldObject, got, err, wanted)
			}
		}
	}
	f := func(object, oldObject string, want ...string) {
		t.Helper()
		in("UPDATE", object, oldObject, want...) // the objects in the review count, not those that the operation normally has
		in("CREATE", object, oldObject, want...)
		in("CONNECT", object, oldObject, want...)
		in("DELETE", object, oldObject, want...)
	}
	f("{metadata: {labels: {tier: web}}}", "null", is, has)
	f("{metadata: {labels: {tier: db}}}", "null", isNot, has)
	f("{metadata: {labels: {tier: web, a/b: 'y'}}}", "null", is, has, both)
	f("{metadata: {labels: {tier: web, a/b: z}}}", "null", is, has)
	f("{metadata: {labels: {tier: ''}}}", "null", isNot, has, blank)
	f("{metadata: {labels: {\"t\\u0069er\": \"w\\u0065b\"}}}", "null", is, has)
	f("{metadata: {labels: {Tier: web}}}", "null", isNot, hasNot)

	// One of the two suffices.
	f("null", "{metadata: {labels: {tier: web}}}", is, has)
	f("{metadata: {labels: {tier: db}}}", "{metadata: {labels: {tier: web}}}", is, isNot, has)
	f("{metadata: {}}", "{metadata: {labels: {tier: web}}}", is, isNot, has, hasNot)

	// Metadata without labels, and no metadata.
	f("{metadata: {}}", "null", isNot, hasNot)
	f("{metadata: {labels: {}}}", "null", isNot, hasNot)
	f("{metadata: {labels: null}}", "null", isNot, hasNot)
	f("{kind: PodExecOptions, stdin: true}", "null")
	f("{}", "{}")
	f("null", "null")

	// Only a patch can give a custom resource such metadata.
	f("{metadata: {labels: {tier: null}}}", "null", isNot, has, blank)
	f("{metadata: {labels: {tier: web, other: null}}}", "null", is, has)
	f("{metadata: {labels: {tier: web, other: 1}}}", "null", isNot, hasNot)
	f("{metadata: {labels: {other: {}, tier: web}}}", "null", isNot, hasNot)
	f("{metadata: {labels: [web]}}", "null", isNot, hasNot)
	f("{metadata: {labels: tier}}", "null", isNot, hasNot)
	f("{metadata: [tier]}", "null", isNot, hasNot)
	f("{metadata: null}", "null", isNot, hasNot)
}

// TestMatchesEdited tests objects that earlier plugins changed.
func TestMatchesEdited(t *testing.T) {
	f := func(criteria, metadata string, edit func(*codec.Object), want bool) {
		t.Helper()
		b := body(t, "operation: CREATE\nresource: {group: '', version: v1, resource: namespaces}\nobject: {metadata: "+metadata+"}")
		if got, err := matches(t, newMatcher(t, criteria), b, edit); got != want || err != nil {
			t.Errorf("%s: %s: got %v, %v, want %v", criteria, metadata, got, err, want)
		}
	}
	for _, selector := range []string{"objectSelector", "namespaceSelector"} {
		is, hasNot := selector+": {matchLabels: {tier: web}}", selector+": {matchExpressions: [{key: tier, operator: DoesNotExist}]}"
		set := func(o *codec.Object) { o.SetString("web", "metadata", "labels", "tier") }
		f(is, "{labels: {tier: db}}", set, true)
		f(is, "{labels: {}}", set, true)
		f(is, "{}", set, true)
		f(is, "{labels: {tier: web}}", func(o *codec.Object) { o.Remove("metadata", "labels", "tier") }, false)
		f(hasNot, "{labels: {tier: web}}", func(o *codec.Object) { o.Remove("metadata", "labels", "tier") }, true)
		f(hasNot, "{labels: {tier: web}}", func(o *codec.Object) { o.Remove("metadata", "labels") }, true)
		f(hasNot, "{labels: {tier: web}}", func(o *codec.Object) { o.Set(`{"a":"b"}`, "metadata", "labels") }, true)
	}
}

func TestMatchesRules(t *testing.T) {
	const (
		all        = "operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']"
		pods       = "resource: {group: '', version: v1, resource: pods}\nnamespace: shop\n"
		nodes      = "resource: {group: '', version: v1, resource: nodes}\n"
		space      = "resource: {group: '', version: v1, resource: namespaces}\nnamespace: shop\n"
		otherSpace = "resource: {group: example.com, version: v1, resource: namespaces}\nnamespace: shop\n"
		deployment = "resource: {group: apps, version: v1, resource: deployments}\nnamespace: shop\n"
		beta       = "requestResource: {group: apps, version: v1beta1, resource: deployments}\n"
	)
	f := func(rules, request string, want bool) {
		t.Helper()
		if got, err := matches(t, newMatcher(t, rules), body(t, request), nil); got != want || err != nil {
			t.Errorf("%s: %s: got %v, %v, want %v", rules, request, got, err, want)
		}
	}
	f("{}", pods+"operation: CREATE", true)
	f("rules: [{"+all+"}]", pods+"operation: CONNECT\nsubResource: exec", true)

	create := "rules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods, pods/exec, '*/scale']}]"
	f(create, pods+"operation: CREATE", true)
	f(create, pods+"operation: UPDATE\nsubResource: exec", true)
	f(create, pods+"operation: UPDATE\nsubResource: scale", true)
	f(create, pods+"operation: UPDATE\nsubResource: status", false)
	f(create, pods+"operation: DELETE", false)
	f(create, deployment+"operation: CREATE", false)

	// One of several rules, and the version to which the object was converted.
	two := "rules: [{operations: [DELETE], apiGroups: [''], apiVersions: [v1], resources: [pods]}, " +
		"{operations: ['*'], apiGroups: [apps], apiVersions: [v1], resources: ['*']}]"
	f(two, pods+"operation: DELETE", true)
	f(two, pods+"operation: CREATE", false)
	f(two, deployment+"operation: CREATE", true)
	f(two, deployment+beta+"operation: CREATE", true)

	namespaced, clusterScoped := "rules: [{"+all+", scope: Namespaced}]", "rules: [{"+all+", scope: Cluster}]"
	scopes := "rules: [{" + all + ", scope: '*'}]"
	for _, request := range []string{pods + "operation: CREATE", otherSpace + "operation: CREATE"} {
		f(namespaced, request, true)
		f(clusterScoped, request, false)
		f(scopes, request, true)
	}
	for _, request := range []string{
		nodes + "operation: CREATE", space + "operation: DELETE", space + "operation: UPDATE\nsubResource: finalize",
		"operation: CREATE\nresource: {group: '', version: v1, resource: namespaces}",
	} {
		f(namespaced, request, false)
		f(clusterScoped, request, true)
		f(scopes, request, true)
	}
}

func TestNeedsNamespaces(t *testing.T) {
	f := func(criteria string, want bool) {
		t.Helper()
		if got := newMatcher(t, criteria).NeedsNamespaces(); got != want {
			t.Errorf("%s: got %v, want %v", criteria, got, want)
		}
	}
	f("{}", false)
	f("namespaceSelector: {}", false)
	f("objectSelector: {matchLabels: {a: b}}", false)
	f("namespaceSelector: {matchLabels: {a: b}}", true)
}

// TestRecordings shows that metadata tells objects from the options of CONNECT
// requests.
func TestRecordings(t *testing.T) {
	m := newMatcher(t, "objectSelector: {matchExpressions: [{key: no/such, operator: DoesNotExist}]}")
	for _, name := range corpus.Names() {
		review := codec.Acquire()
		if err := review.Decode(corpus.MustRead(name)); err != nil {
			t.Fatal(err)
		}
		attributes := admission.AttributesOf(review)
		got, err := m.Matches(t.Context(), review, &attributes, nil)
		if want := attributes.Operation != codec.Connect; got != want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
		review.Release()
	}
}
