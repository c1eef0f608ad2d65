package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fastadmit/fastadmit/internal/testserver"
)

// run starts s and waits until it is ready.
func run(t *testing.T, s *State) {
	t.Helper()
	if err := s.Follow(t.Context(), followed()...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
}

// team returns the label of a namespace that the tests change, "" if the namespace is not
// cached.
func team(t *testing.T, s *State, name string) string {
	t.Helper()
	n, ok := namespacesIn(s).Cached("", name)
	if !ok {
		return ""
	}
	return n.Labels["team"]
}

func TestFollow(t *testing.T) {
	f := func(name string, onlyJSON, onlyList bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			a.onlyJSON, a.onlyList = onlyJSON, onlyList
			a.put(namespace("one", "team", "a"))
			a.put(namespace("two"))
			a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "c"}, Data: map[string]string{"k": "v"}})
			s := a.newState(Options{UserAgent: "fastadmit/test"})
			run(t, s)

			got, ok := namespacesIn(s).Cached("", "one")
			if !ok {
				t.Fatal("the cache lacks a namespace")
			}
			want := namespace("one", "team", "a")
			want.ResourceVersion, want.CreationTimestamp = "11", got.CreationTimestamp
			want.ManagedFields, want.OwnerReferences = nil, nil
			delete(want.Annotations, lastApplied)
			if got.CreationTimestamp.IsZero() {
				t.Error("the cache does not know when the namespace was created")
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the cache has\n%+v\nwant\n%+v", got, want)
			}

			a.put(namespace("one", "team", "b"))
			a.put(namespace("three", "team", "c"))
			a.remove(namespace("two"))
			eventually(t, "the changes arrive", func() bool {
				return len(all(namespacesIn(s).List(""))) == 2 && team(t, s, "one") == "b" && team(t, s, "three") == "c"
			})

			a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "two", Name: "d"}})
			maps := configMap.In(s.View(followed()...))
			eventually(t, "a ConfigMap arrives", func() bool {
				_, ok := maps.Cached("two", "d")
				return ok && len(all(maps.List("two"))) == 1 && len(all(maps.List(""))) == 2
			})
			if c, ok := maps.Cached("one", "c"); !ok || c.Data != nil {
				t.Errorf("the cache has %v, %v, want a ConfigMap without data", c, ok)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, r := range a.requests {
				if agent := r.Header.Get("User-Agent"); agent != "fastadmit/test" {
					t.Errorf("%s: got user agent %q", r.URL, agent)
				}
			}
		})
	}
	f("protobuf", false, false)
	f("protobuf, lists", false, true)
	f("JSON", true, false)
	f("JSON, lists", true, true)
}

func TestBookmarksMoveOn(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one"))
	s := a.newState(Options{})
	run(t, s)
	heard := s.find(Namespaces.Kind).contact.Load()
	version := a.bookmark()
	eventually(t, "a bookmark counts as heard", func() bool { return s.find(Namespaces.Kind).contact.Load() > heard })
	a.cut()
	eventually(t, "a watch goes on from the bookmark", func() bool {
		return a.count(func(r *http.Request) bool {
			return isWatch(r) && r.URL.Query().Get("resourceVersion") == version
		}) > 0
	})
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
}

func TestWatchIsCut(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	s := a.newState(Options{})
	run(t, s)

	var cuts atomic.Int32
	f := func(name string, failures uint64, answer func(w http.ResponseWriter)) {
		t.Helper()
		cuts.Store(0)
		faults := s.find(Namespaces.Kind).faults.Get()
		a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if isWatch(r) && strings.HasSuffix(r.URL.Path, "/namespaces") && cuts.Add(1) <= 3 {
				answer(w)
				return true
			}
			return false
		})
		a.put(namespace("one", "team", "before "+name))
		a.cut()
		eventually(t, name+": watches are cut", func() bool { return cuts.Load() > 3 })
		if got := s.find(Namespaces.Kind).faults.Get() - faults; got < failures {
			t.Errorf("%s: %d failures were counted, want %d", name, got, failures)
		}
		a.put(namespace("one", "team", "after "+name))
		eventually(t, name+": the change arrives", func() bool { return team(t, s, "one") == "after "+name })
	}
	stream := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", contentType+";stream=watch")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
	}
	f("at once", 3, stream)
	f("within the length of a frame", 3, func(w http.ResponseWriter) {
		stream(w)
		w.Write([]byte{0, 0})
	})
	f("within a frame", 3, func(w http.ResponseWriter) {
		stream(w)
		w.Write([]byte{0, 0, 1, 0, 'x'})
	})
	f("by nonsense", 3, func(w http.ResponseWriter) {
		stream(w)
		w.Write([]byte{0, 0, 0, 1, 'x'})
	})
	// client-go's REST client retries by itself.
	f("before it began", 0, func(http.ResponseWriter) { panic(http.ErrAbortHandler) })
	// After one of these, client-go requests initial events, and lists if that fails.
	f("by an error", 2, func(w http.ResponseWriter) { http.Error(w, "no", http.StatusInternalServerError) })
	f("by too many", 3, func(w http.ResponseWriter) { http.Error(w, "no", http.StatusTooManyRequests) })
}

// TestExpired continues a watch after its version has expired: the deletion is still
// noticed.
func TestExpired(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	a.put(namespace("two", "team", "a"))
	var log logged
	s := a.newState(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	run(t, s)
	heard := s.find(Namespaces.Kind).contact.Load()
	a.bookmark() // after a watch without events, client-go lists at once
	eventually(t, "a bookmark arrives", func() bool { return s.find(Namespaces.Kind).contact.Load() > heard })
	a.forget("two")
	if team(t, s, "two") != "a" {
		t.Error("the last state was given up")
	}
	a.cut()
	eventually(t, "the deletion arrives", func() bool { return team(t, s, "two") == "" })
	if team(t, s, "one") != "a" {
		t.Error("another namespace was lost")
	}
	if !strings.Contains(log.String(), "too old resource version") {
		t.Errorf("the log does not say that the version expired: %s", log.String())
	}
}

// TestNoInitialEvents has API servers that refuse to send initial events: the list after
// that works, so there is no fault. Other answers to the same watch are faults.
func TestNoInitialEvents(t *testing.T) {
	const noProgress = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",` +
		`"reason":"InternalError","code":500,` +
		`"message":"a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled"}}`
	event := func(text string) func(a *apiServer, w http.ResponseWriter, r *http.Request) {
		return func(_ *apiServer, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json;stream=watch")
			fmt.Fprintln(w, text)
		}
	}
	status := func(err *apierrors.StatusError) func(a *apiServer, w http.ResponseWriter, r *http.Request) {
		return func(a *apiServer, w http.ResponseWriter, r *http.Request) { a.fail(w, r, err) }
	}
	f := func(name string, want bool, refuse func(a *apiServer, w http.ResponseWriter, r *http.Request)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			a.put(namespace("one", "team", "a"))
			var refused atomic.Int32
			a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				// After some answers the reflector repeats the watch, so not all are
				// refused.
				if r.URL.Query().Get("sendInitialEvents") != "true" || refused.Add(1) > 4 {
					return false
				}
				refuse(a, w, r)
				return true
			})
			var log logged
			s := a.newState(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			run(t, s)
			a.put(namespace("two"))
			eventually(t, "the watch goes on", func() bool { _, ok := namespacesIn(s).Cached("", "two"); return ok })
			faults := s.find(Namespaces.Kind).faults.Get() + s.find(configMap.Kind).faults.Get()
			if refused.Load() == 0 || (faults > 0) != want || strings.Contains(log.String(), "cannot watch the cluster") != want {
				t.Errorf("%d refused, %d faults, log %q, want faults: %v", refused.Load(), faults, log.String(), want)
			}
		})
	}
	f("etcd without progress", false, event(noProgress))
	f("WatchList is off", false, status(apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)))
	f("an error event of another kind", true,
		event(strings.NewReplacer("InternalError", "TooManyRequests", "500", "429").Replace(noProgress)))
	f("too many requests", true, status(apierrors.NewTooManyRequests("later", 0)))
	f("expired", true, status(apierrors.NewResourceExpired("too old")))
}

// TestAway has no server for a while.
func TestAway(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	var log logged
	s := a.newState(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	run(t, s)
	n := namespacesIn(s)
	a.stop()
	eventually(t, "the failures are counted", func() bool {
		return s.find(Namespaces.Kind).faults.Get() > 2 && s.find(configMap.Kind).faults.Get() > 2
	})
	if got, err := n.Get(t.Context(), "", "one"); err != nil || got.Labels["team"] != "a" {
		t.Errorf("the last state was given up: %v, %v", got, err)
	}
	if err := s.Ready(); err != nil {
		t.Errorf("not ready any more: %v", err)
	}
	if _, err := n.Get(t.Context(), "", "two"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("got %v for what is not known, want an error and not that it is not there", err)
	}
	age := s.find(Namespaces.Kind).age()
	a.put(namespace("one", "team", "b"))
	a.put(namespace("two", "team", "b"))
	a.start()
	eventually(t, "the changes arrive", func() bool { return team(t, s, "one") == "b" && team(t, s, "two") == "b" })
	if again := s.find(Namespaces.Kind).age(); again >= age {
		t.Errorf("the age went from %s to %s", age, again)
	}
	a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "c"}})
	for _, line := range []string{"cannot watch the cluster, continuing with the cached objects", "watching the cluster again"} {
		eventually(t, fmt.Sprintf("the log has a line for each kind with %q", line), func() bool {
			return strings.Count(log.String(), line) == 2
		})
	}
}

// logged collects the lines of a log.
type logged struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// TestNotReady has the first lists fail.
func TestNotReady(t *testing.T) {
	f := func(name, want string, answer func(a *apiServer, w http.ResponseWriter, r *http.Request)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			a.put(namespace("one"))
			var well atomic.Bool
			a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/configmaps") || well.Load() {
					return false
				}
				answer(a, w, r)
				return true
			})
			s := a.newState(Options{})
			if strings.HasPrefix(name, "hangs") { // the others are answered, however late
				s.find(Namespaces.Kind).timing.quiet = 100 * time.Millisecond
			}
			if err := s.Follow(t.Context(), followed()...); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the reason is told", func() bool {
				err := s.Ready()
				if err == nil {
					t.Fatal("ready without a list")
				}
				return strings.Contains(err.Error(), "namespaces are not known yet") && strings.Contains(err.Error(), want) &&
					!strings.Contains(err.Error(), "configmaps")
			})
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Wait(ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Wait: got %v, want an error with %q", err, want)
			}
			well.Store(true)
			eventually(t, "it becomes ready", func() bool { return s.Ready() == nil })
			if _, ok := namespacesIn(s).Cached("", "one"); !ok {
				t.Error("the cache lacks a namespace")
			}
		})
	}
	f("500", "an error on the server", func(_ *apiServer, w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "broken", http.StatusInternalServerError)
	})
	f("403", `namespaces is forbidden: no RBAC`, func(a *apiServer, w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, apierrors.NewForbidden(Namespaces.Resource(), "", fmt.Errorf("no RBAC")))
	})
	f("hangs", errQuiet.Error(), func(_ *apiServer, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f("hangs within a watch", errQuiet.Error(), func(_ *apiServer, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType+";stream=watch")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	f("another kind", `got a "ConfigMapList", want a NamespaceList`, func(a *apiServer, w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		a.write(w, r, http.StatusOK, &corev1.ConfigMapList{Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "one"}}}})
	})
}

// TestNobodyListens has the address of a server that has stopped.
func TestNobodyListens(t *testing.T) {
	a := newAPIServer(t)
	s := a.newState(Options{})
	a.stop()
	if err := s.Follow(t.Context(), followed()...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the reason is told", func() bool { return strings.Contains(s.Ready().Error(), "connection refused") })
	a.start()
	eventually(t, "it becomes ready", func() bool { return s.Ready() == nil })
}

// TestNewerKind has an API server that serves the resource only later.
func TestNewerKind(t *testing.T) {
	a := newAPIServer(t)
	var upgraded atomic.Bool
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path != "/apis/resource.k8s.io/v1/deviceclasses":
			return false
		case !upgraded.Load():
			http.Error(w, "404 page not found", http.StatusNotFound) // kube-apiserver's answer for a group that it does not serve
		case r.URL.Query().Get("sendInitialEvents") == "true":
			a.fail(w, r, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
		case isWatch(r):
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"DeviceClassList","apiVersion":"resource.k8s.io/v1","metadata":{"resourceVersion":"1"},`+
				`"items":[{"metadata":{"name":"gpu"}}]}`)
		}
		return true
	})
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), DeviceClasses.Called("get")); err != nil {
		t.Fatal(err)
	}
	s.find(DeviceClasses.Kind).timing = fastTiming
	if err := s.Follow(t.Context(), DeviceClasses.Watched()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it becomes ready", func() bool { return s.Ready() == nil })
	classes := DeviceClasses.In(s.View(DeviceClasses.Watched()))
	if got := all(classes.List("")); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
	if got := s.find(DeviceClasses.Kind).faults.Get(); got != 0 {
		t.Errorf("got %d failures, want none: the API server is well", got)
	}
	upgraded.Store(true)
	eventually(t, "the object is known", func() bool { return len(all(classes.List(""))) == 1 })
}

// TestQuietWatch has a watch hang after the kind was listed, as a proxy may cause: it is
// restarted.
func TestQuietWatch(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	var log logged
	s := a.newState(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	s.find(Namespaces.Kind).timing.quiet = 100 * time.Millisecond
	var hang atomic.Bool
	var hung atomic.Int32
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !hang.Load() || !isWatch(r) || !strings.HasSuffix(r.URL.Path, "/namespaces") {
			return false
		}
		w.Header().Set("Content-Type", contentType+";stream=watch")
		w.(http.Flusher).Flush()
		hung.Add(1)
		<-r.Context().Done()
		return true
	})
	run(t, s)
	hang.Store(true)
	a.cut()
	eventually(t, "a watch hangs twice", func() bool { return hung.Load() > 1 })
	if !strings.Contains(log.String(), errQuiet.Error()) {
		t.Errorf("the log does not say that %v: %s", errQuiet, log.String())
	}
	a.put(namespace("one", "team", "b"))
	hang.Store(false)
	eventually(t, "the change arrives", func() bool { return team(t, s, "one") == "b" })
}

// TestStop ends the watches, and keeps the cached objects.
func TestStop(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	var log logged
	s := a.newState(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	var open atomic.Int32
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !isWatch(r) {
			return false
		}
		open.Add(1)
		defer open.Add(-1)
		a.watch(w, r, testKinds[strings.TrimPrefix(r.URL.Path, "/api/v1/")])
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Follow(ctx, followed()...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "watches are open", func() bool { return s.Ready() == nil && open.Load() == 2 })
	cancel()
	eventually(t, "watches are closed", func() bool { return open.Load() == 0 })
	if err := s.Ready(); err != nil || team(t, s, "one") != "a" {
		t.Errorf("the state is gone: %v", err)
	}
	if got := log.String(); got != "" {
		t.Errorf("stopping is a failure: %s", got)
	}
}

func TestTLS(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	server := testserver.Unstarted(t, a)
	server.EnableHTTP2 = true
	server.StartTLS()
	certificate := server.Certificate()
	kubeconfig := writeKubeconfig(t, &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pemOf(certificate.Raw),
	})
	s, err := New(Options{Kubeconfig: kubeconfig, Kinds: []*Kind{configMap.Kind}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.Follow(ctx, followed()...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it becomes ready", func() bool { return s.Ready() == nil })
	if a.count(func(r *http.Request) bool { return r.ProtoMajor != 2 }) > 0 {
		t.Error("got requests of another version than HTTP/2, where bookmarks and pings share a connection")
	}
}

func TestMetrics(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one"))
	a.put(namespace("two"))
	set := metrics.NewSet()
	s := a.newState(Options{Metrics: set})
	shown := func() string {
		var w bytes.Buffer
		set.WritePrometheus(&w)
		return w.String()
	}
	want := func(series ...string) {
		t.Helper()
		for _, line := range series {
			if !strings.Contains(shown(), line+"\n") {
				t.Errorf("want %q in\n%s", line, shown())
			}
		}
	}
	names := func() []string {
		var names []string
		for line := range strings.Lines(shown()) {
			names = append(names, strings.Fields(line)[0])
		}
		return names
	}
	run(t, s)
	before := names()
	want(`fastadmit_cluster_watch_failures_total{resource="configmaps"} 0`)
	n := namespacesIn(s)
	if _, err := n.Get(t.Context(), "", "three"); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	want(`fastadmit_cluster_synced{resource="namespaces"} 1`, `fastadmit_cluster_objects{resource="namespaces"} 2`,
		`fastadmit_cluster_objects{resource="configmaps"} 0`,
		`fastadmit_cluster_live_requests_total{resource="namespaces",result="notfound",verb="get"} 1`,
		`fastadmit_cluster_live_requests_total{resource="namespaces",result="done",verb="get"} 0`)
	if after := names(); !slices.Equal(before, after) {
		t.Errorf("series were added: %q, then %q", before, after)
	}
	if !slices.Contains(before, `fastadmit_cluster_state_age_seconds{resource="namespaces"}`) ||
		strings.Contains(shown(), `verb="create"`) {
		t.Errorf("got no age, or requests that nobody makes: %q", before)
	}
	if s.View().Metrics() != set {
		t.Error("plugins have other metrics")
	}

	set = metrics.NewSet()
	s, err := New(Options{Embedded: true, Metrics: set})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Follow(t.Context(), Namespaces.Watched(), Namespaces.Watched()); err != nil {
		t.Fatal(err)
	}
	want(`fastadmit_cluster_synced{resource="namespaces"} 1`, `fastadmit_cluster_objects{resource="namespaces"} 4`)
	if len(names()) != 2 {
		t.Errorf("got %q of files, want nothing about an API server", names())
	}
}

// TestSeries has two caches of a resource: the metrics show the age of the older one, and
// whether both are listed. After one was removed, they show the other one, even if they are
// read meanwhile.
func TestSeries(t *testing.T) {
	old, young := newStore(Namespaces.Kind, nil), newStore(Namespaces.Kind, nil)
	old.began = old.began.Add(-time.Hour)
	close(young.synced)
	for _, stores := range [][]*store{{old, young}, {young, old}} {
		s, err := New(Options{Embedded: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, store := range stores {
			s.addMetrics(store)
		}
		all := s.series["namespaces"]
		if age, synced := all.age(), all.synced(); age < 3600 || synced != 0 {
			t.Errorf("got %v seconds and %v, want at least 3600 and 0", age, synced)
		}
		read := *all.stores.Load()
		s.removeMetrics(old)
		if !slices.Equal(read, stores) {
			t.Errorf("got %v, want what was read to stay", read)
		}
		if age, synced := all.age(), all.synced(); age > 3000 || synced != 1 || len(s.options.Metrics.ListMetricNames()) != 2 {
			t.Errorf("got %v seconds, %v and %v, want those of the other one", age, synced, s.options.Metrics.ListMetricNames())
		}
	}
}

// TestViewsWaitForTheirOwn follows another kind, as after a reload, whose list hangs: users
// of other kinds do not wait.
func TestViewsWaitForTheirOwn(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one"))
	a.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/configmaps") {
			<-r.Context().Done()
		}
		return false
	})
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), followed()...); err != nil {
		t.Fatal(err)
	}
	first, second := s.View(Namespaces.Watched()), s.View(followed()...)
	eventually(t, "namespaces are known", func() bool { return first.Ready() == nil })
	if err := second.Ready(); err == nil || s.Ready() == nil || !strings.Contains(err.Error(), "configmaps are not known yet") {
		t.Errorf("got %v for what is not listed", err)
	}
}

// TestAside follows a kind whose list hangs, for a plugin whose answers nobody gets: the State is ready without
// it, until somebody else needs it.
func TestAside(t *testing.T) {
	a := newAPIServer(t)
	a.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/configmaps") {
			<-r.Context().Done()
		}
		return false
	})
	s := a.newState(Options{})
	aside := configMap.Watched().Aside()
	if err := s.Follow(t.Context(), Namespaces.Watched(), aside); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := s.Wait(waiting); err != nil || s.Ready() != nil {
		t.Errorf("got %v, %v, want it ready", err, s.Ready())
	}
	if err := s.View(aside).Ready(); err == nil {
		t.Error("the plugin is ready without its objects")
	}
	if err := s.Follow(t.Context(), configMap.Watched()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "configmaps are not known yet") {
		t.Errorf("after another need: got %v", err)
	}
}
