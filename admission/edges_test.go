package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// TestPhases runs plugins that have only one of the two functions in both phases.
func TestPhases(t *testing.T) {
	var ran []string
	note := func(name string) act {
		return func(context.Context, *codec.Review) admission.Result {
			ran = append(ran, name)
			return admission.Allowed()
		}
	}
	chain := mustChain(t, mutating("M", note("M")), validating("V", note("V")))
	for phase, want := range map[admission.Phase]string{admission.Mutate: "M", admission.Validate: "V"} {
		ran = nil
		if _, outcome, err := run(t, chain, phase, podCreate); err != nil || outcome != admission.OutcomeAllowed ||
			!slices.Equal(ran, []string{want}) {
			t.Errorf("%s: got %v, %v, ran %q, want %q", phase, outcome, err, ran, want)
		}
	}
	if got := admission.Mutate.String() + " " + admission.Validate.String(); got != "mutate validate" {
		t.Errorf("got %s", got)
	}
	var names []string
	for _, outcome := range admission.Outcomes() {
		names = append(names, outcome.String())
	}
	if got := strings.Join(names, " "); got != "allowed patched denied warned audited errored panicked" {
		t.Errorf("got outcomes %s", got)
	}
}

// TestReinvocationDecides tests a plugin that denies or fails when it is called
// again.
func TestReinvocationDecides(t *testing.T) {
	f := func(second admission.Result, want admission.Outcome, failed bool) {
		t.Helper()
		calls := 0
		settings := map[string]admission.Settings{"Again": {ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy}}
		chain := mustSet(t, settings, mutating("Again", func(context.Context, *codec.Review) admission.Result {
			if calls++; calls == 2 {
				return second
			}
			return admission.Allowed()
		}), mutating("Changes", label("x")))
		review, outcome, err := run(t, chain, admission.Mutate, podCreate)
		if _, is := errors.AsType[*admission.FailureError](err); outcome != want || is != failed || calls != 2 ||
			review.Response.Allowed || len(review.Response.Patch) > 0 {
			t.Errorf("got %v, %v after %d calls, allowed %v, want %v", outcome, err, calls, review.Response.Allowed, want)
		}
	}
	f(admission.Denied(errors.New("no")), admission.OutcomeDenied, false)
	f(admission.Errored(errors.New("no idea")), admission.OutcomeErrored, true)
}

// TestIgnoredKeepsFormerChanges ignores the failure of a plugin after another one
// changed the object.
func TestIgnoredKeepsFormerChanges(t *testing.T) {
	fail := func(ctx context.Context, review *codec.Review) admission.Result {
		label("half-done")(ctx, review)
		return admission.Errored(errors.New("no idea"))
	}
	chain := mustSet(t, map[string]admission.Settings{"Bad": {FailurePolicy: admissionregistrationv1.Ignore}},
		mutating("First", label("x")), mutating("Bad", fail))
	review, outcome, err := run(t, chain, admission.Mutate, podCreate)
	want := `[{"op":"add","path":"/metadata/labels/x","value":"1"}]`
	if got := string(review.Response.Patch); err != nil || outcome != admission.OutcomePatched || got != want {
		t.Errorf("got %v, %v, %s, want %s", outcome, err, got, want)
	}
}

// TestPluginsMax makes a chain with the maximum number of plugins, and one with
// one more.
func TestPluginsMax(t *testing.T) {
	const most = 128
	for _, n := range []int{most - 1, most, most + 1} {
		var plugins []admission.Plugin
		enabled := make(map[string]admission.Enabled)
		for i := range n {
			plugins = append(plugins, mutating(fmt.Sprintf("P%d", i), allow))
			enabled[plugins[i].Name] = admission.Enabled{}
		}
		chain, err := admission.NewChain(plugins, enabled, nil, nil)
		if n > most {
			if err == nil || err.Error() != "got 129 plugins, want at most 128" {
				t.Errorf("%d: got %v", n, err)
			}
			continue
		}
		if err != nil || len(chain.Plugins()) != n || chain.Plugins()[n-1] != &plugins[n-1] {
			t.Fatalf("%d: got %d plugins, %v", n, len(chain.Plugins()), err)
		}
		if _, outcome, err := run(t, chain, admission.Mutate, podCreate); err != nil || outcome != admission.OutcomeAllowed {
			t.Errorf("%d: got %v, %v", n, outcome, err)
		}
	}
}

// TestLiars tests handlers that do more than their plugins declare.
func TestLiars(t *testing.T) {
	for _, liar := range []admission.Plugin{mutating("Liar", allow), validating("Liar", allow)} {
		liar.Mutates, liar.Validates = false, false
		if _, err := admission.NewChain([]admission.Plugin{liar}, map[string]admission.Enabled{"Liar": {}}, nil, nil); err == nil {
			t.Error("got no error")
		}
	}
}

// TestForbidden tests the name in the message of a denial.
func TestForbidden(t *testing.T) {
	f := func(request, metadata, want string) {
		t.Helper()
		body := string(admissiontest.Body(codec.Create, "v1/pods", `{"metadata":`+metadata+`}`))
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode([]byte(strings.Replace(body, `"name":"name"`, `"name":"`+request+`"`, 1))); err != nil {
			t.Fatal(err)
		}
		err := admission.Forbidden(review, errors.New("no"))
		if want := `pods "` + want + `" is forbidden: no`; err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if again := admission.Forbidden(review, err); !errors.Is(again, err) {
			t.Errorf("got %v, want what was forbidden already", again)
		}
	}
	f("a", `{"name":"b","generateName":"c-"}`, "a")
	f("", `{"name":"b","generateName":"c-"}`, "b")
	f("", `{"name":"","generateName":"c-"}`, "c-")
	f("", `{}`, "Unknown")

	got := admission.Denied(&apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Message: "no"}}).Denial
	if got.Code != 403 || got.Message != "no" {
		t.Errorf("without details: got %+v", got)
	}
	got = admission.Denied(apierrors.NewConflict(schema.GroupResource{Group: "g", Resource: "r"}, "n", errors.New("no"))).Denial
	if got.Code != 409 || got.Reason != "Conflict" || got.Details.Name != "n" || got.Details.Group != "g" || got.Details.Kind != "r" {
		t.Errorf("got %+v", got)
	}
}

// TestScopes tests rules for namespaced and for cluster-scoped resources.
func TestScopes(t *testing.T) {
	pods := codec.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes := codec.GroupVersionResource{Version: "v1", Resource: "nodes"}
	namespaces := codec.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	f := func(resource codec.GroupVersionResource, namespace string, clusterScoped bool) {
		t.Helper()
		a := admission.Attributes{Operation: codec.Create, Resource: resource, Namespace: namespace}
		for scope, want := range map[admissionregistrationv1.ScopeType]bool{
			"": true, admissionregistrationv1.AllScopes: true,
			admissionregistrationv1.ClusterScope: clusterScoped, admissionregistrationv1.NamespacedScope: !clusterScoped,
		} {
			rule := admission.Any()
			if rule.Scope = scope; rule.Matches(&a) != want {
				t.Errorf("%v in %q: scope %q: got %v", resource, namespace, scope, !want)
			}
			if with := rule.WithOperations(); *with.Scope != scope && (scope != "" || *with.Scope != admissionregistrationv1.AllScopes) {
				t.Errorf("scope %q became %q", scope, *with.Scope)
			}
		}
	}
	f(pods, "shop", false)
	f(nodes, "", true)
	f(namespaces, "shop", true)
	f(codec.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "namespaces"}, "shop", false)
}

// TestLeftOutIsNotObserved tests that a plugin is not observed if its selector
// does not match the review.
func TestLeftOutIsNotObserved(t *testing.T) {
	chain := mustSet(t, map[string]admission.Settings{"Out": {Selector: says(false, nil)}}, mutating("Out", label("x")),
		mutating("In", allow))
	var observed []int
	chain.Observe = func(run admission.Run) { observed = append(observed, run.Plugin) }
	if _, outcome, err := run(t, chain, admission.Mutate, podCreate); err != nil || outcome != admission.OutcomeAllowed ||
		!slices.Equal(observed, []int{1}) {
		t.Errorf("got %v, %v, observed %v, want the second plugin alone", outcome, err, observed)
	}
}

func TestPanicError(t *testing.T) {
	if got := (&admission.PanicError{Value: "oh"}).Error(); got != "panic: oh" {
		t.Errorf("got %s", got)
	}
}

// TestMissingParents tests plugins that set fields of objects that the review does
// not have. The patch creates these objects.
func TestMissingParents(t *testing.T) {
	f := func(edit func(o *codec.Object), want string) {
		t.Helper()
		chain := mustChain(t, mutating("M", func(_ context.Context, review *codec.Review) admission.Result {
			edit(&review.Object)
			return admission.Allowed()
		}))
		review, outcome, err := run(t, chain, admission.Mutate, podCreate)
		if err != nil || outcome != admission.OutcomePatched || !review.Response.Allowed || string(review.Response.Patch) != want {
			t.Errorf("got %v, %v, allowed %v, patch %s, want %s", outcome, err, review.Response.Allowed, review.Response.Patch, want)
		}
	}
	type O = *codec.Object
	f(func(o O) { o.SetString("x", "new", "labels", "team") }, `[{"op":"add","path":"/new","value":{"labels":{"team":"x"}}}]`)
	f(func(o O) { o.SetInt(1, "spec", "new", "id") }, `[{"op":"add","path":"/spec/new","value":{"id":1}}]`)
	f(func(o O) { o.Append("1", "new", "list") }, `[{"op":"add","path":"/new","value":{"list":[1]}}]`)
	f(func(o O) { o.Get("spec").SetBool(true, "new", "on") }, `[{"op":"add","path":"/spec/new","value":{"on":true}}]`)
	f(func(o O) { o.Get("spec", "containers", "0").Set("{}", "new", "x") },
		`[{"op":"add","path":"/spec/containers/0/new","value":{"x":{}}}]`)
}
