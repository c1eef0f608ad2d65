package cluster

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"reflect"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// TestAnswersAreNotMixedUp has concurrent requests that differ in one respect each: no two
// share an answer.
func TestAnswersAreNotMixedUp(t *testing.T) {
	a, maps := uncachedMaps(t)
	for _, in := range []string{"shop", "bank"} {
		for _, name := range []string{"c", "d"} {
			a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}})
		}
	}
	letGo := make(chan struct{})
	a.intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-letGo:
		case <-r.Context().Done():
		}
		return false
	})
	var all sync.WaitGroup
	get := func(ctx context.Context, namespace, name string) {
		all.Go(func() {
			if got, err := maps.GetLive(ctx, namespace, name); err != nil || got.Namespace != namespace || got.Name != name {
				t.Errorf("%s/%s: got %v, %v", namespace, name, got, err)
			}
		})
	}
	list := func(namespace string, want int) {
		all.Go(func() {
			if got, err := maps.ListLive(t.Context(), namespace); err != nil || len(got) != want {
				t.Errorf("%q: got %d objects, %v, want %d", namespace, len(got), err, want)
			}
		})
	}
	get(t.Context(), "shop", "c")
	get(t.Context(), "shop", "d")
	get(t.Context(), "bank", "c")
	get(by(t.Context(), "alice", "shop"), "shop", "c") // requests of other users are queued separately
	list("", 4)
	list("shop", 2)
	list("bank", 2)
	const requests = 7
	eventually(t, "seven requests arrive", func() bool { return a.count(func(*http.Request) bool { return true }) == requests })
	close(letGo)
	all.Wait()
	if got := a.count(func(*http.Request) bool { return true }); got != requests {
		t.Errorf("got %d requests, want %d", got, requests)
	}
}

func TestNamed(t *testing.T) {
	s := &store{kind: configMap.Kind}
	if got := s.named("shop", "c") + s.named("", "c"); got != `configmaps "shop/c"configmaps "c"` {
		t.Errorf("got %s", got)
	}
	if err := Namespaces.checkName("", "a/b"); err == nil || err.Error() != `invalid resource name "a/b": [may not contain '/']` {
		t.Errorf("got %v", err)
	}
}

// TestTenants checks which tenant's share a user's requests count towards.
func TestTenants(t *testing.T) {
	for user, want := range map[string]string{
		"alice": "alice", "": "", "a:b:c": "a:b:c", "system:serviceaccount:": "system:serviceaccount:",
		"system:serviceaccount:shop": "system:serviceaccount:shop", "system:serviceaccount:shop:web": "system:serviceaccount:shop",
		"system:serviceaccount:shop:web:x": "system:serviceaccount:shop",
		"x:system:serviceaccount:shop:web": "x:system:serviceaccount:shop:web",
		"system:serviceaccountx:shop:web":  "system:serviceaccountx:shop:web",
	} {
		if got := tenantOf(user); got != want {
			t.Errorf("%s: got %s, want %s", user, got, want)
		}
	}
}

// TestPutIsListed lists objects of the cluster and objects of Put.
func TestPutIsListed(t *testing.T) {
	a := newAPIServer(t)
	for _, name := range []string{"old", "replaced"} {
		a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string]string{"from": "cluster"}})
	}
	a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "old"}, Data: map[string]string{"from": "cluster"}})
	s := a.newState(Options{Kinds: []*Kind{configMap.Kind}})
	need := configMap.Called("get", "list")
	if err := s.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	maps := configMap.In(s.View(need))
	f := func(namespace, want string) {
		t.Helper()
		list, err := maps.ListLive(t.Context(), namespace)
		var got []string
		for _, c := range list {
			got = append(got, c.Namespace+"/"+c.Name+" "+c.Data["from"])
		}
		slices.Sort(got)
		if err != nil || strings.Join(got, ", ") != want {
			t.Errorf("%q: got %s, %v, want %s", namespace, got, err, want)
		}
	}
	f("shop", "shop/old cluster, shop/replaced cluster")
	put(t, s, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"new","namespace":"shop"},"data":{"from":"file"}}`, true)
	put(t, s, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"replaced","namespace":"shop"},"data":{"from":"file"}}`, true)
	f("shop", "shop/new file, shop/old cluster, shop/replaced file")
	f("bank", "bank/old cluster")
	f("", "bank/old cluster, shop/new file, shop/old cluster, shop/replaced file")
	if got, err := maps.GetLive(t.Context(), "shop", "new"); err != nil || got.Data["from"] != "file" {
		t.Errorf("got %v, %v", got, err)
	}
	put(t, s, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{"name":"x"}}`, false)
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		a.fail(w, r, apierrors.NewForbidden(configMap.Resource(), "", errors.New("no RBAC")))
		return true
	})
	if got, err := maps.ListLive(t.Context(), "shop"); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, %v, want what the API server says", got, err)
	}
}

// TestStoreOfOthers adds objects of other kinds to a store, and deletes objects that it does
// not have.
func TestStoreOfOthers(t *testing.T) {
	s, err := New(Options{Objects: []runtime.Object{namespace("one"), namespace("two")}})
	if err != nil {
		t.Fatal(err)
	}
	namespaces := s.find(Namespaces.Kind)
	if err := namespaces.Add(&corev1.Pod{}); err == nil || !strings.Contains(err.Error(), "got a *v1.Pod, want a *v1.Namespace") {
		t.Errorf("got %v", err)
	}
	if err := namespaces.Delete("one"); err == nil || err.Error() != "cannot delete a string, want an object of namespaces" {
		t.Errorf("got %v", err)
	}
	size := func(want int, deleted string) {
		t.Helper()
		if err := namespaces.Delete(namespace(deleted)); err != nil || namespaces.size() != want {
			t.Errorf("got %d namespaces, %v, want %d", namespaces.size(), err, want)
		}
	}
	size(2, "three")
	size(1, "two")
	size(1, "two")
	size(0, "one")
	size(0, "one")
}

// TestEndedWatchIsNoFault starts a watch whose context has ended.
func TestEndedWatchIsNoFault(t *testing.T) {
	store := newAPIServer(t).newState(Options{}).find(Namespaces.Kind)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.watch(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) || store.fault.Load() != nil {
		t.Errorf("got %v and a fault: %v", err, store.fault.Load() != nil)
	}
}

// TestWatchFaults has watches that do not request initial events. An error event is a fault;
// stopping a watch is none, and leaves no goroutine behind.
func TestWatchFaults(t *testing.T) {
	a := newAPIServer(t)
	state := a.newState(Options{})
	s := state.find(Namespaces.Kind)
	state.addMetrics(s)
	before := goruntime.NumGoroutine()
	for i := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		events, err := s.watch(ctx, metav1.ListOptions{ResourceVersion: "10"})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			cancel()
		} else {
			events.Stop()
		}
		for range events.ResultChan() { // until the channel is closed
		}
		cancel()
	}
	if fault := s.fault.Load(); fault != nil {
		t.Errorf("got fault %v of watches that were ended", *fault)
	}
	eventually(t, "the goroutines end", func() bool { return goruntime.NumGoroutine() < before+20 })
	a.intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json;stream=watch")
		io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure",`+
			`"reason":"InternalError","code":500}}`)
		return true
	})
	events, err := s.watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-events.ResultChan(); event.Type != watch.Error || s.fault.Load() == nil {
		t.Errorf("got %v and no fault: %v, want an error that is one", event, s.fault.Load() == nil)
	}
	events.Stop()
}

// TestEventsKeepAWatch has events arrive before a watch has been quiet for too long.
func TestEventsKeepAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(Namespaces.Kind, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		quiet := time.AfterFunc(s.timing.quiet, func() { cancel(errQuiet) })
		events, body := io.Pipe()
		context.AfterFunc(ctx, func() { events.CloseWithError(ctx.Err()) }) // as the client does
		out, ended := make(chan watch.Event), make(chan error)
		go func() { ended <- s.pass(ctx, newEventReader(events), out, quiet, false) }()
		for range 3 {
			time.Sleep(s.timing.quiet - 1)
			io.WriteString(body, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1"}}}`)
			<-out
		}
		time.Sleep(s.timing.quiet - 1)
		if err := ctx.Err(); err != nil {
			t.Errorf("got %v while events come", err)
		}
		time.Sleep(time.Second)
		if err := <-ended; !errors.Is(err, errQuiet) {
			t.Errorf("got %v, want %v", err, errQuiet)
		}
	})
}

// TestFollowEnds stops following an optional kind, which the API server serves or not.
func TestFollowEnds(t *testing.T) {
	a := newAPIServer(t)
	var served atomic.Bool
	teamsAPI(a, &served)
	for _, is := range []bool{false, true} {
		served.Store(is)
		state := a.newState(Options{})
		if err := state.add(optionalTeams.Kind); err != nil {
			t.Fatal(err)
		}
		s := state.find(optionalTeams.Kind)
		state.addMetrics(s)
		s.timing = fastTiming
		ctx, cancel := context.WithCancel(t.Context())
		var ended atomic.Bool
		go func() {
			s.follow(ctx)
			ended.Store(true)
		}()
		eventually(t, "the kind is known", s.isSynced)
		cancel()
		eventually(t, "following ends", ended.Load)
	}
}

// TestEndedListIsNoFault lists with a context that has ended.
func TestEndedListIsNoFault(t *testing.T) {
	s := newAPIServer(t).newState(Options{}).find(Namespaces.Kind)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.list(ctx, metav1.ListOptions{}); !errors.Is(err, context.Canceled) || s.fault.Load() != nil {
		t.Errorf("got error %v and fault %v, want no fault", err, s.fault.Load())
	}
}

// TestRefused checks the message about an API server that refuses to list.
func TestRefused(t *testing.T) {
	for err, want := range map[error]string{
		apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", errors.New("not you")): "not you",
		apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, ""): "the API server does not have " +
			"the resource namespaces of v1",
	} {
		state := newAPIServer(t).newState(Options{})
		s := state.find(Namespaces.Kind)
		state.addMetrics(s)
		s.refused(err)
		if fault := s.fault.Load(); fault == nil || !strings.Contains((*fault).Error(), want) ||
			want == "not you" && strings.Contains((*fault).Error(), "does not have") {
			t.Errorf("got %v, want %s", fault, want)
		}
	}
}

// TestSubscribe checks which subscribers are notified of changes.
func TestSubscribe(t *testing.T) {
	s, told, others := newStore(Namespaces.Kind, nil), 0, 0
	unsubscribe := s.subscribers.subscribe(func() { told++ })
	s.subscribers.subscribe(func() { others++ })
	if err := errors.Join(s.Add(namespace("one")), s.Delete(namespace("one"))); err != nil {
		t.Fatal(err)
	}
	unsubscribe()
	if err := s.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if told != 2 || others != 3 {
		t.Errorf("told %d and %d times, want twice who unsubscribed, and the other three times", told, others)
	}
}

// TestAuthorizesNothingElse creates an object where only SubjectAccessReviews are answered.
func TestAuthorizesNothingElse(t *testing.T) {
	s, err := New(Options{Objects: []runtime.Object{}, Authorize: func(context.Context, *authorizationv1.SubjectAccessReview) {}})
	if err != nil {
		t.Fatal(err)
	}
	need := Namespaces.Called("create")
	if err := s.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	if created, err := Namespaces.In(s.View(need)).Create(t.Context(), namespace("shop")); err != nil || created.Name != "shop" {
		t.Errorf("got %v, %v", created, err)
	}
}

// TestObjectsStay checks that a State does not change the objects that it is made of.
func TestObjectsStay(t *testing.T) {
	given := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	want := given.DeepCopy()
	if _, err := New(Options{Objects: []runtime.Object{given}}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(given, want) {
		t.Errorf("got %+v, want %+v", given, want)
	}
}

// TestNoKubeconfig has the name of a file that does not exist.
func TestNoKubeconfig(t *testing.T) {
	if _, err := RESTConfig(filepath.Join(t.TempDir(), "none"), ""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that there is no such file", err)
	}
}

// TestWritesInNamespaces creates, changes and deletes an object of a namespaced kind.
func TestWritesInNamespaces(t *testing.T) {
	a := newAPIServer(t)
	var path string
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		path = r.Method + " " + r.URL.Path
		if r.Method == http.MethodDelete {
			a.write(w, r, http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess})
		} else {
			a.write(w, r, http.StatusOK, &corev1.ConfigMap{})
		}
		return true
	})
	s, needs := a.newState(Options{}), []Need{configMap.Called("create", "delete"), configMap.CalledStatus("update")}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	maps := configMap.In(s.View(needs...))
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "c"}}
	if _, err := maps.Create(t.Context(), object); err != nil || path != "POST /api/v1/namespaces/one/configmaps" {
		t.Errorf("got error %v and %s", err, path)
	}
	if _, err := maps.UpdateStatus(t.Context(), object); err != nil || path != "PUT /api/v1/namespaces/one/configmaps/c/status" {
		t.Errorf("got error %v and %s", err, path)
	}
	if err := maps.Delete(t.Context(), "one", "c"); err != nil || path != "DELETE /api/v1/namespaces/one/configmaps/c" {
		t.Errorf("got error %v and %s", err, path)
	}
}

// TestWhole reads a file into a type that lacks fields of the kind.
func TestWhole(t *testing.T) {
	short := Define(Definition{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true},
		Type[*metav1.PartialObjectMetadata]{Whole: wholeConfigMaps.Kind})
	f := func(field, want string) {
		t.Helper()
		s, err := New(Options{Dir: folder(t, map[string]string{
			"a.json": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"one"},"` + field + `":{"k":"v"}}`,
		}), Kinds: []*Kind{short.Kind}})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %q", field, err, want)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := short.In(s.View(short.Watched())).Cached("one", "c"); !ok {
			t.Errorf("%s: got no ConfigMap", field)
		}
	}
	f("data", "")
	f("date", `unknown field "date"`)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "c"}}
	s, err := New(Options{Objects: []runtime.Object{object}, Kinds: []*Kind{short.Kind}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := short.In(s.View(short.Watched())).Cached("one", "c"); !ok {
		t.Error("got no ConfigMap of an object without a kind")
	}
}

// TestListsInstead has the answers after which client-go's reflector lists instead of
// watching.
func TestListsInstead(t *testing.T) {
	resource := schema.GroupResource{Resource: "namespaces"}
	for err, want := range map[error]bool{
		apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil):              true,
		apierrors.NewInternalError(errors.New("the required storage feature")):            true,
		apierrors.NewTooManyRequests("later", 1):                                          false,
		apierrors.NewTimeoutError("slow", 1):                                              false,
		apierrors.NewResourceExpired("old"):                                               false,
		&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone}}: false,
		apierrors.NewForbidden(resource, "", errors.New("no role")):                       true,
		errors.New("connection refused"):                                                  false,
	} {
		if got := listsInstead(err); got != want {
			t.Errorf("%v: got %v", err, got)
		}
	}
}
