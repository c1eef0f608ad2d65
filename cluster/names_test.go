package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestImpossibleNames has invalid names. The error is that of client-go if it would not send
// the request, and otherwise that of an API server. No request is sent.
func TestImpossibleNames(t *testing.T) {
	a, maps := uncachedMaps(t)
	byClient := func(namespace, name string) error {
		return maps.store.client.Get().NamespaceIfScoped(namespace, true).Resource("configmaps").Name(name).Do(t.Context()).Error()
	}
	f := func(namespace, name string, invalid bool, want string) {
		t.Helper()
		before := a.count(isGet)
		got, err := maps.GetLive(t.Context(), namespace, name)
		if got != nil || err == nil || err.Error() != want {
			t.Errorf("%.100q, %.100q: got %v and error %.200v, want %.200s", namespace, name, got, err, want)
		}
		if IsInvalidName(err) != invalid || apierrors.IsNotFound(err) == invalid {
			t.Errorf("%.100q, %.100q: got error %.200v, want an invalid name: %v", namespace, name, err, invalid)
		}
		if n := a.count(isGet) - before; n != 0 {
			t.Errorf("%.100q, %.100q: got %d requests, want none", namespace, name, n)
		}
		if invalid && byClient(namespace, name).Error() != want {
			t.Errorf("%.100q, %.100q: got error %s, want client-go's %s", namespace, name, want, byClient(namespace, name))
		}
	}
	for _, name := range []string{"", ".", "..", "/", "a/b", "../secrets", "%2F", "%"} {
		want := byClient("shop", name).Error()
		f("shop", name, true, want)
		if name != "" {
			f(name, "a", true, byClient(name, "a").Error())
		}
	}
	long := strings.Repeat("n", 254)
	for _, name := range []string{"A", "a b", "a\nb", "\x00", "\xff", "é", "a?b=c", "-a", "a..b", long, strings.Repeat("x", 2<<20)} {
		f("shop", name, false, fmt.Sprintf("configmaps %q not found", name))
		f(name, "a", false, `configmaps "a" not found`)
	}
	f("", "A", false, `configmaps "A" not found`)
	if _, err := maps.GetLive(t.Context(), "shop", long[:253]); !apierrors.IsNotFound(err) || a.count(isGet) != 1 {
		t.Errorf("got %v and %d requests, want that the longest name is asked for", err, a.count(isGet))
	}
}

// TestImpossibleNamespaces lists objects in namespaces with invalid names.
func TestImpossibleNamespaces(t *testing.T) {
	a, maps := uncachedMaps(t)
	if got, err := maps.ListLive(t.Context(), "UPPER"); len(got) != 0 || err != nil {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
	if _, err := maps.ListLive(t.Context(), "a/b"); !IsInvalidName(err) ||
		err.Error() != `invalid namespace "a/b": [may not contain '/']` {
		t.Errorf("got %v, want client-go's refusal", err)
	}
	everything := func(*http.Request) bool { return true }
	if n := a.count(everything); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
	if _, err := maps.ListLive(t.Context(), ""); err != nil || a.count(everything) != 1 {
		t.Errorf("got %v and %d requests, want those of all namespaces", err, a.count(everything))
	}
}

// uncachedMaps returns the ConfigMaps of a cluster, which are not cached.
func uncachedMaps(t *testing.T) (*apiServer, *Objects[*corev1.ConfigMap]) {
	t.Helper()
	a, need := newAPIServer(t), configMap.Called("get", "list")
	state := a.newState(Options{})
	if err := state.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	return a, configMap.In(state.View(need))
}
