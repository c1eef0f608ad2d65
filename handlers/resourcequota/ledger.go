package resourcequota

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
)

const (
	// conflictsMax is how often a charge is written again after a conflict with another
	// writer. Upstream gives up after three times. If ten replicas write one quota, each
	// wins one time in ten: a charge that is tried 50 times loses all of them once in 200
	// times, and by then the call has timed out.
	conflictsMax = 50

	// failuresMax is how often a quota is written again after another error, as upstream.
	failuresMax = 3

	// pauseMax is the longest pause before a charge is written again. It is about the
	// duration of a write, so that concurrent writers of a quota get out of step.
	pauseMax = 10 * time.Millisecond

	// writtenMax is how many written quotas are cached until the watch reports them: as many
	// as requests may be in flight by default.
	writtenMax = 1000
)

// A ledger charges quotas. While a charge is being written, further charges for the
// namespace wait, and are then written together. Each quota therefore has one write at a
// time, however many requests there are.
type ledger struct {
	quotas *cluster.Objects[*corev1.ResourceQuota]

	mu      sync.Mutex
	waiting map[string][]*charge // by namespace; there is an entry while work runs for it
	written *simplelru.LRU[cache.ObjectName, *corev1.ResourceQuota]
}

func newLedger(quotas *cluster.Objects[*corev1.ResourceQuota]) *ledger {
	written, err := simplelru.NewLRU[cache.ObjectName, *corev1.ResourceQuota](writtenMax, nil)
	if err != nil {
		panic(err) // only for sizes below one
	}
	return &ledger{quotas: quotas, waiting: make(map[string][]*charge), written: written}
}

// A charge is a demand that waits to be written.
type charge struct {
	*demand
	done chan error // receives the answer
	gone atomic.Bool

	charged []string // names of the quotas to which it has been charged
	tries   int
	// The results of the current round: the indexes of the quotas that change, and the
	// answer if the charge is denied.
	changes []int
	verdict error
}

// A failure says that a quota could not be written or read.
type failure struct{ error }

func (f *failure) Unwrap() error { return f.error }

// charge charges the quotas of the namespace. It returns nil after all quotas that apply to
// the demand were written.
func (l *ledger) charge(ctx context.Context, namespace string, d *demand) error {
	c := &charge{demand: d, done: make(chan error, 1)}
	l.mu.Lock()
	waiting, atWork := l.waiting[namespace]
	if !atWork {
		namespace = strings.Clone(namespace)
		go l.work(namespace)
	}
	l.waiting[namespace] = append(waiting, c)
	l.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		c.gone.Store(true)
		return &failure{fmt.Errorf("the quota could not be charged in time: %w", ctx.Err())}
	}
}

// work charges the quotas of a namespace until no charge is waiting.
func (l *ledger) work(namespace string) {
	var pending []*charge
	for {
		l.mu.Lock()
		pending = append(pending, l.waiting[namespace]...)
		l.waiting[namespace] = nil
		if len(pending) == 0 {
			delete(l.waiting, namespace)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		if pending = l.round(namespace, pending); len(pending) > 0 {
			time.Sleep(rand.N(pauseMax))
		}
	}
}

// round tries to write the pending charges, and returns those that must be tried again.
func (l *ledger) round(namespace string, pending []*charge) (still []*charge) {
	defer func() {
		if v := recover(); v != nil {
			settle(pending, &failure{&admission.PanicError{Value: v, Stack: debug.Stack()}})
		}
	}()
	before := l.current(namespace)
	after := before
	pending = slices.DeleteFunc(pending, func(c *charge) bool { return c.gone.Load() })
	for _, c := range pending {
		var charged []*corev1.ResourceQuota
		if charged, c.verdict = c.check(after, c.charged); c.verdict != nil {
			c.changes = nil
			continue
		}
		c.changes = changed(after, charged)
		after = charged
	}
	failed, err := l.write(before, after)
	if len(failed) == 0 {
		for _, c := range pending {
			c.done <- c.verdict
		}
		return nil
	}
	return again(before, pending, failed, err)
}

// again sorts the charges after a round in which some quotas were not written. It answers
// charges of other quotas, and returns the rest. A denied charge is tried again, because it
// may fit without the charges before it.
func again(quotas []*corev1.ResourceQuota, pending []*charge, failed []int, err error) (still []*charge) {
	for _, c := range pending {
		lost := c.verdict != nil
		for _, i := range c.changes {
			if slices.Contains(failed, i) {
				lost = true
			} else {
				c.charged = append(c.charged, quotas[i].Name)
			}
		}
		most := failuresMax
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			most = conflictsMax
		}
		switch c.tries++; {
		case !lost:
			c.done <- nil
		case c.tries > most:
			c.done <- &failure{err}
		default:
			still = append(still, c)
		}
	}
	return still
}

// settle answers all charges that have no answer yet.
func settle(pending []*charge, err error) {
	for _, c := range pending {
		select {
		case c.done <- err:
		default:
		}
	}
}

// changed returns the indexes of the quotas that differ.
func changed(before, after []*corev1.ResourceQuota) (indexes []int) {
	for i := range after {
		if before[i] != after[i] {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// write writes the quotas that have changed. It returns the indexes of those that were not
// written, and the error of the last of them.
func (l *ledger) write(before, after []*corev1.ResourceQuota) (failed []int, err error) {
	ctx := context.Background() // the write serves many calls; the client has a timeout
	for _, i := range changed(before, after) {
		written, fault := l.quotas.UpdateStatus(ctx, after[i])
		if fault != nil {
			failed, err = append(failed, i), fault
			written, fault = l.quotas.GetLive(ctx, after[i].Namespace, after[i].Name)
		}
		switch {
		case fault == nil:
			l.note(written)
		case apierrors.IsNotFound(fault):
			l.note(without(after[i]))
		default:
			err = fault // without a newer version, the next try is the same as this one
		}
	}
	return failed, err
}

// without returns a quota that replaces a deleted one: it has the same version, and limits
// nothing.
func without(q *corev1.ResourceQuota) *corev1.ResourceQuota {
	vanished := new(corev1.ResourceQuota)
	vanished.Namespace, vanished.Name, vanished.ResourceVersion = q.Namespace, q.Name, q.ResourceVersion
	return vanished
}

// isGone reports whether the quota was made by without: only these have no UID.
func isGone(q *corev1.ResourceQuota) bool { return q.UID == "" }

// note caches a quota that may be newer than that of the watch.
func (l *ledger) note(q *corev1.ResourceQuota) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := cache.MetaObjectToName(q)
	if known, ok := l.written.Get(name); !ok || !isNewer(known, q) {
		l.written.Add(name, q)
	}
}

// current returns the newest known quotas of a namespace. The caller must not change the
// slice.
func (l *ledger) current(namespace string) []*corev1.ResourceQuota {
	quotas := l.quotas.List(namespace)
	if len(quotas) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written.Len() == 0 {
		return quotas
	}
	own := false
	for i, q := range quotas {
		name := cache.MetaObjectToName(q)
		known, ok := l.written.Get(name)
		switch {
		case !ok:
		case isNewer(q, known), !isGone(known) && !isNewer(known, q):
			l.written.Remove(name)
		default:
			if !own {
				quotas, own = slices.Clone(quotas), true
			}
			quotas[i] = known
		}
	}
	return quotas
}

// isNewer reports whether a is a later version of an object than b.
func isNewer(a, b *corev1.ResourceQuota) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
