package cluster

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// TestListIsCurrent lists after every change: an earlier sorted list must not be returned
// again.
func TestListIsCurrent(t *testing.T) {
	s := newStore(configMap.Kind, slog.New(slog.DiscardHandler))
	maps := &Objects[*corev1.ConfigMap]{store: s, watched: true}
	object := func(namespace, name, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(value)}}
	}
	show := func(namespace string) string {
		var shown []string
		for _, m := range maps.List(namespace) {
			shown = append(shown, m.Namespace+"/"+m.Name+"="+string(m.UID))
		}
		return strings.Join(shown, " ")
	}
	f := func(about string, err error, inA, inAll string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", about, err)
		}
		if got := show("a"); got != inA {
			t.Errorf("%s: got %q in the namespace, want %q", about, got, inA)
		}
		if got := show(""); got != inAll {
			t.Errorf("%s: got %q in all, want %q", about, got, inAll)
		}
	}
	f("nothing", nil, "", "")
	f("add", s.Add(object("a", "2", "x")), "a/2=x", "a/2=x")
	f("add before it", s.Add(object("a", "1", "x")), "a/1=x a/2=x", "a/1=x a/2=x")
	f("add the same", s.Add(object("a", "1", "y")), "a/1=y a/2=x", "a/1=y a/2=x")
	f("update", s.Update(object("a", "2", "z")), "a/1=y a/2=z", "a/1=y a/2=z")
	f("add elsewhere", s.Add(object("b", "3", "x")), "a/1=y a/2=z", "a/1=y a/2=z b/3=x")
	f("delete", s.Delete(object("a", "1", "")), "a/2=z", "a/2=z b/3=x")
	f("delete what is not there", s.Delete(object("a", "1", "")), "a/2=z", "a/2=z b/3=x")
	f("replace", s.Replace([]any{object("a", "4", "x")}, ""), "a/4=x", "a/4=x")
	f("delete the last", s.Delete(object("a", "4", "")), "", "")
	if s.size() != 0 {
		t.Errorf("got %d objects, want none", s.size())
	}
}

// TestSecondList lists objects again: unchanged ones are reused, and none is trimmed twice.
func TestSecondList(t *testing.T) {
	trimmed, kind := 0, *configMap.Kind
	kind.trim = func(object runtime.Object) (runtime.Object, error) {
		trimmed++
		return configMap.trim(object)
	}
	s := newStore(&kind, slog.New(slog.DiscardHandler))
	list := func(gather bool, uids ...types.UID) (kept []Object) {
		t.Helper()
		objects := make([]any, len(uids))
		for i, uid := range uids {
			objects[i] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "a", Name: strconv.Itoa(i), UID: uid, ResourceVersion: "7", Labels: map[string]string{"not": "kept"},
			}}
			if gather {
				var err error
				if objects[i], err = s.Transformer()(objects[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.Replace(objects, ""); err != nil {
			t.Fatal(err)
		}
		for i, uid := range uids {
			object, _ := s.lookup("a", strconv.Itoa(i))
			if object == nil || object.GetUID() != uid || object.GetLabels() != nil {
				t.Fatalf("got %v, want one trimmed with the UID %s", object, uid)
			}
			kept = append(kept, object)
		}
		return kept
	}
	for _, gather := range []bool{false, true} {
		first := list(gather, "x", "y")
		trimmed = 0
		second := list(gather, "x", "z") // as after etcd was restored: other objects have the same version
		if second[0] != first[0] || second[1] == first[1] {
			t.Errorf("gathered %t: got the same object %t and %t, want true and false", gather, second[0] == first[0],
				second[1] == first[1])
		}
		if trimmed != 2 {
			t.Errorf("gathered %t: got %d calls of Keep for 2 objects", gather, trimmed)
		}
	}
}
