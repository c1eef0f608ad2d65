package customresource

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	// RetryPause is how often a Follower calls Refresh without a change. So a status that
	// could not be written is written later, and a kind that the API server did not have is
	// asked for again.
	RetryPause = 10 * time.Second

	// gatherPause is how long changes are gathered before Refresh: kubectl apply writes the
	// documents of a file one after the other.
	gatherPause = 50 * time.Millisecond
)

// Watched are objects that are listed and watched.
type Watched interface {
	// Synced returns a channel that is closed when all objects are known.
	Synced() <-chan struct{}
	// Subscribe calls changed after each change, until the returned function is called.
	Subscribe(changed func()) (unsubscribe func())
}

// A Follower calls a plugin after changes of custom resources. Set the fields before the
// first call of a method. Several goroutines may call its methods at the same time.
type Follower struct {
	// Resources are the custom resources. All of them are listed before the first Refresh.
	Resources []Watched
	// Related are other objects whose changes call Refresh. They need not be listed.
	Related []Watched
	// Refresh takes over the current objects.
	Refresh func(ctx context.Context)
	// Rules returns the rules of the plugin.
	Rules func() []admission.Rule
	// Background are functions that run in goroutines of their own, because the plugin takes
	// over changes also while the API server does not answer them. They return when ctx ends.
	// Run sends refreshed after each Refresh. They send changed to have Refresh called again.
	Background []func(ctx context.Context, refreshed, changed wake.Signal)

	isFollowing atomic.Bool
}

// Await waits until all Resources are listed. If ctx ends before, the error is its cause.
func (f *Follower) Await(ctx context.Context) error {
	for _, objects := range f.Resources {
		select {
		case <-objects.Synced():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// IsFollowing reports whether Run has called Refresh. Before, nobody knows what the custom
// resources select.
func (f *Follower) IsFollowing() bool { return f.isFollowing.Load() }

// Run calls Refresh when all Resources are listed, after each change, and every RetryPause,
// until ctx ends. It calls rulesChanged when Rules returns other rules than before. It is
// admission.Handler.Run. Call it once.
func (f *Follower) Run(ctx context.Context, rulesChanged func()) {
	if f.Await(ctx) != nil {
		return
	}
	changed := wake.NewSignal()
	for _, objects := range slices.Concat(f.Resources, f.Related) {
		defer objects.Subscribe(changed.Send)()
	}
	var background sync.WaitGroup
	defer background.Wait()
	refreshed := make([]wake.Signal, len(f.Background))
	for i, run := range f.Background {
		refreshed[i] = wake.NewSignal()
		background.Go(func() { run(ctx, refreshed[i], changed) })
	}
	var last []admission.Rule
	for {
		f.Refresh(ctx)
		f.isFollowing.Store(true)
		if now := f.Rules(); !reflect.DeepEqual(now, last) {
			last = now
			rulesChanged()
		}
		for _, signal := range refreshed {
			signal.Send()
		}
		if !changed.Wait(ctx, RetryPause, gatherPause) {
			return
		}
	}
}
