package runtimeclass

import (
	"fmt"
	"net/http"
	"path"
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// TestLive has classes that are not in the cache.
func TestLive(t *testing.T) {
	handler := admissiontest.LiveHandler(t, Plugin(), func(w http.ResponseWriter, r *http.Request) {
		switch path.Base(r.URL.Path) {
		case "new":
			fmt.Fprint(w, `{"kind":"RuntimeClass","apiVersion":"node.k8s.io/v1","metadata":{"name":"new"},"handler":"h",`+
				`"overhead":{"podFixed":{"cpu":"1"}}}`)
		case "none":
			admissiontest.Failure(w, http.StatusNotFound, "NotFound")
		default:
			admissiontest.Failure(w, http.StatusForbidden, "Forbidden")
		}
	})
	f := func(class string, denied, failed bool, overhead string) {
		t.Helper()
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods",
			fmt.Sprintf(`{"spec":{"runtimeClassName":%q}}`, class))); err != nil {
			t.Fatal(err)
		}
		result := handler.Admit(t.Context(), review)
		if (result.Denial != nil) != denied || (result.Err != nil) != failed || review.Object.Get("spec", "overhead").JSON() != overhead {
			t.Errorf("%s: got %+v and %s", class, result, review.Object.Root().JSON())
		}
	}
	f("new", false, false, `{"cpu":"1"}`)
	f("none", true, false, "")
	f("secret", false, true, "")
	f("a/b", true, false, "") // the name is invalid, so the API server is not asked
}
