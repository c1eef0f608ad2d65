package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestAuthorizeInFiles has objects instead of an API server, with and without a function
// that answers access reviews.
func TestAuthorizeInFiles(t *testing.T) {
	f := func(authorize func(context.Context, *authorizationv1.SubjectAccessReview), want bool) {
		t.Helper()
		s, err := New(Options{Objects: []runtime.Object{}, Authorize: authorize})
		if err != nil {
			t.Fatal(err)
		}
		need := SubjectAccessReviews.Called("create")
		if err := s.Follow(t.Context(), need); err != nil {
			t.Fatal(err)
		}
		access := AccessIn(s.View(need))
		for _, ask := range []askAccess{access.Review, access.ReviewUncached} {
			if got, err := ask(t.Context(), &authorizationv1.SubjectAccessReviewSpec{User: "ann"}); got.Allowed != want ||
				(err == nil) != want {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		}
	}
	f(func(_ context.Context, review *authorizationv1.SubjectAccessReview) {
		review.Status.Allowed = review.Spec.User == "ann"
	}, true)
	f(nil, false)
}

type noPointer struct{ *corev1.Pod }

// TestWrongPlugins has plugins that use undeclared needs, and that define kinds of types
// that are not objects.
func TestWrongPlugins(t *testing.T) {
	s, err := New(Options{Objects: []runtime.Object{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]func(v *View){
		"the plugin calls create for subjectaccessreviews, but does not declare it in its Needs":         func(v *View) { AccessIn(v) },
		"the plugin uses discovery, but does not declare it in its Needs":                                func(v *View) { DiscoveryIn(v) },
		"the plugin reads teams.example.com, but does not declare them in its Needs":                     func(v *View) { teams.In(v) },
		"the plugin watches kinds that are named at run time, but does not declare Dynamic in its Needs": func(v *View) { DynamicIn(v) },
		"kind Pod: got the type cluster.noPointer, want a pointer to a struct": func(*View) {
			Define(Definition{Version: "v1", Resource: "pods", Kind: "Pod"}, Type[noPointer]{})
		},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, name) {
					t.Errorf("got %s, want %s", got, name)
				}
			}()
			need := SubjectAccessReviews.Called("list")
			if err := s.Follow(t.Context(), need); err != nil {
				t.Fatal(err)
			}
			in(s.View(need, Discovered(), teams.Watched())) // only the first is followed
		}()
	}
}

// TestFollowTwice follows kinds again, and one that cannot be in files.
func TestFollowTwice(t *testing.T) {
	s, err := New(Options{Objects: []runtime.Object{namespace("one")}, Kinds: KindsOf(Discovered(), Dynamic())})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Kinds(); !slices.Equal(got, Kinds()) { // the others cannot be in files
		t.Errorf("got kinds %v", got)
	}
	for range 3 {
		if err := s.Follow(t.Context(), Namespaces.Watched(), configMap.Watched()); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(*s.stores.Load()); got != len(Kinds())+1 {
		t.Errorf("got %d stores, want %d", got, len(Kinds())+1)
	}
	if err := s.Ready(); err != nil {
		t.Errorf("got %v", err)
	}
	if got := configMap.In(s.View(configMap.Watched())).List(""); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if err := s.View(wholeTeams.Watched()).Ready(); err != nil { // not followed
		t.Errorf("got %v", err)
	}
}

// TestCalledIsReady has a plugin that only sends requests about a kind. Others watch it, and
// it is not listed yet.
func TestCalledIsReady(t *testing.T) {
	a := newAPIServer(t)
	a.intercept(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), Namespaces.Watched(), Namespaces.Called("get")); err != nil {
		t.Fatal(err)
	}
	if err := s.View(Namespaces.Watched()).Ready(); err == nil {
		t.Error("what is not known is ready")
	}
	if err := s.View(Namespaces.Called("get")).Ready(); err != nil {
		t.Errorf("got %v of one that watches nothing", err)
	}
}

// TestSchemes checks that all messages of API servers about a kind can be decoded.
func TestSchemes(t *testing.T) {
	for _, kind := range append(Kinds(), discovered) {
		scheme := newScheme(kind)
		for _, gvk := range []schema.GroupVersionKind{
			listKind, {Version: "v1", Kind: "Status"}, kind.version.WithKind("WatchEvent"), kind.version.WithKind("ListOptions"),
		} {
			if !scheme.Recognizes(gvk) {
				t.Errorf("%s: does not know %s", kind, gvk)
			}
		}
	}
	d := Definition{Group: "example.com", Version: "v1", Resource: "geese", Kind: "Goose", NotStored: true}
	if k := DefineJSON(d); k.list != nil || k.protobuf {
		t.Errorf("got a list %T, protobuf %v", k.list, k.protobuf)
	}
	if k := Define(d, Type[*unstructured.Unstructured]{}); k.protobuf {
		t.Error("got protobuf of what has none")
	}
	if _, err := DefineJSON(d).trim(new(corev1.Pod)); err == nil || err.Error() != "got a *v1.Pod, want a *cluster.JSON" {
		t.Errorf("got %v", err)
	}
	list := &listOf[*corev1.Pod]{Items: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}
	list.ResourceVersion = "7"
	other := list.DeepCopyObject().(*listOf[*corev1.Pod])
	if !reflect.DeepEqual(list, other) || other.Items[0] == list.Items[0] {
		t.Errorf("got %+v, want a copy", other)
	}
}

// TestRulesByGroup has the same resource in two groups, and a watched subresource.
func TestRulesByGroup(t *testing.T) {
	other := DefineJSON(Definition{Group: "example.com", Version: "v1", Resource: "pods", Kind: "Pod"})
	if got := Rules(Pods.Called("get"), other.Called("list")); len(got) != 2 || !slices.Equal(got[1].APIGroups, []string{"example.com"}) {
		t.Errorf("got %v", got)
	}
	if need := Pods.CalledStatus("watch"); need.isWatched() {
		t.Error("a subresource is watched")
	}
}

// TestOverdraft has requests that must not overtake, or continue after their callers gave
// up.
func TestOverdraft(t *testing.T) {
	l := newFairLimiter(0.001, 1, metrics.NewSet())
	if l.Accept(); l.TryAccept() {
		t.Error("Accept took nothing")
	}
	const burst = 5
	l = newFairLimiter(1000, burst, metrics.NewSet())
	for range 2 * burst {
		if err := l.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "what nobody takes is there again", func() bool { return l.tokens.Tokens() >= burst })

	l = newFairLimiter(0.001, 3, metrics.NewSet())
	l.dispatching = true // another goroutine dispatches
	l.waiting.add(&turn{granted: make(chan struct{})}, []string{"a"})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := l.Wait(ctx); err == nil {
		t.Error("overtook somebody who waits")
	}
}

// TestObjectsAreRead has objects in all supported types.
func TestObjectsAreRead(t *testing.T) {
	given := namespace("one")
	before := given.DeepCopy()
	raw := func(text string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(text)} }
	s, err := New(Options{Kinds: []*Kind{namespacesAsJSON.Kind}, Objects: []runtime.Object{
		given, &corev1.NamespaceList{Items: []corev1.Namespace{*namespace("two"), *namespace("three")}},
		&metav1.List{Items: []runtime.RawExtension{raw(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"four"}}`)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	needs := []Need{Namespaces.Watched(), namespacesAsJSON.Watched()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	var typed, asJSON []string
	for _, n := range Namespaces.In(s.View(needs...)).List("") {
		typed = append(typed, n.Name)
	}
	for _, n := range namespacesAsJSON.In(s.View(needs...)).List("") {
		asJSON = append(asJSON, n.GetName())
	}
	if want := []string{"four", "one", "three", "two"}; !slices.Equal(typed, want) || !slices.Equal(asJSON, want) {
		t.Errorf("got %v and %v, want %v", typed, asJSON, want)
	}
	if !reflect.DeepEqual(given, before) {
		t.Errorf("changed the object that was given to %v", given)
	}
	for _, object := range []runtime.Object{
		&authorizationv1.SubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Name: "x"}},
		&authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview",
			APIVersion: "authorization.k8s.io/v1"}},
		&authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: "a/b/c"}},
		&corev1.NamespaceList{Items: []corev1.Namespace{{}}}, &metav1.List{Items: []runtime.RawExtension{raw(`{}`)}},
	} {
		_, err := New(Options{Objects: []runtime.Object{object}, Kinds: []*Kind{namespacesAsJSON.Kind}})
		if err == nil || !strings.HasPrefix(err.Error(), "cluster state: object 0: ") ||
			strings.Count(err.Error(), "cluster state: ") != 1 {
			t.Errorf("%T: got %v", object, err)
		}
	}
}

// TestFilesAreWrong has unreadable files, and documents that are not objects.
func TestFilesAreWrong(t *testing.T) {
	f := func(content string, want ...string) {
		t.Helper()
		_, err := New(Options{Dir: folder(t, map[string]string{"a.yaml": content})})
		if err == nil || strings.Count(err.Error(), "cluster state:") != 1 {
			t.Errorf("%q: got %v, want one error", content, err)
		}
		for _, part := range want {
			if !strings.Contains(fmt.Sprint(err), part) {
				t.Errorf("%q: got %v, want %q", content, err, part)
			}
		}
	}
	const review = "apiVersion: authorization.k8s.io/v1\nkind: SubjectAccessReview\nmetadata: {name: x}\n"
	f(review, `got kind "SubjectAccessReview" of apiVersion "authorization.k8s.io/v1", want one of CSIDriver `+
		`(storage.k8s.io/v1), DeviceClass (`)
	f("---\n---\n"+review, "a.yaml:2: document 2: ")
	f("---\n"+review, "a.yaml:1: document 1: ")
	f("apiVersion: v1\nkind: List\nitems: 5\n", "document 1: ")
	f("a: [\n", "a.yaml:1: document 1: yaml: ")

	dir := folder(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: one}\n"})
	if err := os.Symlink("nowhere", filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Dir: dir}); err == nil ||
		!strings.HasPrefix(err.Error(), "cluster state: cannot read "+filepath.Join(dir, "b.yaml")+": ") {
		t.Errorf("got %v", err)
	}
	r := &reader{state: &State{kinds: Kinds()}}
	if known := strings.Split(r.supportedKinds(), ", "); !slices.IsSorted(known) || len(known) != len(Kinds())-1 ||
		strings.Contains(r.supportedKinds(), "SubjectAccessReview") {
		t.Errorf("got %q", known)
	}
}

// TestJSONEdges has JSON that is not an object, and versions of objects.
func TestJSONEdges(t *testing.T) {
	for _, text := range []string{`{`, `{"metadata":1}`, `5`, `{"metadata":{"name":1}}`} {
		if j, err := NewJSON([]byte(text)); err == nil {
			t.Errorf("%s: got %v", text, j)
		}
	}
	if text, err := json.Marshal(new(JSON)); err != nil || string(text) != "null" {
		t.Errorf("got %s, %v", text, err)
	}
	j, err := NewJSON([]byte(`{"metadata":{"name":"n","resourceVersion":"7"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"8": `{"metadata":{"name":"n","resourceVersion":"8"}}`, "": `{"metadata":{"name":"n"}}`} {
		k := j.DeepCopyObject().(*JSON)
		k.SetResourceVersion(version)
		if text, err := json.Marshal(k); err != nil || string(text) != want || k.GetResourceVersion() != version ||
			j.GetResourceVersion() != "7" {
			t.Errorf("got %s, %v, %q, want %s", text, err, k.GetResourceVersion(), want)
		}
	}
	d := Definition{Version: "v1", Resource: "teams", Kind: "Team"}
	const text = `{"apiVersion":"v1","kind":"Team","metadata":{"name":"n","namespace":"s","uid":"u","resourceVersion":"7",` +
		`"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"a":"b"}},` +
		`"spec":{"owner":"ann","size":3},"status":{}}`
	for _, fields := range [][]string{{"spec", "spec.owner"}, {"spec.owner", "spec"}, {"spec.owner", "spec.size"}} {
		if j, err = NewJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		kept, err := DefineJSON(d, fields...).trim(j)
		want := strings.NewReplacer(`,"labels":{"a":"b"}`, "", `,"status":{}`, "").Replace(text)
		if got, _ := json.Marshal(kept); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", fields, got, err, want)
		}
	}
}
