package admission_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// act is what a test plugin does to a review.
type act func(ctx context.Context, review *codec.Review) admission.Result

func mutating(name string, do act) admission.Plugin {
	return admission.Plugin{
		Name: name, Rules: []admission.Rule{admission.Any()}, Mutates: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Admit: do}, nil },
	}
}

func validating(name string, do act) admission.Plugin {
	return admission.Plugin{
		Name: name, Rules: []admission.Rule{admission.Any()}, Validates: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: do}, nil },
	}
}

func allow(context.Context, *codec.Review) admission.Result { return admission.Allowed() }

func label(key string) act {
	return func(_ context.Context, review *codec.Review) admission.Result {
		review.Object.SetString("1", "metadata", "labels", key)
		return admission.Allowed()
	}
}

func mustChain(t *testing.T, plugins ...admission.Plugin) *admission.Chain {
	t.Helper()
	return mustSet(t, nil, plugins...)
}

// mustSet returns the chain of the plugins, some of which have settings.
func mustSet(t *testing.T, settings map[string]admission.Settings, plugins ...admission.Plugin) *admission.Chain {
	t.Helper()
	enabled := make(map[string]admission.Enabled)
	for _, plugin := range plugins {
		enabled[plugin.Name] = admission.Enabled{Settings: settings[plugin.Name]}
	}
	chain, err := admission.NewChain(plugins, enabled, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// run reviews a recording and returns the review, which is released when the
// test ends.
func run(t *testing.T, chain *admission.Chain, phase admission.Phase, recording string) (*codec.Review, admission.Outcome, error) {
	t.Helper()
	review := decode(t, recording)
	outcome, err := chain.Review(context.Background(), review, phase)
	return review, outcome, err
}

func decode(t *testing.T, recording string) *codec.Review {
	t.Helper()
	review := codec.Acquire()
	t.Cleanup(review.Release)
	if err := review.Decode(corpus.MustRead(recording)); err != nil {
		t.Fatal(err)
	}
	return review
}

const (
	podCreate  = "pods-create-v1-1.json"
	podDelete  = "pods-delete-v1-1.json"
	podConnect = "pods-exec-connect-v1-1.json"
)

func TestChainSeesFormerChanges(t *testing.T) {
	var seen string
	chain := mustChain(t,
		mutating("First", label("a/b~c")),
		mutating("Second", func(_ context.Context, review *codec.Review) admission.Result {
			seen = review.Object.Get("metadata", "labels", "a/b~c").String()
			return admission.Allowed()
		}),
	)
	review, outcome, err := run(t, chain, admission.Mutate, podCreate)
	if err != nil || outcome != admission.OutcomePatched || !review.Response.Allowed {
		t.Fatalf("got %v, %v, want patched", outcome, err)
	}
	if seen != "1" {
		t.Errorf("the second plugin read %q, want what the first wrote", seen)
	}
	want := `[{"op":"add","path":"/metadata/labels/a~1b~0c","value":"1"}]`
	if got := string(review.Response.Patch); got != want {
		t.Errorf("got patch %s, want %s", got, want)
	}
}

func TestChainChangesThatCancelOut(t *testing.T) {
	chain := mustChain(t,
		mutating("First", label("x")),
		mutating("Second", func(_ context.Context, review *codec.Review) admission.Result {
			review.Object.Remove("metadata", "labels", "x")
			return admission.Allowed()
		}),
	)
	review, outcome, err := run(t, chain, admission.Mutate, podCreate)
	if err != nil || outcome != admission.OutcomeAllowed || len(review.Response.Patch) > 0 {
		t.Errorf("got %v, %v, patch %s, want allowed without one", outcome, err, review.Response.Patch)
	}
}

// TestChainDenials shows that after a denial no later plugin runs and the
// object is unchanged, and that the denial names its plugin.
func TestChainDenials(t *testing.T) {
	f := func(phase admission.Phase, err error, want string) {
		t.Helper()
		deny := func(_ context.Context, review *codec.Review) admission.Result {
			if phase == admission.Mutate {
				label("half-done")(t.Context(), review)
			}
			return admission.Denied(err)
		}
		review, outcome, observed, err := runBefore(t, phase, podCreate, deny)
		if err != nil || outcome != admission.OutcomeDenied || len(observed) != 1 || observed[0] != outcome {
			t.Fatalf("got %v, %v, observed %v, want denied alone", outcome, err, observed)
		}
		answer := string(review.AppendResponse(nil))
		if _, got, _ := strings.Cut(answer, `"allowed":false,`); got != want+"}}" {
			t.Errorf("got  %s\nwant %s}}", got, want)
		}
	}
	kind := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	invalid := field.ErrorList{field.Required(field.NewPath("spec"), "")}
	for _, phase := range [...]admission.Phase{admission.Mutate, admission.Validate} {
		f(phase, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no")),
			`"status":{"metadata":{},"status":"Failure","message":"Bad: pods \"a\" is forbidden: no","reason":"Forbidden",`+
				`"details":{"name":"a","kind":"pods","causes":[{"reason":"AdmissionPlugin","message":"Bad"}]},"code":403},`+
				`"auditAnnotations":{"Bad":"denied: pods \"a\" is forbidden: no"}`)
		f(phase, errors.New("no"),
			`"status":{"metadata":{},"status":"Failure","message":"Bad: no",`+
				`"details":{"causes":[{"reason":"AdmissionPlugin","message":"Bad"}]},"code":500},"auditAnnotations":{"Bad":"denied: no"}`)
		f(phase, apierrors.NewInvalid(kind, "a", nil),
			`"status":{"metadata":{},"status":"Failure","message":"Bad: Deployment.apps \"a\" is invalid","reason":"Invalid",`+
				`"details":{"name":"a","group":"apps","kind":"Deployment"},"code":422},`+
				`"auditAnnotations":{"Bad":"denied: Deployment.apps \"a\" is invalid"}`)
		f(phase, apierrors.NewInvalid(kind, "a", invalid),
			`"status":{"metadata":{},"status":"Failure",`+
				`"message":"Bad: Deployment.apps \"a\" is invalid: spec: Required value","reason":"Invalid",`+
				`"details":{"name":"a","group":"apps","kind":"Deployment","causes":[`+
				`{"reason":"FieldValueRequired","message":"Required value","field":"spec"}]},"code":422},`+
				`"auditAnnotations":{"Bad":"denied: Deployment.apps \"a\" is invalid: spec: Required value"}`)
	}
}

// runBefore runs a plugin "Bad" with the given functions before another plugin,
// which must not be called.
func runBefore(
	t *testing.T, phase admission.Phase, recording string, do act,
) (*codec.Review, admission.Outcome, []admission.Outcome, error) {
	t.Helper()
	plugin := validating
	if phase == admission.Mutate {
		plugin = mutating
	}
	chain := mustChain(t, plugin("Bad", do), plugin("Next", func(context.Context, *codec.Review) admission.Result {
		t.Error("the plugin behind it was reached")
		return admission.Allowed()
	}))
	var observed []admission.Outcome
	chain.Observe = func(run admission.Run) { observed = append(observed, run.Outcome) }
	review, outcome, err := run(t, chain, phase, recording)
	return review, outcome, observed, err
}

// TestChainFailures tests plugins that fail, panic or break their contract.
// None of that counts as a decision.
func TestChainFailures(t *testing.T) {
	f := func(phase admission.Phase, recording string, do act, want admission.Outcome, message string) {
		t.Helper()
		review, outcome, observed, err := runBefore(t, phase, recording, do)
		failure, ok := errors.AsType[*admission.FailureError](err)
		if !ok || failure.Plugin != "Bad" || outcome != want || len(observed) != 1 || observed[0] != want {
			t.Fatalf("got %v, %v, observed %v, want %v alone", outcome, err, observed, want)
		}
		if !strings.Contains(err.Error(), message) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %q, want %q in it", err, message)
		}
		if review.Response.Allowed || len(review.Response.Patch) > 0 {
			t.Errorf("got allowed %v and patch %s", review.Response.Allowed, review.Response.Patch)
		}
	}
	fail := func(context.Context, *codec.Review) admission.Result { return admission.Errored(errors.New("no idea")) }
	explode := func(context.Context, *codec.Review) admission.Result { panic("secret") }
	misuse := func(_ context.Context, review *codec.Review) admission.Result {
		review.Object.Get("nothing").SetInt(1, "x")
		return admission.Allowed()
	}
	invalid := func(_ context.Context, review *codec.Review) admission.Result {
		review.Object.Set(`{`, "metadata", "name")
		return admission.Allowed()
	}

	f(admission.Mutate, podCreate, fail, admission.OutcomeErrored, "admission plugin Bad failed: no idea")
	f(admission.Validate, podCreate, fail, admission.OutcomeErrored, "admission plugin Bad failed: no idea")
	f(admission.Mutate, podCreate, explode, admission.OutcomePanicked, "admission plugin Bad failed: it panicked")
	f(admission.Validate, podCreate, explode, admission.OutcomePanicked, "admission plugin Bad failed: it panicked")
	f(admission.Mutate, podCreate, misuse, admission.OutcomeErrored, `cannot edit "/x": the Value that the edit starts at is missing`)
	f(admission.Mutate, podCreate, invalid, admission.OutcomeErrored, "not valid JSON")
	f(admission.Validate, podCreate, label("x"), admission.OutcomeErrored, "changed the object while validating")
	f(admission.Mutate, podDelete, label("x"), admission.OutcomeErrored, "there is no document")
}

// TestConnectOptionsChange changes the options of a CONNECT request.
// kube-apiserver accepts such patches from webhooks.
func TestConnectOptionsChange(t *testing.T) {
	chain := mustChain(t, mutating("Container", func(_ context.Context, review *codec.Review) admission.Result {
		review.Object.SetString("sh", "container")
		return admission.Allowed()
	}))
	review, outcome, err := run(t, chain, admission.Mutate, podConnect)
	if err != nil || outcome != admission.OutcomePatched || !strings.Contains(string(review.Response.Patch), `"/container"`) {
		t.Errorf("got %v, %v, patch %s, want one of the container", outcome, err, review.Response.Patch)
	}
}

func TestPanicKeepsItsSecrets(t *testing.T) {
	chain := mustChain(t, validating("Bad", func(context.Context, *codec.Review) admission.Result { panic("secret") }))
	var panicked *admission.PanicError
	chain.Observe = func(run admission.Run) { errors.As(run.Err, &panicked) }
	run(t, chain, admission.Validate, podCreate)
	if panicked == nil || panicked.Value != "secret" || !strings.Contains(string(panicked.Stack), "TestPanicKeepsItsSecrets") {
		t.Errorf("the observer got %v, want the panic and its stack", panicked)
	}
}

func TestBrokenReviewIsNobodysDecision(t *testing.T) {
	chain := mustChain(t, validating("Reads", func(_ context.Context, review *codec.Review) admission.Result {
		review.Object.Get("spec", "hostNetwork")
		return admission.Allowed()
	}))
	review := codec.Acquire()
	defer review.Release()
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",` +
		`"object":{"spec":{"x" 1}}}}`
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	_, err := chain.Review(context.Background(), review, admission.Validate)
	var syntax *codec.SyntaxError
	if _, failed := errors.AsType[*admission.FailureError](err); failed || !errors.As(err, &syntax) ||
		!strings.Contains(err.Error(), "request.object: invalid JSON at byte 13") {
		t.Errorf("got error %v, want the place that is not JSON", err)
	}
}

func TestPluginIsNotStartedTooLate(t *testing.T) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	chain := mustChain(t, validating("Late", func(context.Context, *codec.Review) admission.Result {
		t.Error("the plugin was started")
		return admission.Allowed()
	}))
	outcome, err := chain.Review(ctx, decode(t, podCreate), admission.Validate)
	if outcome != admission.OutcomeErrored || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not started") {
		t.Errorf("got %v, %v, want the plugin's failure", outcome, err)
	}
}

func TestSelect(t *testing.T) {
	deny := func(context.Context, *codec.Review) admission.Result { return admission.Denied(errors.New("no")) }
	chain := mustChain(t, validating("Deny", deny), validating("Allow", allow), validating("Deny2", deny))
	var observed []int
	chain.Observe = func(run admission.Run) { observed = append(observed, run.Plugin) }
	f := func(want admission.Outcome, places []int, names ...string) {
		t.Helper()
		observed = nil
		selected := chain.Select(func(plugin *admission.Plugin, _ *admission.Settings) bool { return slices.Contains(names, plugin.Name) })
		if _, got, err := run(t, selected, admission.Validate, podCreate); got != want || err != nil || !slices.Equal(observed, places) {
			t.Errorf("%q: got %v, %v, observed %v, want %v, %v", names, got, err, observed, want, places)
		}
	}
	f(admission.OutcomeDenied, []int{0}, "Deny", "Allow", "Deny2")
	f(admission.OutcomeAllowed, []int{1}, "Allow")
	f(admission.OutcomeDenied, []int{1, 2}, "Allow", "Deny2")
	f(admission.OutcomeAllowed, nil)
}

func TestDeniedWithoutStatus(t *testing.T) {
	got := admission.Denied(fmt.Errorf("wrapped: %w", errors.New("plain"))).Denial
	if got.Code != 500 || got.Reason != "" || got.Message != "wrapped: plain" {
		t.Errorf("got %+v, want code 500, no reason and the text", got)
	}
}

func TestNewChainJoinsErrors(t *testing.T) {
	bad := func(name, message string) admission.Plugin {
		return admission.Plugin{Name: name, New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{}, errors.New(message)
		}}
	}
	liar := mutating("Liar", allow)
	liar.Validates = true
	unnamed := validating("not/a/name", allow)
	plugins := []admission.Plugin{bad("One", "first"), bad("Off", "never"), bad("Two", "second"), liar, unnamed, validating("Set", allow)}
	enabled := make(map[string]admission.Enabled)
	for _, plugin := range plugins {
		enabled[plugin.Name] = admission.Enabled{}
	}
	delete(enabled, "Off")
	enabled["Set"] = admission.Enabled{Settings: admission.Settings{
		FailurePolicy: "Maybe", ReinvocationPolicy: "Always", Timeout: -1, Enforcement: []admission.Enforcement{{Action: "shout"}},
	}}
	_, err := admission.NewChain(plugins, enabled, nil, nil)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"plugin One: first", "plugin Two: second", "plugin Liar: its handler", "plugin not/a/name: its name",
		"plugin Set: failurePolicy: got Maybe, want Fail or Ignore", "reinvocationPolicy: got Always", "timeout: got -1ns",
		"enforcement[0].action: got shout, want deny, warn or audit",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "never") {
		t.Errorf("got %q, which is about a plugin that is not enabled", err)
	}
}

// TestCluster tests that a plugin can read the cluster once its objects are
// cached.
func TestCluster(t *testing.T) {
	plugin := admission.Plugin{
		Name: "Asks", Validates: true, Rules: []admission.Rule{admission.Any()},
		Needs: []cluster.Need{cluster.Namespaces.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			namespaces := cluster.Namespaces.In(setup.Cluster)
			return admission.Handler{Validate: func(ctx context.Context, review *codec.Review) admission.Result {
				if _, err := namespaces.Get(ctx, "", review.Namespace()); err != nil {
					return admission.Denied(err)
				}
				return admission.Allowed()
			}}, nil
		},
	}
	f := func(want admission.Outcome, objects ...runtime.Object) {
		t.Helper()
		chain := admissiontest.MustChain(t, plugin, "", objects...)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(codec.Create, "v1/pods", "{}"))
	}
	f(admission.OutcomeDenied)
	f(admission.OutcomeAllowed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}})

	enabled := map[string]admission.Enabled{"Asks": {}}
	_, err := admission.NewChain([]admission.Plugin{plugin}, enabled, nil, nil)
	if err == nil || err.Error() != "cannot enable plugin Asks: it needs access to a cluster, and none is configured" {
		t.Errorf("without a cluster: got %v", err)
	}
	configured := plugin
	configured.Needs, configured.NeedsOf = nil, func([]byte) []cluster.Need { return plugin.Needs }
	_, configuredErr := admission.NewChain([]admission.Plugin{configured}, enabled, nil, nil)
	if fmt.Sprint(configuredErr) != fmt.Sprint(err) {
		t.Errorf("without a cluster that the configuration needs: got %v", configuredErr)
	}

	// An API server that does not answer.
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig,
		[]byte(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"c",`+
			`"cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err == nil {
		err = state.Follow(t.Context(), plugin.Needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, enabled, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeErrored, admissiontest.Body(codec.Create, "v1/pods", "{}"))
}

// TestKnowsRules asks before and after a plugin knows which reviews it handles.
func TestKnowsRules(t *testing.T) {
	known := make(chan struct{})
	create := func(run func(context.Context, func())) func(admission.Setup) (admission.Handler, error) {
		return func(admission.Setup) (admission.Handler, error) {
			allow := func(context.Context, *codec.Review) admission.Result { return admission.Allowed() }
			return admission.Handler{Run: run, Validate: allow}, nil
		}
	}
	chain, err := admission.NewChain([]admission.Plugin{
		{Name: "A", Validates: true, New: create(nil)},
		{Name: "B", Validates: true, New: create(func(_ context.Context, rulesChanged func()) {
			<-known
			rulesChanged()
		})},
	}, map[string]admission.Enabled{"A": {}, "B": {}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	chain.Start(t.Context(), nil, func() {})
	if !chain.KnowsRules("A") || chain.KnowsRules("B") {
		t.Error("before: got the wrong plugin")
	}
	close(known)
	chain.AwaitRules(t.Context())
	if !chain.KnowsRules("B") {
		t.Error("after: the plugin does not know its rules")
	}
}
