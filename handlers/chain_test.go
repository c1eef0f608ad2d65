package handlers_test

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

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

// act is what a test plugin does to a review.
type act func(ctx context.Context, review *codec.Review) handlers.Result

func mutating(name string, do act) handlers.Plugin {
	return handlers.Plugin{
		Name: name, Rules: []handlers.Rule{handlers.Any()}, Mutates: true,
		New: func(handlers.Setup) (handlers.Handler, error) { return handlers.Handler{Admit: do}, nil },
	}
}

func validating(name string, do act) handlers.Plugin {
	return handlers.Plugin{
		Name: name, Rules: []handlers.Rule{handlers.Any()}, Validates: true,
		New: func(handlers.Setup) (handlers.Handler, error) { return handlers.Handler{Validate: do}, nil },
	}
}

func allow(context.Context, *codec.Review) handlers.Result { return handlers.Allowed() }

func label(key string) act {
	return func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.SetString("1", "metadata", "labels", key)
		return handlers.Allowed()
	}
}

func mustChain(t *testing.T, plugins ...handlers.Plugin) *handlers.Chain {
	t.Helper()
	return mustSet(t, nil, plugins...)
}

// mustSet returns the chain of the plugins, some of which have settings.
func mustSet(t *testing.T, settings map[string]handlers.Settings, plugins ...handlers.Plugin) *handlers.Chain {
	t.Helper()
	enabled := make(map[string]handlers.Enabled)
	for _, plugin := range plugins {
		enabled[plugin.Name] = handlers.Enabled{Settings: settings[plugin.Name]}
	}
	chain, err := handlers.NewChain(plugins, enabled, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// run reviews a recording and returns the review, which is released when the
// test ends.
func run(t *testing.T, chain *handlers.Chain, phase handlers.Phase, recording string) (*codec.Review, handlers.Outcome, error) {
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
		mutating("Second", func(_ context.Context, review *codec.Review) handlers.Result {
			seen = review.Object.Get("metadata", "labels", "a/b~c").String()
			return handlers.Allowed()
		}),
	)
	review, outcome, err := run(t, chain, handlers.Mutate, podCreate)
	if err != nil || outcome != handlers.OutcomePatched || !review.Response.Allowed {
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
		mutating("Second", func(_ context.Context, review *codec.Review) handlers.Result {
			review.Object.Remove("metadata", "labels", "x")
			return handlers.Allowed()
		}),
	)
	review, outcome, err := run(t, chain, handlers.Mutate, podCreate)
	if err != nil || outcome != handlers.OutcomeAllowed || len(review.Response.Patch) > 0 {
		t.Errorf("got %v, %v, patch %s, want allowed without one", outcome, err, review.Response.Patch)
	}
}

// TestChainDenials shows that a denial reaches neither the plugins behind it
// nor the object, and says whose it is.
func TestChainDenials(t *testing.T) {
	f := func(phase handlers.Phase, err error, want string) {
		t.Helper()
		deny := func(_ context.Context, review *codec.Review) handlers.Result {
			if phase == handlers.Mutate {
				label("half-done")(t.Context(), review)
			}
			return handlers.Denied(err)
		}
		review, outcome, observed, err := runBefore(t, phase, podCreate, deny)
		if err != nil || outcome != handlers.OutcomeDenied || len(observed) != 1 || observed[0] != outcome {
			t.Fatalf("got %v, %v, observed %v, want denied alone", outcome, err, observed)
		}
		answer := string(review.AppendResponse(nil))
		if _, got, _ := strings.Cut(answer, `"allowed":false,`); got != want+"}}" {
			t.Errorf("got  %s\nwant %s}}", got, want)
		}
	}
	kind := schema.GroupKind{Group: "apps", Kind: "Deployment"}
	invalid := field.ErrorList{field.Required(field.NewPath("spec"), "")}
	for _, phase := range [...]handlers.Phase{handlers.Mutate, handlers.Validate} {
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
			`"status":{"metadata":{},"status":"Failure","message":"Bad: Deployment.apps \"a\" is invalid: spec: Required value","reason":"Invalid",`+
				`"details":{"name":"a","group":"apps","kind":"Deployment","causes":[`+
				`{"reason":"FieldValueRequired","message":"Required value","field":"spec"}]},"code":422},`+
				`"auditAnnotations":{"Bad":"denied: Deployment.apps \"a\" is invalid: spec: Required value"}`)
	}
}

// runBefore runs a plugin "Bad" that does so, with another one behind it that
// must not be reached.
func runBefore(t *testing.T, phase handlers.Phase, recording string, do act) (*codec.Review, handlers.Outcome, []handlers.Outcome, error) {
	t.Helper()
	plugin := validating
	if phase == handlers.Mutate {
		plugin = mutating
	}
	chain := mustChain(t, plugin("Bad", do), plugin("Next", func(context.Context, *codec.Review) handlers.Result {
		t.Error("the plugin behind it was reached")
		return handlers.Allowed()
	}))
	var observed []handlers.Outcome
	chain.Observe = func(run handlers.Run) { observed = append(observed, run.Outcome) }
	review, outcome, err := run(t, chain, phase, recording)
	return review, outcome, observed, err
}

// TestChainFailures shows what becomes of plugins that fail, panic or break
// their contract: nobody's decision.
func TestChainFailures(t *testing.T) {
	f := func(phase handlers.Phase, recording string, do act, want handlers.Outcome, message string) {
		t.Helper()
		review, outcome, observed, err := runBefore(t, phase, recording, do)
		failure, ok := errors.AsType[*handlers.FailureError](err)
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
	fail := func(context.Context, *codec.Review) handlers.Result { return handlers.Errored(errors.New("no idea")) }
	explode := func(context.Context, *codec.Review) handlers.Result { panic("secret") }
	misuse := func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.Get("nothing").SetInt(1, "x")
		return handlers.Allowed()
	}
	invalid := func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.Set(`{`, "metadata", "name")
		return handlers.Allowed()
	}

	f(handlers.Mutate, podCreate, fail, handlers.OutcomeErrored, "admission plugin Bad failed: no idea")
	f(handlers.Validate, podCreate, fail, handlers.OutcomeErrored, "admission plugin Bad failed: no idea")
	f(handlers.Mutate, podCreate, explode, handlers.OutcomePanicked, "admission plugin Bad failed: it panicked")
	f(handlers.Validate, podCreate, explode, handlers.OutcomePanicked, "admission plugin Bad failed: it panicked")
	f(handlers.Mutate, podCreate, misuse, handlers.OutcomeErrored, `cannot edit "/x": the Value that the edit starts at is missing`)
	f(handlers.Mutate, podCreate, invalid, handlers.OutcomeErrored, "not valid JSON")
	f(handlers.Validate, podCreate, label("x"), handlers.OutcomeErrored, "changed the object while validating")
	f(handlers.Mutate, podDelete, label("x"), handlers.OutcomeErrored, "there is no document")
}

// TestConnectOptionsChange changes the options of a CONNECT request, which
// kube-apiserver takes from webhooks.
func TestConnectOptionsChange(t *testing.T) {
	chain := mustChain(t, mutating("Container", func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.SetString("sh", "container")
		return handlers.Allowed()
	}))
	review, outcome, err := run(t, chain, handlers.Mutate, podConnect)
	if err != nil || outcome != handlers.OutcomePatched || !strings.Contains(string(review.Response.Patch), `"/container"`) {
		t.Errorf("got %v, %v, patch %s, want one of the container", outcome, err, review.Response.Patch)
	}
}

func TestPanicKeepsItsSecrets(t *testing.T) {
	chain := mustChain(t, validating("Bad", func(context.Context, *codec.Review) handlers.Result { panic("secret") }))
	var panicked *handlers.PanicError
	chain.Observe = func(run handlers.Run) { errors.As(run.Err, &panicked) }
	run(t, chain, handlers.Validate, podCreate)
	if panicked == nil || panicked.Value != "secret" || !strings.Contains(string(panicked.Stack), "TestPanicKeepsItsSecrets") {
		t.Errorf("the observer got %v, want the panic and its stack", panicked)
	}
}

func TestBrokenReviewIsNobodysDecision(t *testing.T) {
	chain := mustChain(t, validating("Reads", func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.Get("spec", "hostNetwork")
		return handlers.Allowed()
	}))
	review := codec.Acquire()
	defer review.Release()
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","object":{"spec":{"x" 1}}}}`
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	_, err := chain.Review(context.Background(), review, handlers.Validate)
	var syntax *codec.SyntaxError
	if _, failed := errors.AsType[*handlers.FailureError](err); failed || !errors.As(err, &syntax) || !strings.Contains(err.Error(), "request.object: invalid JSON at byte 13") {
		t.Errorf("got error %v, want the place that is not JSON", err)
	}
}

func TestPluginIsNotStartedTooLate(t *testing.T) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	chain := mustChain(t, validating("Late", func(context.Context, *codec.Review) handlers.Result {
		t.Error("the plugin was started")
		return handlers.Allowed()
	}))
	outcome, err := chain.Review(ctx, decode(t, podCreate), handlers.Validate)
	if outcome != handlers.OutcomeErrored || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not started") {
		t.Errorf("got %v, %v, want the plugin's failure", outcome, err)
	}
}

func TestSelect(t *testing.T) {
	deny := func(context.Context, *codec.Review) handlers.Result { return handlers.Denied(errors.New("no")) }
	chain := mustChain(t, validating("Deny", deny), validating("Allow", allow), validating("Deny2", deny))
	var observed []int
	chain.Observe = func(run handlers.Run) { observed = append(observed, run.Plugin) }
	f := func(want handlers.Outcome, places []int, names ...string) {
		t.Helper()
		observed = nil
		selected := chain.Select(func(plugin *handlers.Plugin, _ *handlers.Settings) bool { return slices.Contains(names, plugin.Name) })
		if _, got, err := run(t, selected, handlers.Validate, podCreate); got != want || err != nil || !slices.Equal(observed, places) {
			t.Errorf("%q: got %v, %v, observed %v, want %v, %v", names, got, err, observed, want, places)
		}
	}
	f(handlers.OutcomeDenied, []int{0}, "Deny", "Allow", "Deny2")
	f(handlers.OutcomeAllowed, []int{1}, "Allow")
	f(handlers.OutcomeDenied, []int{1, 2}, "Allow", "Deny2")
	f(handlers.OutcomeAllowed, nil)
}

func TestDeniedWithoutStatus(t *testing.T) {
	got := handlers.Denied(fmt.Errorf("wrapped: %w", errors.New("plain"))).Denial
	if got.Code != 500 || got.Reason != "" || got.Message != "wrapped: plain" {
		t.Errorf("got %+v, want code 500, no reason and the text", got)
	}
}

func TestNewChainJoinsErrors(t *testing.T) {
	bad := func(name, message string) handlers.Plugin {
		return handlers.Plugin{Name: name, New: func(handlers.Setup) (handlers.Handler, error) {
			return handlers.Handler{}, errors.New(message)
		}}
	}
	liar := mutating("Liar", allow)
	liar.Validates = true
	unnamed := validating("not/a/name", allow)
	plugins := []handlers.Plugin{bad("One", "first"), bad("Off", "never"), bad("Two", "second"), liar, unnamed, validating("Set", allow)}
	enabled := make(map[string]handlers.Enabled)
	for _, plugin := range plugins {
		enabled[plugin.Name] = handlers.Enabled{}
	}
	delete(enabled, "Off")
	enabled["Set"] = handlers.Enabled{Settings: handlers.Settings{
		FailurePolicy: "Maybe", ReinvocationPolicy: "Always", Timeout: -1, Enforcement: []handlers.Enforcement{{Action: "shout"}},
	}}
	_, err := handlers.NewChain(plugins, enabled, nil, nil)
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"plugin One: first", "plugin Two: second", "plugin Liar: its handler", "plugin not/a/name: its name",
		"plugin Set: failurePolicy: got Maybe, want Fail or Ignore", "reinvocationPolicy: got Always", "timeout: got -1ns", "enforcement[0].action: got shout, want deny, warn or audit",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "never") {
		t.Errorf("got %q, which is about a plugin that is not enabled", err)
	}
}

// TestCluster has a plugin ask what it needs to know, once it is known.
func TestCluster(t *testing.T) {
	plugin := handlers.Plugin{
		Name: "Asks", Validates: true, Rules: []handlers.Rule{handlers.Any()},
		Needs: []cluster.Need{cluster.Namespaces.Watched()},
		New: func(setup handlers.Setup) (handlers.Handler, error) {
			namespaces := cluster.Namespaces.In(setup.Cluster)
			return handlers.Handler{Validate: func(ctx context.Context, review *codec.Review) handlers.Result {
				if _, err := namespaces.Get(ctx, "", review.Namespace()); err != nil {
					return handlers.Denied(err)
				}
				return handlers.Allowed()
			}}, nil
		},
	}
	f := func(want handlers.Outcome, objects ...runtime.Object) {
		t.Helper()
		chain := handlertest.MustChain(t, plugin, "", objects...)
		handlertest.CheckOutcome(t, chain, handlers.Validate, want, handlertest.Body(codec.Create, "v1/pods", "{}"))
	}
	f(handlers.OutcomeDenied)
	f(handlers.OutcomeAllowed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}})

	enabled := map[string]handlers.Enabled{"Asks": {}}
	_, err := handlers.NewChain([]handlers.Plugin{plugin}, enabled, nil, nil)
	if err == nil || err.Error() != "cannot enable plugin Asks: it needs access to a cluster, and there is none" {
		t.Errorf("without a cluster: got %v", err)
	}
	configured := plugin
	configured.Needs, configured.NeedsOf = nil, func([]byte) []cluster.Need { return plugin.Needs }
	if _, configuredErr := handlers.NewChain([]handlers.Plugin{configured}, enabled, nil, nil); fmt.Sprint(configuredErr) != fmt.Sprint(err) {
		t.Errorf("without a cluster that the configuration needs: got %v", configuredErr)
	}

	// An API server that does not answer.
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err == nil {
		err = state.Follow(t.Context(), plugin.Needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	chain, err := handlers.NewChain([]handlers.Plugin{plugin}, enabled, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	handlertest.CheckOutcome(t, chain, handlers.Validate, handlers.OutcomeErrored, handlertest.Body(codec.Create, "v1/pods", "{}"))
}
