package cluster

import (
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestListIsCurrent lists after every change: what was sorted before must not be
// returned again.
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
