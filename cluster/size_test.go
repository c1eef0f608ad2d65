package cluster

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/seed"
)

// accounted returns a store of a kind with n objects of these bytes, and room for all of them.
func accounted(t testing.TB, kind *Kind, n, bytes int) *store {
	t.Helper()
	s := newStore(kind, slog.New(slog.DiscardHandler))
	s.account = &account{max: int64(n * bytes), stores: map[*store]struct{}{s: {}}}
	for i := range n {
		addSized(t, s, i, bytes)
	}
	return s
}

// addSized adds the i-th object of a store; each is in a namespace of its own if the kind is namespaced.
func addSized(t testing.TB, s *store, i, bytes int) {
	t.Helper()
	a := &arrived{object: &corev1.Namespace{}, bytes: int64(bytes)}
	if a.Name = fmt.Sprintf("n%06d", i); s.kind.namespaced {
		a.Namespace = a.Name
	}
	if err := s.Add(a); err != nil {
		t.Fatal(err)
	}
}

// TestManyLeftOut has one object more than there is room for, of many of the same size: an eighth of them is left out. The work
// grows with their number, not with its square.
func TestManyLeftOut(t *testing.T) {
	for _, kind := range []*Kind{Namespaces.Kind, ServiceAccounts.Kind} {
		allocated := func(n int) uint64 {
			s := accounted(t, kind, n, 1000)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			addSized(t, s, n, 1000)
			runtime.ReadMemStats(&after)
			left, kept := s.leftOut(), s.size()
			if left < n/8 || left > n/8+2 || left+kept != n+1 {
				t.Errorf("%s: got %d of %d left out and %d kept", kind, left, n+1, kept)
			}
			return after.TotalAlloc - before.TotalAlloc
		}
		few, many := allocated(1000), allocated(8000)
		// A megabyte is what other goroutines may allocate meanwhile. Work for all that were left out before takes 128 MB.
		if many > 16*few+1<<20 {
			t.Errorf("%s: got %d bytes allocated for 1,000 objects and %d for 8,000", kind, few, many)
		}
	}
}

// TestListAfterChanges changes some objects of many between lists, and expects what sorting all returns. Slices that
// were listed before do not change, also while others list.
func TestListAfterChanges(t *testing.T) {
	random := seed.Rand(t)
	s := newStore(ServiceAccounts.Kind, slog.New(slog.DiscardHandler))
	names := func(all []*corev1.ServiceAccount) (names []string) {
		for _, a := range all {
			names = append(names, a.Name+a.ResourceVersion)
		}
		return names
	}
	ended := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !isClosed(ended) {
				if all, err := listed[*corev1.ServiceAccount](s, "a"); err != nil || !slices.IsSorted(namesOf(all)) {
					t.Errorf("got %v, %v", namesOf(all), err)
				}
			}
		})
	}
	current := make(map[string]string)
	for i := range 2000 {
		before, err := listed[*corev1.ServiceAccount](s, "a")
		if err != nil {
			t.Fatal(err)
		}
		kept := names(before)
		for range random.IntN(2 * changesMax) {
			object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: "a", Name: fmt.Sprint("n", random.IntN(100)), ResourceVersion: fmt.Sprint(":", i),
			}}
			if random.IntN(3) == 0 {
				delete(current, object.Name)
				err = s.Delete(object)
			} else {
				current[object.Name] = object.ResourceVersion
				err = s.Add(object)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var want []string
		for _, name := range slices.Sorted(maps.Keys(current)) {
			want = append(want, name+current[name])
		}
		after, err := listed[*corev1.ServiceAccount](s, "a")
		if got := names(after); !slices.Equal(got, want) || err != nil {
			t.Fatalf("got %v, %v, want %v", got, err, want)
		}
		if got := names(before); !slices.Equal(got, kept) {
			t.Fatalf("a list became %v, was %v", got, kept)
		}
	}
	close(ended)
	readers.Wait()
}

func namesOf(all []*corev1.ServiceAccount) (names []string) {
	for _, a := range all {
		names = append(names, a.Name)
	}
	return names
}

// BenchmarkSize has many Namespaces with labels, and many PriorityClasses: it looks up one, changes one, lists all after a
// change, and leaves out what no longer fits.
func BenchmarkSize(b *testing.B) {
	for _, n := range [...]int{100, 1000, 10_000} {
		namespaces := newStore(Namespaces.Kind, slog.New(slog.DiscardHandler))
		put := func(b *testing.B, i int) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
			namespace.Labels = map[string]string{"team": fmt.Sprint("team", i), "environment": "production"}
			if err := namespaces.Add(namespace); err != nil {
				b.Fatal(err)
			}
		}
		for i := range n {
			put(b, i)
		}
		b.Run(fmt.Sprintf("get=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := namespaces.lookup("", "n7"); !ok {
					b.Fatal("not found")
				}
			}
		})
		b.Run(fmt.Sprintf("change=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				put(b, 7)
			}
		})
		b.Run(fmt.Sprintf("list=%d", n), func(b *testing.B) { benchmarkListChanged(b, n) })
		for _, kind := range []*Kind{Namespaces.Kind, ServiceAccounts.Kind} {
			b.Run(fmt.Sprintf("leave out %s=%d", kind.resource, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					s := accounted(b, kind, n, 1000)
					b.StartTimer()
					addSized(b, s, n, 1000)
				}
			})
		}
	}
}

// benchmarkListChanged lists n classes, of which one has changed.
func benchmarkListChanged(b *testing.B, n int) {
	s := newStore(PriorityClasses.Kind, slog.New(slog.DiscardHandler))
	put := func(i int) {
		name := fmt.Sprintf("%s%05d", strings.Repeat("c", i%7), i)
		if err := s.Add(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range n {
		put(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		put(7)
		if all, err := listed[*schedulingv1.PriorityClass](s, ""); len(all) != n || err != nil {
			b.Fatal(len(all), err)
		}
	}
}
