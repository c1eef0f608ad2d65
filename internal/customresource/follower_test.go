package customresource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/customresource"
	"github.com/fastadmit/fastadmit/internal/wake"
)

var needs = []cluster.Need{cluster.ValidatingAdmissionPolicies.Watched(), cluster.PolicyReplicas.Watched()}

// A plugin follows policies. It has one rule per policy, at most two.
type plugin struct {
	customresource.Follower
	refreshes, rulesChanges, background atomic.Int64
}

func newPlugin(t *testing.T, options cluster.Options) (*plugin, *cluster.State) {
	t.Helper()
	options.Kinds = cluster.KindsOf(needs...)
	state, err := cluster.New(options)
	if err == nil {
		err = state.Follow(t.Context(), needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	view, p := state.View(needs...), new(plugin)
	policies := cluster.ValidatingAdmissionPolicies.In(view)
	p.Resources, p.Related = []customresource.Watched{policies}, []customresource.Watched{cluster.PolicyReplicas.In(view)}
	p.Refresh = func(context.Context) { p.refreshes.Add(1) }
	p.Rules = func() []admission.Rule {
		all, err := policies.List("")
		if err != nil {
			t.Error(err)
		}
		return make([]admission.Rule, min(len(all), 2))
	}
	p.Background = []func(ctx context.Context, refreshed, changed wake.Signal){
		func(ctx context.Context, refreshed, _ wake.Signal) {
			for refreshed.Wait(ctx, time.Hour, 0) {
				p.background.Add(1)
			}
		},
		func(_ context.Context, refreshed, changed wake.Signal) { // requests another refresh
			<-refreshed
			changed.Send()
		},
	}
	return p, state
}

// TestFollower checks that the plugin is refreshed after changes and periodically, and that
// changes of rules are signalled.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, state := newPlugin(t, cluster.Options{Embedded: true})
		f := func(what string, pause time.Duration, refreshes, rulesChanges int64) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			r, c, b := p.refreshes.Load(), p.rulesChanges.Load(), p.background.Load()
			if r != refreshes || c != rulesChanges || b != refreshes {
				t.Errorf("%s: got %d refreshes, %d changes of rules, %d passes in the background; want %d, %d, %d",
					what, r, c, b, refreshes, rulesChanges, refreshes)
			}
		}
		put := func(kind, name string) {
			t.Helper()
			text := fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1","kind":%q,"metadata":{"name":%q}}`, kind, name)
			if put, err := state.NewPutter().Put([]byte(text)); !put || err != nil {
				t.Fatal(put, err)
			}
		}
		if p.IsFollowing() {
			t.Error("it follows before Run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			p.Run(ctx, func() { p.rulesChanges.Add(1) })
			close(done)
		}()
		const gather = 50 * time.Millisecond
		f("at once", 0, 1, 1)
		if !p.IsFollowing() {
			t.Error("it does not follow after the first refresh")
		}
		f("for the background", gather, 2, 1)
		put("ValidatingAdmissionPolicy", "a")
		f("before a group of changes", gather/2, 2, 1)
		put("ValidatingAdmissionPolicy", "b")
		f("after a group of changes", gather/2, 3, 2)
		f("of the last change", gather, 4, 2)
		put("ValidatingAdmissionPolicy", "c")
		f("without other rules", gather, 5, 2)
		put("PolicyReplica", "r")
		f("after a related change", gather, 6, 2)
		f("too early for another try", customresource.RetryPause, 6, 2)
		f("for another try", gather, 7, 2)
		cancel()
		<-done
		put("ValidatingAdmissionPolicy", "d")
		f("after the end", time.Minute, 7, 2)
	})
}

// TestFollowerUnlisted waits for objects that are not listed yet.
func TestFollowerUnlisted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	const kubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],` +
		`"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}]}`
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	p, _ := newPlugin(t, cluster.Options{Kubeconfig: file}) // no API server answers
	cause := errors.New("the test ends")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := p.Await(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
	p.Run(ctx, func() { t.Error("the rules are known") })
	if p.refreshes.Load() != 0 || p.IsFollowing() {
		t.Error("refreshed before the objects were listed")
	}
}
