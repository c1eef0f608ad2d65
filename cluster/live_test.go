package cluster

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/codec"
)

func pemOf(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// hidden returns the namespaces of a cluster that are not cached, because they are not
// watched. Requests for them wait until letGo is closed.
func hidden(t *testing.T) (a *apiServer, n *Objects[*corev1.Namespace], letGo chan struct{}) {
	t.Helper()
	a = newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	letGo = make(chan struct{}, 1)
	a.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-letGo:
		case <-r.Context().Done():
		}
		return false
	})
	n = namespacesIn(a.newState(Options{}))
	return a, n, letGo
}

// waiting returns how many requests have arrived.
func (a *apiServer) waiting() int { return a.count(isGet) }

func TestLiveRequestsAreShared(t *testing.T) {
	a, n, letGo := hidden(t)
	const callers = 32
	var began, callersDone sync.WaitGroup
	for range callers {
		began.Add(1)
		callersDone.Go(func() {
			began.Done()
			if got, err := n.Get(t.Context(), "", "one"); err != nil || got.Labels["team"] != "a" {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	began.Wait()
	eventually(t, "a request arrives", func() bool { return a.waiting() == 1 })
	time.Sleep(50 * time.Millisecond) // a caller that does not wait yet would send a second one
	close(letGo)
	callersDone.Wait()
	if got := n.store.live[verbGet][done].Get(); got >= callers/2 || a.waiting() != int(got) {
		t.Errorf("%d requests of %d callers arrived and %d were counted, want few, and all of them counted", a.waiting(), callers, got)
	}
	if got, err := n.Get(t.Context(), "", "one"); err != nil || got.ManagedFields != nil || got.Annotations["kept"] != "yes" {
		t.Errorf("got %+v, %v, want what a cache would have", got, err)
	}
}

// TestShare checks that concurrent callers with the same question share one request.
func TestShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(Namespaces.Kind, slog.New(slog.DiscardHandler))
		asked, answer := 0, make(chan struct{})
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				if _, err := s.share(t.Context(), "key", "what", func(context.Context) (runtime.Object, error) {
					asked++
					<-answer
					return namespace("one"), nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(answer)
		callers.Wait()
		if asked != 1 {
			t.Errorf("got %d requests, want 1", asked)
		}
	})
}

// TestShareWithoutMemory has the first of the callers that share a request have no memory for the
// answer: the others get it.
func TestShareWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(Namespaces.Kind, slog.New(slog.DiscardHandler))
		asked, answer := 0, make(chan struct{})
		ask := func(poor bool) error {
			_, err := s.share(t.Context(), "key", "what", func(context.Context) (runtime.Object, error) {
				asked++
				<-answer
				if poor {
					return nil, codec.ErrNoMemory
				}
				return namespace("one"), nil
			})
			return err
		}
		var callers sync.WaitGroup
		f := func(n int, poor bool) {
			for range n {
				callers.Go(func() {
					if err := ask(poor); errors.Is(err, codec.ErrNoMemory) != poor {
						t.Errorf("without memory %v: got %v", poor, err)
					}
				})
			}
			synctest.Wait()
		}
		f(1, true)
		f(31, false)
		close(answer)
		callers.Wait()
		if asked < 2 || asked > 32 {
			t.Errorf("got %d requests, want that of the first and at least one of the others", asked)
		}
	})
}

// TestLiveCallerGivesUp ends the caller that started a request.
func TestLiveCallerGivesUp(t *testing.T) {
	a, n, letGo := hidden(t)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := n.Get(ctx, "", "one"); first <- err }()
	eventually(t, "a request arrives", func() bool { return a.waiting() == 1 })
	go func() { _, err := n.Get(t.Context(), "", "one"); second <- err }()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) || apierrors.IsNotFound(err) {
		t.Errorf("got %v, want that the context ended", err)
	}
	if _, err := n.Get(ctx, "", "two"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context ended", err)
	}
	time.Sleep(50 * time.Millisecond) // enough for a request to arrive
	if got := a.count(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/two") }); got != 0 {
		t.Errorf("%d requests were made for a context that had ended", got)
	}
	close(letGo)
	if err := <-second; err != nil {
		t.Errorf("a caller failed with another: %v", err)
	}
}

// TestLiveNotFoundIsAskedAgain creates a namespace after the API server looked for it, and
// before the second caller asks.
func TestLiveNotFoundIsAskedAgain(t *testing.T) {
	a := newAPIServer(t)
	looked, letGo := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.intercept(func(w http.ResponseWriter, r *http.Request) (answered bool) {
		once.Do(func() {
			close(looked)
			<-letGo
			a.fail(w, r, apierrors.NewNotFound(Namespaces.Resource(), "new"))
			answered = true
		})
		return answered
	})
	n := namespacesIn(a.newState(Options{}))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := n.Get(t.Context(), "", "new"); first <- err }()
	<-looked
	a.put(namespace("new"))
	go func() { _, err := n.Get(t.Context(), "", "new"); second <- err }()
	time.Sleep(50 * time.Millisecond) // so that it joins the request; otherwise it sends its own
	close(letGo)
	if err := <-first; !apierrors.IsNotFound(err) || err.Error() != `namespaces "new" not found` {
		t.Errorf("got %v, want the API server's own answer", err)
	}
	if err := <-second; err != nil {
		t.Errorf("got %v for a namespace that was there when it was asked for", err)
	}
}

// TestLiveNotFoundIsAskedTwice has a caller join two requests that find nothing. It does not
// send a third one.
func TestLiveNotFoundIsAskedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(Namespaces.Kind, slog.New(slog.DiscardHandler))
		var answers []chan struct{} // one for each request
		call := func() {
			go func() {
				_, err := s.share(t.Context(), "key", "what", func(context.Context) (runtime.Object, error) {
					answer := make(chan struct{})
					answers = append(answers, answer)
					<-answer
					return nil, apierrors.NewNotFound(Namespaces.Resource(), "new")
				})
				if !apierrors.IsNotFound(err) {
					t.Errorf("got %v, want that there is none", err)
				}
			}()
			synctest.Wait()
		}
		call()
		call()                              // joins the first
		s.flights.Forget("key\x00\x00\x00") // so that the next caller sends its own
		call()
		for _, answer := range answers {
			close(answer)
			synctest.Wait()
		}
		if len(answers) != 2 {
			t.Errorf("got %d requests, want 2", len(answers))
		}
	})
}

// TestLiveFailures has answers that do not tell whether the namespace exists.
func TestLiveFailures(t *testing.T) {
	f := func(name, want string, answer func(a *apiServer, w http.ResponseWriter, r *http.Request)) {
		t.Helper()
		a := newAPIServer(t)
		a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
			answer(a, w, r)
			return true
		})
		n := namespacesIn(a.newState(Options{}))
		if name == "hangs" { // the others are answered, however late
			n.store.timing.live = 200 * time.Millisecond
		}
		got, err := n.Get(t.Context(), "", "one")
		if err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want an error with %q that is not that it is not there", name, got, err, want)
		}
		if got := n.store.live[verbGet][failed].Get(); got != 1 {
			t.Errorf("%s: %d failures were counted, want 1", name, got)
		}
	}
	f("500", `cannot get namespaces "one": `, func(_ *apiServer, w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "broken", http.StatusInternalServerError)
	})
	f("403", `namespaces "one" is forbidden: no RBAC`, func(a *apiServer, w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, apierrors.NewForbidden(Namespaces.Resource(), "one", fmt.Errorf("no RBAC")))
	})
	f("404 of something else", "the server could not find the requested resource",
		func(_ *apiServer, w http.ResponseWriter, r *http.Request) {
			http.NotFound(w, r)
		})
	f("hangs", "context deadline exceeded", func(_ *apiServer, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f("cut", "EOF", func(*apiServer, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	f("nonsense", "couldn't get version/kind", func(_ *apiServer, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("{"))
	})
}

func TestLiveStorm(t *testing.T) {
	a := newAPIServer(t)
	s := a.newState(Options{})
	n := namespacesIn(s)
	for i := range 20 {
		a.put(namespace(fmt.Sprintf("n%d", i)))
	}
	var failures atomic.Int32
	var done sync.WaitGroup
	for i := range 400 {
		done.Go(func() {
			if err := s.Follow(t.Context(), Namespaces.Called("get")); err != nil { // as a reload does
				t.Error(err)
			}
			name := fmt.Sprintf("n%d", i%25) // five of them do not exist
			got, err := n.Get(t.Context(), "", name)
			if is := i%25 < 20; is && (err != nil || got.Name != name) || !is && !apierrors.IsNotFound(err) {
				failures.Add(1)
			}
		})
	}
	done.Wait()
	if got := failures.Load(); got != 0 {
		t.Errorf("%d answers were wrong", got)
	}
}

// A talker is a rate limiter that logs a message about a request, as client-go does for one
// that waited.
type talker struct{ flowcontrol.RateLimiter }

func (talker) Wait(ctx context.Context) error {
	klog.FromContext(ctx).Info("Waited before sending request", "URL", "https://127.0.0.1/"+strings.Repeat("x", 10))
	return nil
}

type talking struct{ rest.Interface }

func (c talking) Get() *rest.Request  { return c.Interface.Get().Throttle(talker{}) }
func (c talking) Post() *rest.Request { return c.Interface.Post().Throttle(talker{}) }
func (c talking) Put() *rest.Request  { return c.Interface.Put().Throttle(talker{}) }

// warnings counts the warnings of the API server, which client-go would write to stderr.
type warnings struct{ atomic.Int32 }

func (w *warnings) HandleWarningHeader(int, string, string) { w.Add(1) }

// TestClientLog has client-go log a message of each kind of request. It goes to the State's
// log, which is bounded, and not to stderr.
func TestClientLog(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("shop"))
	var log strings.Builder
	s := a.newState(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	needs := []Need{Namespaces.Called("get", "list", "create"), ResourceQuotas.CalledStatus("update")}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	warned := new(warnings)
	rest.SetDefaultWarningHandler(warned)
	t.Cleanup(func() { rest.SetDefaultWarningHandler(rest.WarningLogger{}) })
	a.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Warning", `299 - "old"`)
		return false
	})
	f := func(name string, kind *Kind, call func()) {
		t.Helper()
		log.Reset()
		store := s.find(kind)
		store.client = talking{store.client}
		if call(); !strings.Contains(log.String(), "URL=https://127.0.0.1/xxxxxxxxxx") {
			t.Errorf("%s: the log has %q", name, log.String())
		}
		if got := warned.Load(); got != 0 {
			t.Errorf("%s: %d warnings go to stderr", name, got)
		}
	}
	view := s.View(needs...)
	f("get", Namespaces.Kind, func() { _, _ = Namespaces.In(view).GetLive(t.Context(), "", "shop") })
	f("list", Namespaces.Kind, func() { _, _ = Namespaces.In(view).ListLive(t.Context(), "") })
	f("create", Namespaces.Kind, func() { _, _ = Namespaces.In(view).Create(t.Context(), namespace("new")) })
	f("update", ResourceQuotas.Kind, func() {
		_, _ = ResourceQuotas.In(view).UpdateStatus(t.Context(),
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q"}})
	})
}
