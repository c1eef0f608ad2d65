package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/cluster"
)

// waitingContext is a context that notes that a caller waits.
type waitingContext struct {
	context.Context
	waits func()
}

// Done implements context.Context.
func (c waitingContext) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

// TestClusterParams watches kinds of which the API server lists one, refuses to list one,
// does not have one, and does not say whether it has one.
func TestClusterParams(t *testing.T) {
	a := &apiServer{t: t, listing: make(chan struct{}), lists: map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		"/api/v1/configmaps": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"}}`,
	}}
	p := newClusterParams(cluster.DynamicIn(a.view(false)))
	of := func(group, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	}
	maps1, secrets, things, others := of("", "ConfigMap"), of("", "Secret"), of("later", "Thing"), of("failing", "Other")
	use := func(want map[schema.GroupVersionKind]string, kinds ...schema.GroupVersionKind) {
		t.Helper()
		used := make(map[schema.GroupVersionKind]wanted)
		for _, kind := range kinds {
			used[kind] = wanted{{name: "a"}: {}, {namespace: anyNamespace, name: "a"}: {}}
		}
		failed := p.use(t.Context(), used)
		if len(failed) != len(want) {
			t.Errorf("got errors %v, want %v", failed, want)
		}
		for kind, text := range want {
			if got := fmt.Sprint(failed[kind]); !strings.HasPrefix(got, text) || strings.HasSuffix(text, "'") && got != text {
				t.Errorf("%v: got %s, want %s", kind, got, text)
			}
		}
		if got := slices.Collect(maps.Keys(*p.watched.Load())); len(got) != len(kinds) {
			t.Errorf("got %v, want %v", got, kinds)
		}
	}
	said := func(kind schema.GroupVersionKind) string {
		name, watched := p.of(kind)
		err, waiting := p.unready(kind)
		ctx := waitingContext{t.Context(), func() { t.Errorf("%v: a review waits for a list that was made or failed", kind) }}
		objects, known, paramsErr := p.OfKind(ctx,
			admissionregistrationv1.ParamKind{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind})
		if known {
			if _, paramsErr = objects.Get(ctx, "shop", "a"); apierrors.IsNotFound(paramsErr) {
				paramsErr = nil
			}
		}
		return fmt.Sprintf("%q %v; %v %v; %v %v %v", name, watched, err != nil, waiting, objects != nil, known, paramsErr != nil)
	}
	f := func(kind schema.GroupVersionKind, want string) {
		t.Helper()
		if got := said(kind); got != want {
			t.Errorf("%v: got %s, want %s", kind, got, want)
		}
	}
	// settled is when the objects of a kind were listed, or could not be.
	settled := func(kind schema.GroupVersionKind) {
		eventually(t, func() string { _, waiting := p.unready(kind); return fmt.Sprint(waiting) }, "false")
	}
	const failed = "failed to find resource referenced by paramKind: "
	const ready, refused, unknown, none = `"configmaps" true; false false; true true false`, `"secrets" true; true false; true true true`,
		`%q true; true false; false false false`, `"" false; false false; false false false`

	f(maps1, none)
	use(map[schema.GroupVersionKind]string{
		things: failed + "'later/v1, Kind=Thing'", others: failed + "'failing/v1, Kind=Other': ",
	}, maps1, secrets, things, others)
	waited := sync.OnceFunc(func() { close(a.listing) })
	objects, _, _ := p.OfKind(t.Context(), admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"})
	_, _ = objects.Get(waitingContext{t.Context(), waited}, "shop", "a") // the first list
	settled(maps1)
	settled(secrets)
	before := (*p.watched.Load())[maps1]
	f(maps1, ready)
	f(secrets, refused)
	f(things, fmt.Sprintf(unknown, "Thing"))
	f(others, fmt.Sprintf(unknown, "Other"))
	eventually(t, a.watched, "1")

	a.later.Store(true)
	use(nil, maps1, things)
	if (*p.watched.Load())[maps1] != before {
		t.Error("a kind that was watched is watched anew")
	}
	settled(things)
	f(maps1, ready)
	f(things, `"things.later" true; false false; true true false`)
	f(secrets, none)
	f(others, none)
	eventually(t, a.watched, "1")
	use(nil)
	f(maps1, none)
	eventually(t, a.watched, "0")
}
