package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fastadmit/fastadmit/codec"
)

// reviewIn returns a review of an object in a namespace. end releases it, and reads the next
// review into the same buffer.
func reviewIn(t *testing.T, namespace, next string) (review *codec.Review, end func()) {
	t.Helper()
	text := func(namespace string) []byte {
		return fmt.Appendf(nil,
			`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","namespace":%q}}`, namespace)
	}
	body, other := text(namespace), text(next)
	if len(body) != len(other) {
		t.Fatalf("%q and %q must be of one length", namespace, next)
	}
	review = codec.Acquire()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	return review, func() {
		review.Release()
		copy(body, other)
	}
}

// A gate is a rate limiter without tokens: requests wait until it opens.
type gate struct {
	flowcontrol.RateLimiter
	arrived, open chan struct{}
}

func (g *gate) Wait(context.Context) error {
	g.arrived <- struct{}{}
	<-g.open
	return nil
}

// throttled is a client whose requests wait for the gate.
type throttled struct {
	rest.Interface
	gate *gate
}

func (c throttled) Get() *rest.Request { return c.Interface.Get().Throttle(c.gate) }

// TestSharedRequestOutlivesItsCaller has the caller that starts a shared request give up
// before the URL is built, and overwrites its buffer. A caller that joined must get the
// right object.
func TestSharedRequestOutlivesItsCaller(t *testing.T) {
	f := func(name string, store func(s *State) *store, path string,
		call func(ctx context.Context, s *State, namespace string) (string, error)) {
		t.Helper()
		a := newAPIServer(t)
		for _, name := range []string{"victim", "attack"} {
			a.put(namespace(name, "is", name))
			a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "c"}})
		}
		s := a.newState(Options{})
		if err := s.Follow(t.Context(), configMap.Called("list"), Discovered()); err != nil {
			t.Fatal(err)
		}
		a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/apis/victim/v1" || r.URL.Path == "/apis/attack/v1" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q}`, strings.TrimPrefix(r.URL.Path, "/apis/"))
				return true
			}
			return false
		})
		g := &gate{arrived: make(chan struct{}, 2), open: make(chan struct{})}
		store(s).client = throttled{store(s).client, g}

		first, end := reviewIn(t, "victim", "attack")
		ctx, giveUp := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() { _, err := call(ctx, s, first.Namespace()); gaveUp <- err }()
		<-g.arrived
		giveUp()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the first caller got %v, want that its context ended", name, err)
		}
		end()

		second, endSecond := reviewIn(t, "victim", "attack")
		defer endSecond()
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			if got, err := call(t.Context(), s, second.Namespace()); err != nil || got != "victim" {
				t.Errorf("%s: the second caller got %q, %v, want what belongs to victim", name, got, err)
			}
		}()
		time.Sleep(50 * time.Millisecond) // so that it joins the request; otherwise it sends its own
		close(g.open)
		<-joined
		var paths []string
		a.count(func(r *http.Request) bool { paths = append(paths, r.URL.Path); return true })
		if !slices.Equal(slices.Compact(paths), []string{path}) {
			t.Errorf("%s: the API server was asked for %q, want only %s", name, paths, path)
		}
	}
	f("get", func(s *State) *store { return s.find(Namespaces.Kind) }, "/api/v1/namespaces/victim",
		func(ctx context.Context, s *State, name string) (string, error) {
			got, err := namespacesIn(s).GetLive(ctx, "", name)
			if err != nil {
				return "", err
			}
			return got.Labels["is"], nil
		})
	f("get in a namespace", func(s *State) *store { return s.find(configMap.Kind) }, "/api/v1/namespaces/victim/configmaps/c",
		func(ctx context.Context, s *State, namespace string) (string, error) {
			got, err := configMap.In(s.View(followed()...)).GetLive(ctx, namespace, "c")
			if err != nil {
				return "", err
			}
			return got.Namespace, nil
		})
	f("discovery", func(s *State) *store { return s.find(discovered) }, "/apis/victim/v1",
		func(ctx context.Context, s *State, group string) (string, error) {
			got, err := DiscoveryIn(s.View(Discovered())).Resources(ctx, schema.GroupVersion{Group: group, Version: "v1"})
			if err != nil {
				return "", err
			}
			group, _, _ = strings.Cut(got.GroupVersion, "/")
			return group, nil
		})
	f("list", func(s *State) *store { return s.find(configMap.Kind) }, "/api/v1/namespaces/victim/configmaps",
		func(ctx context.Context, s *State, namespace string) (string, error) {
			got, err := configMap.In(s.View(configMap.Called("list"))).ListLive(ctx, namespace)
			if err != nil || len(got) == 0 {
				return "", err
			}
			return got[0].Namespace, nil
		})
}

// TestImpossibleNameIsOwned keeps the error about a name while the next review is read.
func TestImpossibleNameIsOwned(t *testing.T) {
	review, end := reviewIn(t, "VICTIM", "ATTACK")
	err := Namespaces.checkName("", review.Namespace())
	end()
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Details.Name != "VICTIM" || err.Error() != `namespaces "VICTIM" not found` {
		t.Errorf("got %v, %+v", err, status)
	}
}
