package admission_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// TestSyntaxErrorIsNobodysFailure tests invalid JSON where a plugin reads it, and
// where the patch reads the old value. No failure policy applies to it.
func TestSyntaxErrorIsNobodysFailure(t *testing.T) {
	f := func(name string, do act) {
		t.Helper()
		chain := mustSet(t, map[string]admission.Settings{name: {FailurePolicy: admissionregistrationv1.Ignore}}, mutating(name, do))
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"labels":{"a":[tru]}}}`)); err != nil {
			t.Fatal(err)
		}
		outcome, err := chain.Review(t.Context(), review, admission.Mutate)
		if syntax, ok := errors.AsType[*codec.SyntaxError](err); !ok || outcome != admission.OutcomeErrored {
			t.Errorf("%s: got %v, %v, %v, want a syntax error", name, outcome, err, syntax)
		}
	}
	f("Reads", func(_ context.Context, review *codec.Review) admission.Result {
		_ = review.Object.Get("metadata", "labels", "a", codec.Index(0)).Bool()
		return admission.Allowed()
	})
	f("Writes", func(_ context.Context, review *codec.Review) admission.Result {
		review.Object.Set(`{"a":[true]}`, "metadata", "labels")
		return admission.Allowed()
	})
}

// TestGoexitIsObserved tests a plugin that ends its goroutine.
func TestGoexitIsObserved(t *testing.T) {
	for _, observe := range []bool{true, false} {
		chain := mustChain(t, mutating("First", allow), mutating("Ends", func(context.Context, *codec.Review) admission.Result {
			runtime.Goexit()
			return admission.Allowed()
		}))
		var runs []admission.Run
		if observe {
			chain.Observe = func(run admission.Run) { runs = append(runs, run) }
		}
		review, ended := decode(t, podCreate), make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = chain.Review(context.Background(), review, admission.Mutate)
			t.Error("the chain goes on")
		}()
		<-ended
		if observe && (len(runs) != 2 || runs[1].Plugin != 1 || runs[1].Outcome != admission.OutcomeErrored ||
			runs[1].Err == nil || !strings.Contains(runs[1].Err.Error(), "runtime.Goexit") || runs[1].Elapsed < 0 ||
			runs[1].Elapsed > time.Minute) {
			t.Errorf("observed %v", runs)
		}
	}
}

// TestNotReady tests that a plugin is not called before its objects of the cluster
// are cached.
func TestNotReady(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig,
		[]byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],`+
			`"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	plugin := mutating("Knows", func(context.Context, *codec.Review) admission.Result {
		t.Error("it was asked")
		return admission.Allowed()
	})
	plugin.Needs = []cluster.Need{cluster.Namespaces.Watched()}
	if err := state.Follow(t.Context(), plugin.Needs...); err != nil {
		t.Fatal(err)
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {}}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, outcome, err := run(t, chain, admission.Mutate, podCreate)
	if failure, ok := errors.AsType[*admission.FailureError](err); !ok || outcome != admission.OutcomeErrored ||
		!strings.Contains(failure.Error(), "namespaces") {
		t.Errorf("got %v, %v, want the failure that namespaces are not known", outcome, err)
	}
}

// TestSettingsThatAreSaid sets each policy to its default explicitly, and tests
// errors of selectors.
func TestSettingsThatAreSaid(t *testing.T) {
	for _, settings := range []admission.Settings{
		{FailurePolicy: admissionregistrationv1.Fail, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy},
		{FailurePolicy: admissionregistrationv1.Ignore, ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy},
	} {
		mustSet(t, map[string]admission.Settings{"P": settings}, mutating("P", allow))
	}
	if got := (&admission.RefusalError{Err: errors.New("no")}).Error(); got != "no" {
		t.Errorf("got %s", got)
	}
}

// TestEndsWithItsContext tests plugins that still read a long list when their time
// is over. This is their own failure, and their failure policy applies to it.
func TestEndsWithItsContext(t *testing.T) {
	body := admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"containers":[`+strings.Repeat("0,", 3000)+`0]}}`)
	read := func(wait bool, seen *int) act {
		return func(ctx context.Context, review *codec.Review) admission.Result {
			if wait {
				<-ctx.Done()
			}
			for range review.Object.Get("spec", "containers").Elements() {
				*seen++
			}
			return admission.Allowed()
		}
	}
	f := func(timeout time.Duration, policy admissionregistrationv1.FailurePolicyType, want admission.Outcome) {
		t.Helper()
		var first, second int
		chain := mustSet(t, map[string]admission.Settings{"First": {Timeout: timeout, FailurePolicy: policy}},
			mutating("First", read(true, &first)), mutating("Second", read(false, &second)))
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(body); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if timeout == 0 {
			cancel()
		}
		outcome, err := chain.Review(ctx, review, admission.Mutate)
		late, ok := errors.AsType[*codec.ContextError](err)
		_, failed := errors.AsType[*admission.FailureError](err)
		if failing := want == admission.OutcomeErrored; outcome != want || failing != failed || failing && !ok ||
			first > 3000 || !failing && second != 3001 {
			t.Errorf("%v %s: got %v, %v, %v, read %d and %d", timeout, policy, outcome, err, late, first, second)
		}
	}
	f(time.Millisecond, admissionregistrationv1.Ignore, admission.OutcomeAllowed)
	f(time.Millisecond, admissionregistrationv1.Fail, admission.OutcomeErrored)
	f(0, admissionregistrationv1.Fail, admission.OutcomeErrored)
}
