package eventratelimit

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/corpus"
)

func enforcerOf(t *testing.T, l limit, now func() time.Time) *enforcer {
	t.Helper()
	e, err := newEnforcer(l, now)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestRace has goroutines use new keys at the same time: they must not take more tokens than
// the burst of each. Upstream can exceed it, because two goroutines may create a bucket
// each.
func TestRace(t *testing.T) {
	const workers, keys, burst = 8, 500, 3
	e := enforcerOf(t, limit{userLimit, 1, burst, keys}, newClock().now)
	var accepted [keys]atomic.Int32
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range accepted {
				if e.accepts(key{fmt.Sprint(i)}) {
					accepted[i].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for i := range accepted {
		if got := accepted[i].Load(); got != burst {
			t.Fatalf("key %d: got %d accepted, want %d", i, got, burst)
		}
	}
}

func TestCacheSize(t *testing.T) {
	f := func(l limit, want int) {
		t.Helper()
		e := enforcerOf(t, l, newClock().now)
		first := key{"0"}
		for i := range want + 1 {
			if i == want && !e.buckets.Contains(first) {
				t.Errorf("%+v: got the first of %d keys dropped, want it kept", l, want)
			}
			e.accepts(key{fmt.Sprint(i)})
		}
		if got := e.buckets.Len(); got != want {
			t.Errorf("%+v: got %d buckets, want %d", l, got, want)
		}
		if e.buckets.Contains(first) {
			t.Errorf("%+v: got the first of %d keys kept, want it dropped", l, want+1)
		}
	}
	f(limit{userLimit, 1, 1, 0}, 4096)
	f(limit{namespaceLimit, 1, 1, 1}, 1)
	f(limit{sourceAndObjectLimit, 1, 1, 5000}, 5000)
}

// TestBucket checks that the rate is a float32, as upstream.
func TestBucket(t *testing.T) {
	e := enforcerOf(t, limit{userLimit, 1<<24 + 1, math.MaxInt32, 0}, newClock().now)
	bucket := e.newBucket()
	if bucket.Limit() != rate.Limit(1<<24) || bucket.Burst() != math.MaxInt32 {
		t.Errorf("got %v and %v, want %v and %v", bucket.Limit(), bucket.Burst(), 1<<24, math.MaxInt32)
	}
}

// TestKeyIsCloned checks that a cached key does not change when its review is overwritten.
func TestKeyIsCloned(t *testing.T) {
	for _, l := range limitTypes[1:] {
		chain := chainOf(t, newClock(), configOf(fmt.Sprintf("{type: %s, qps: 1, burst: 1}", l)))
		about := tree{
			"namespace": "shop", "userInfo": tree{"username": "ann"},
			"object": tree{
				"source":         tree{"component": "a", "host": "b"},
				"involvedObject": tree{"kind": "c", "namespace": "d", "name": "e", "uid": "f", "apiVersion": "g"},
			},
		}
		for _, want := range [...]admission.Outcome{admission.OutcomeAllowed, admission.OutcomeDenied} {
			body := bodyOf(t, request(about))
			admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
			clear(body)
		}
	}
}

// TestLongKeys checks that the length of cached keys is limited, and that long keys stay
// distinct.
func TestLongKeys(t *testing.T) {
	e := enforcerOf(t, limit{sourceAndObjectLimit, 1, 1, 0}, newClock().now)
	prefix := strings.Repeat("x", fieldBytesMax-1)
	distinct := []string{
		prefix, prefix + "a", prefix + "b", prefix + "aa", prefix + "ab", prefix + strings.Repeat("a", 1<<20),
	}
	// A field that equals the digest form of a longer one is a different key.
	distinct = append(distinct, key{distinct[3]}.bounded()[0])
	for _, round := range []bool{true, false} {
		for _, field := range distinct {
			if got := e.accepts(key{2: field}); got != round {
				t.Errorf("%d bytes: got accepted %t, want %t", len(field), got, round)
			}
		}
	}
	for _, kept := range e.buckets.Keys() {
		if got := len(kept[2]); got > fieldBytesMax+1 {
			t.Errorf("got %d bytes kept, want at most %d", got, fieldBytesMax+1)
		}
	}
	for n, want := range map[int]int{fieldBytesMax - 1: fieldBytesMax - 1, fieldBytesMax: fieldBytesMax,
		fieldBytesMax + 1: fieldBytesMax + 1, 1 << 20: fieldBytesMax + 1} {
		if got := len(key{strings.Repeat("x", n)}.bounded()[0]); got != want {
			t.Errorf("%d bytes: got %d kept, want %d", n, got, want)
		}
	}
}

// TestLongKeyMessage checks that a message has the whole key, even if its digest is cached.
func TestLongKeyMessage(t *testing.T) {
	chain := chainOf(t, newClock(), configOf("{type: SourceAndObject, qps: 1, burst: 1}"))
	long := strings.Repeat("x", 2*fieldBytesMax)
	answer(t, chain, request(from(long)))
	want := "Too many requests: limit reached on type SourceAndObject for key " + long
	if got := answer(t, chain, request(from(long))); got != want {
		t.Errorf("got message %q, want %q", got, want)
	}
}

// TestNoAllocations checks that Events with cached keys do not allocate, with any limits.
func TestNoAllocations(t *testing.T) {
	config := configOf("{type: Server, "+most+"}", "{type: Namespace, "+most+"}", "{type: User, "+most+"}",
		"{type: SourceAndObject, "+most+"}")
	admissiontest.NoAllocations(t, admissiontest.MustChain(t, Plugin(), config), admission.Validate,
		admission.OutcomeAllowed, corpus.MustRead("events-update-v1-2.json"))
}

func BenchmarkValidate(b *testing.B) {
	for _, l := range limitTypes {
		b.Run(string(l), func(b *testing.B) {
			config := configOf(fmt.Sprintf("{type: %s, %s}", l, most))
			admissiontest.Benchmark(b, admissiontest.MustChain(b, Plugin(), config), admission.Validate,
				admission.OutcomeAllowed, corpus.MustRead("events-update-v1-2.json"))
		})
	}
}

// most is a limit that no test reaches.
const most = "qps: 2147483647, burst: 2147483647"
