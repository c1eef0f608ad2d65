package admission_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// worker is a context with work of a requester.
type worker struct {
	context.Context
	work turns.Work
}

func (w *worker) Requester() (user, namespace string) { return "user", "namespace" }

// Value implements context.Context.
func (w *worker) Value(key any) any {
	if _, ok := key.(turns.Key); ok {
		return &w.work
	}
	return w.Context.Value(key)
}

var _ cluster.Requester = (*worker)(nil)

// TestTurns runs several reviews at the same time. When a review has taken long, its plugins need turns,
// except plugins that may wait for something else.
func TestTurns(t *testing.T) { synctest.Test(t, testTurns) }

func testTurns(t *testing.T) {
	const reviews = 12
	f := func(change func(p *admission.Plugin), most int64) {
		t.Helper()
		var running, peak atomic.Int64
		plugin := func(name string, act func()) admission.Plugin {
			return admission.Plugin{
				Name: name, Rules: []admission.Rule{admission.Any()}, Validates: true,
				New: func(admission.Setup) (admission.Handler, error) {
					return admission.Handler{Validate: func(context.Context, *codec.Review) admission.Result {
						act()
						return admission.Result{}
					}}, nil
				},
			}
		}
		var all sync.WaitGroup
		all.Add(reviews)
		second := plugin("Second", func() {
			n := running.Add(1)
			for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
			}
			time.Sleep(20 * time.Millisecond)
			running.Add(-1)
		})
		change(&second)
		table := []admission.Plugin{plugin("First", func() {
			all.Done()
			all.Wait() // until all have begun
			time.Sleep(2 * turns.FreeMax)
		}), second}
		chain, err := admission.NewChain(table, map[string]admission.Enabled{"First": {}, "Second": {}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		shared := turns.New(metrics.NewSet())
		var done sync.WaitGroup
		for range reviews {
			done.Go(func() {
				ctx := &worker{Context: t.Context()}
				ctx.work = shared.Begin(ctx)
				defer ctx.work.Leave()
				review := codec.Acquire()
				defer review.Release()
				if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"a"}}`)); err != nil {
					t.Error(err)
				}
				if _, err := chain.Review(ctx, review, admission.Validate); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		if got := peak.Load(); got > most || most == reviews && got < 3*reviews/4 {
			t.Errorf("got %d plugins at the same time, want %d", got, most)
		}
	}
	ones := int64(max(runtime.GOMAXPROCS(0)-1, 1))
	f(func(*admission.Plugin) {}, ones)
	f(func(p *admission.Plugin) { p.Calls = true }, reviews)
	f(func(p *admission.Plugin) { p.SideEffects = "NoneOnDryRun" }, reviews)
	f(func(p *admission.Plugin) { p.OutOfTree = true }, reviews)
}
