package schemas

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// TestKeptVersionsOwnTheirNames merges an object whose version is a part of a review.
func TestKeptVersionsOwnTheirNames(t *testing.T) {
	s := New(&fake{paths: map[schema.GroupVersion]string{example: "/a"}, texts: map[string]string{"/a": document("name")}})
	body := admissiontest.Body(codec.Create, "v1/pods", `{"apiVersion":{"group":"example.com","version":"v1"}}`)
	admissiontest.CheckOwned(t, body, func(review *codec.Review) any {
		version := review.Object.Get("apiVersion")
		gvk := schema.GroupVersionKind{Group: version.Get("group").String(), Version: version.Get("version").String(), Kind: "Gadget"}
		if _, ok, err := s.Type(t.Context(), gvk); !ok || err != nil {
			t.Errorf("got %t, %v, want a schema", ok, err)
		}
		return s.parsers.Keys()
	})
}
