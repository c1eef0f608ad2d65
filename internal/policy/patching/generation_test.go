package patching

import (
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// TestKeepGeneration changes a DaemonSet with the annotation "3" in several ways.
func TestKeepGeneration(t *testing.T) {
	daemonSet := codec.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	of := func(annotation string) string {
		return `{"metadata":{"annotations":{"deprecated.daemonset.template.generation":` + annotation + `}}}`
	}
	f := func(kind codec.GroupVersionKind, after, want string) {
		t.Helper()
		var before, object codec.Object
		before.Reset([]byte(of(`"3"`)))
		object.Reset([]byte(after))
		KeepGeneration(&object, Generation(&before, kind))
		if got := string(object.Root().AppendJSON(nil)); got != want || object.Err() != nil {
			t.Errorf("%s: got %s, %v, want %s", after, got, object.Err(), want)
		}
	}
	for _, without := range []string{"{}", `{"metadata":null}`, `{"metadata":{}}`, `{"metadata":{"annotations":null}}`} {
		f(daemonSet, without, of(`"3"`))
	}
	f(daemonSet, of(`"4"`), of(`"4"`))
	f(daemonSet, of(`"+04"`), of(`"4"`))
	for _, kept := range []string{"null", "[]", `{"metadata":1}`, `{"metadata":{"annotations":["a"]}}`, of(`"x"`), of("null")} {
		f(daemonSet, kept, kept)
	}
	f(codec.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "{}", "{}")
	f(codec.GroupVersionKind{Version: "v1", Kind: "DaemonSet"}, "{}", "{}")
}
