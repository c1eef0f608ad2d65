package limitranger

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// A live is the plugin with an API server, and with a clock that the test sets.
type live struct {
	t       *testing.T
	handler admission.Handler
	asked   atomic.Int32
	fails   atomic.Bool
	limits  atomic.Value // JSON of the items of LimitRanges
	now     atomic.Int64 // seconds
}

func newLive(t *testing.T) *live {
	l := &live{t: t}
	l.limits.Store("")
	plugin := Plugin()
	plugin.New = func(setup admission.Setup) (admission.Handler, error) {
		return newHandler(setup, func() time.Time { return time.Unix(l.now.Load(), 0) })
	}
	l.handler = admissiontest.LiveHandler(t, plugin, func(w http.ResponseWriter, r *http.Request) {
		l.asked.Add(1)
		if !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/") || !strings.HasSuffix(r.URL.Path, "/limitranges") {
			t.Errorf("got a request for %s", r.URL)
		}
		if l.fails.Load() {
			admissiontest.Failure(w, http.StatusForbidden, "Forbidden")
			return
		}
		fmt.Fprintf(w, `{"kind":"LimitRangeList","apiVersion":"v1","items":[%s]}`, l.limits.Load())
	})
	return l
}

// create returns the result for a new pod without limits.
func (l *live) create(ctx context.Context, namespace string) admission.Result {
	review := codec.Acquire()
	defer review.Release()
	body := admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"containers":[{"name":"c"}]}}`)
	if err := review.Decode([]byte(strings.Replace(string(body), `"namespace":"namespace"`,
		fmt.Sprintf(`"namespace":%q`, namespace), 1))); err != nil {
		l.t.Error(err)
	}
	if result := l.handler.Admit(ctx, review); result.Err != nil {
		return result
	}
	return l.handler.Validate(ctx, review)
}

// TestValidateFails has an API server that does not answer while an object is validated.
func TestValidateFails(t *testing.T) {
	l := newLive(t)
	l.fails.Store(true)
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", `{}`)); err != nil {
		t.Fatal(err)
	}
	if result := l.handler.Validate(t.Context(), review); result.Err == nil {
		t.Errorf("got %v, want a failure", result)
	}
}

const maximum = `{"metadata":{"name":%q},"spec":{"limits":[{"type":"Pod","max":{"cpu":%q}}]}}`

func TestAnswersAreCached(t *testing.T) {
	l := newLive(t)
	f := func(namespace, denial string, asked int32) {
		t.Helper()
		result := l.create(t.Context(), namespace)
		got := ""
		if result.Denial != nil {
			got = result.Denial.Message
		}
		if result.Err != nil || denial == "" && got != "" || !strings.Contains(got, denial) || l.asked.Load() != asked {
			t.Errorf("got %q and %v after %d requests, want %q after %d", got, result.Err, l.asked.Load(), denial, asked)
		}
	}
	f("a", "", 1)
	l.limits.Store(fmt.Sprintf(maximum+","+maximum, "z", "9", "y", "8"))
	f("a", "", 1)
	f("b", "per Pod is 8", 2)
	l.now.Add(30)
	f("a", "", 2)
	l.now.Add(1)
	f("a", "per Pod is 8", 3)
	f("b", "per Pod is 8", 4)
	l.limits.Store("")
	f("a", "per Pod is 8", 4)
}

// TestFailuresAreNotCached checks that a failure is not cached and does not allow the request.
func TestFailuresAreNotCached(t *testing.T) {
	l := newLive(t)
	l.fails.Store(true)
	for range 2 {
		if result := l.create(t.Context(), "a"); result.Err == nil {
			t.Errorf("got %+v, want a failure", result)
		}
	}
	l.fails.Store(false)
	if result := l.create(t.Context(), "a"); result.Err != nil || l.asked.Load() != 3 {
		t.Errorf("got %v after %d requests", result.Err, l.asked.Load())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if result := l.create(ended, "b"); result.Err == nil {
		t.Errorf("got %+v, want a failure", result)
	}
}

func TestManyNamespaces(t *testing.T) {
	asked, err := simplelru.NewLRU[string, answer](askedMax, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &plugin{now: time.Now, asked: asked}
	for i := range askedMax + 1 {
		p.remember(fmt.Sprint(i), nil)
	}
	_, first := p.cached("0")
	_, second := p.cached("1")
	if first || !second {
		t.Errorf("the first answer is cached: %t, the second: %t", first, second)
	}
	for length, want := range map[int]bool{62: true, 63: true, 64: false, 1 << 20: false} { // the maximum for namespaces
		name := strings.Repeat("n", length)
		p.remember(name, nil)
		if _, cached := p.cached(name); cached != want {
			t.Errorf("the answer about a name of %d bytes is cached: %t", length, cached)
		}
	}
}

// TestManyAtOnce checks that concurrent calls share requests, and that all get the answer.
func TestManyAtOnce(t *testing.T) {
	l := newLive(t)
	l.limits.Store(fmt.Sprintf(maximum, "l", "1"))
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if result := l.create(t.Context(), fmt.Sprintf("n%d", i%4)); result.Denial == nil {
				t.Errorf("got %+v, want a denial", result)
			}
		})
	}
	all.Wait()
	if asked := l.asked.Load(); asked < 4 || asked > 64 {
		t.Errorf("got %d requests for 4 namespaces", asked)
	}
}

// BenchmarkUnlimited measures the plugin for a pod in a namespace without LimitRanges. The
// rest of a review costs the same as with every plugin.
func BenchmarkUnlimited(b *testing.B) {
	asked, err := simplelru.NewLRU[string, answer](askedMax, nil)
	if err != nil {
		b.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Embedded: true})
	if err != nil {
		b.Fatal(err)
	}
	p := &plugin{ranges: cluster.LimitRanges.In(state.View(cluster.LimitRanges.Watched())), now: time.Now, asked: asked}
	for i := range askedMax {
		p.remember(fmt.Sprint(i), nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		if ranges, err := p.in(b.Context(), "1234"); err != nil || len(ranges) > 0 {
			b.Fatal(ranges, err)
		}
	}
}
