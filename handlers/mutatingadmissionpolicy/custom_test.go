package mutatingadmissionpolicy

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// The schemas of a kind of custom resources, and the answers of an API server about it.
const (
	gadgetSchemas = `{"components":{"schemas":{"Gadget":{"type":"object",
		"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Gadget"}],
		"properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},
		"metadata":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
		"spec":{"type":"object","properties":{"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
		"items":{"type":"object","properties":{"name":{"type":"string"},"size":{"type":"integer"}}}},
		"list":{"type":"array","items":{"type":"string"}}}}}}}}}`
	gadgetPaths = `{"paths":{"apis/example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/example.com/v1?hash=1"}}}`
)

// TestCustom merges custom resources with the schemas of an API server.
func TestCustom(t *testing.T) {
	f := func(paths, expression, kind, want string) {
		t.Helper()
		var asked atomic.Pointer[string]
		plugin := Plugin()
		newHandler := plugin.New
		plugin.New = func(setup admission.Setup) (admission.Handler, error) {
			setup.Manifests = []admission.File{{Name: "policy.json",
				Content: []byte(manifest(mutationsOf(t, "ApplyConfiguration", expression)))}}
			return newHandler(setup)
		}
		handler := admissiontest.LiveHandler(t, plugin, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/openapi/v3" && paths == "broken":
				admissiontest.Failure(w, http.StatusForbidden, "Forbidden")
			case r.URL.Path == "/openapi/v3" && paths != "":
				w.Write([]byte(paths))
			case r.URL.RequestURI() == "/openapi/v3/apis/example.com/v1?hash=1":
				asked.Store(new(r.Header.Get("Accept")))
				w.Write([]byte(gadgetSchemas))
			default:
				http.NotFound(w, r)
			}
		})
		review := codec.Acquire()
		defer review.Release()
		body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","name":"g",
			"resource":{"group":"example.com","version":"v1","resource":"gadgets"},"kind":{"group":"example.com","version":"v1","kind":"` +
			kind + `"},
			"object":{"apiVersion":"example.com/v1","kind":"` + kind +
			`","metadata":{"name":"g"},"spec":{"parts":[{"name":"a","size":1}],"list":["x"]}}}}`
		if err := review.Decode([]byte(body)); err != nil {
			t.Fatal(err)
		}
		result := handler.Admit(t.Context(), review)
		got := string(review.Object.Get("spec").AppendJSON(nil))
		if result.Denial != nil {
			got = strings.TrimSpace(http.StatusText(int(result.Denial.Code)) + " " + result.Denial.Reason + ": " + result.Denial.Message)
		}
		if got != want {
			t.Errorf("%s of %s\ngot  %s\nwant %s", expression, kind, got, want)
		}
		if accept := asked.Load(); accept != nil && *accept != "application/json" {
			t.Errorf("asked for %s, want JSON", *accept)
		}
	}
	const parts, list = `Object{spec: Object.spec{parts: [Object.spec.parts{name: "a"}, Object.spec.parts{name: "b"}]}}`,
		`Object{spec: Object.spec{list: ["y"]}}`
	const denied = "Forbidden Invalid: policy 'p' with binding 'b' denied request: error applying patch: "
	f(gadgetPaths, parts, "Gadget", `{"parts":[{"name":"a","size":1},{"name":"b"}],"list":["x"]}`)
	f(gadgetPaths, list, "Gadget", denied+"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.list")
	f(gadgetPaths, `Object{spec: Object.spec{nope: 1}}`, "Gadget", denied+
		"failed to convert patch object to typed object: .spec.nope: field not declared in schema")
	f(gadgetPaths, parts, "Other", denied+"failed to convert patch object to typed object: no corresponding type for "+
		"example.com/v1, Kind=Other")
	f(`{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1"}}}`, parts, "Gadget", "Service Unavailable ServiceUnavailable: "+
		"Resource kind example.com/v1, Kind=Gadget not found. There can be a delay between when CustomResourceDefinitions are created "+
		"and when they are available.")
	// An API server without schemas.
	f("", list, "Gadget", `{"parts":[{"name":"a","size":1}],"list":["y"]}`)
	f("broken", list, "Gadget", denied+"failed to convert patch object to typed object: "+
		"cluster state: cannot read the API server's list of schemas: cluster state: cannot get discovery \"/openapi/v3\":")
}
