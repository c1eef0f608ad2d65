package storageobjectinuseprotection

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const (
	volumes = `{"group":"","version":"v1","resource":"persistentvolumes"}`
	claims  = `{"group":"","version":"v1","resource":"persistentvolumeclaims"}`
	classes = `{"group":"storage.k8s.io","version":"v1","resource":"volumeattributesclasses"}`
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestAdmit(t *testing.T) {
	f := func(resource, object, want string) {
		t.Helper()
		if got := admitted(t, resource, object); !equalJSON(t, got, want) {
			t.Errorf("%s %s: got %s, want %s", resource, object, got, want)
		}
		if again := admitted(t, resource, want); !equalJSON(t, again, want) {
			t.Errorf("%s %s: mutating twice is not mutating once: got %s", resource, want, again)
		}
	}

	// Upstream's own cases: without and with the finalizer.
	f(claims, `{"kind":"PersistentVolumeClaim","metadata":{"name":"claim","namespace":"ns"}}`,
		`{"kind":"PersistentVolumeClaim","metadata":{"name":"claim","namespace":"ns","finalizers":["kubernetes.io/pvc-protection"]}}`)
	f(claims, `{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}`,
		`{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}`)
	f(volumes, `{"kind":"PersistentVolume","metadata":{"name":"pv"}}`,
		`{"kind":"PersistentVolume","metadata":{"name":"pv","finalizers":["kubernetes.io/pv-protection"]}}`)
	f(volumes, `{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}`,
		`{"metadata":{"finalizers":["kubernetes.io/pv-protection"]}}`)
	f(classes, `{"kind":"VolumeAttributesClass","metadata":{"name":"vac"}}`,
		`{"kind":"VolumeAttributesClass","metadata":{"name":"vac","finalizers":["kubernetes.io/vac-protection"]}}`)
	f(classes, `{"metadata":{"finalizers":["kubernetes.io/vac-protection"]}}`,
		`{"metadata":{"finalizers":["kubernetes.io/vac-protection"]}}`)

	// Other finalizers stay where they are, that of another resource included.
	f(claims, `{"metadata":{"finalizers":["kubernetes.io/pv-protection","example.com/backup"]}}`,
		`{"metadata":{"finalizers":["kubernetes.io/pv-protection","example.com/backup","kubernetes.io/pvc-protection"]}}`)
	f(volumes, `{"metadata":{"finalizers":["example.com/backup","kubernetes.io/pv-protection"]}}`,
		`{"metadata":{"finalizers":["example.com/backup","kubernetes.io/pv-protection"]}}`)

	// Missing, null and empty parents.
	f(claims, `{"metadata":{"finalizers":[]}}`, `{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}`)
	f(claims, `{"metadata":{"finalizers":null}}`, `{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}`)
	f(claims, `{"metadata":null}`, `{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}`)
	f(claims, `{}`, `{"metadata":{"finalizers":["kubernetes.io/pvc-protection"]}}`)
	f(claims, `{"metadata":{"finalizers":[null,1,{}]}}`,
		`{"metadata":{"finalizers":[null,1,{},"kubernetes.io/pvc-protection"]}}`)
}

// What cannot be changed is the plugin's failure: no panic, no patch.
func TestAdmitFailure(t *testing.T) {
	chain := newChain(t)
	f := func(object string) {
		t.Helper()
		if _, outcome := run(t, chain, reviewOf("CREATE", claims, object), nil); outcome != handlers.OutcomeErrored {
			t.Errorf("%s: got %v, want %v", object, outcome, handlers.OutcomeErrored)
		}
	}
	f(`{"metadata":"data"}`)
	f(`{"metadata":{"finalizers":"kubernetes.io/pvc-protection"}}`)
	f(`{"metadata":{"finalizers":{}}}`)
}

func TestHandles(t *testing.T) {
	chain := newChain(t)
	f := func(operation, resource string, want handlers.Outcome) {
		t.Helper()
		if _, outcome := run(t, chain, reviewOf(operation, resource, `{"metadata":{}}`), nil); outcome != want {
			t.Errorf("%s %s: got %v, want %v", operation, resource, outcome, want)
		}
	}
	for _, resource := range [...]string{volumes, claims, classes} {
		f("CREATE", resource, handlers.OutcomePatched)
		f("UPDATE", resource, handlers.OutcomeAllowed)
		f("DELETE", resource, handlers.OutcomeAllowed)
		f("CONNECT", resource, handlers.OutcomeAllowed)
	}
	f("CREATE", `{"group":"","version":"v1","resource":"pods"}`, handlers.OutcomeAllowed)
	f("CREATE", `{"group":"example.com","version":"v1","resource":"persistentvolumeclaims"}`, handlers.OutcomeAllowed)
	f("CREATE", `{"group":"storage.k8s.io","version":"v1","resource":"persistentvolumes"}`, handlers.OutcomeAllowed)
	f("CREATE", `{"group":"","version":"v1","resource":"volumeattributesclasses"}`, handlers.OutcomeAllowed)
	f("CREATE", `{"group":"storage.k8s.io","version":"v1beta1","resource":"volumeattributesclasses"}`, handlers.OutcomeAllowed)
}

func BenchmarkAdmit(b *testing.B) {
	chain := newChain(b)
	f := func(name string, want handlers.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				var outcome handlers.Outcome
				if dst, outcome = run(b, chain, body, dst[:0]); outcome != want {
					b.Fatalf("got %v, want %v", outcome, want)
				}
			}
		})
	}
	f("allowed", handlers.OutcomeAllowed, recording(true))
	f("patched", handlers.OutcomePatched, recording(false))
}

// recording returns the creation of a claim as it was recorded, or without
// the finalizer that in-tree gave it then.
func recording(protected bool) []byte {
	body := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	if protected {
		return body
	}
	return bytes.Replace(body, []byte(`"finalizers":["kubernetes.io/pvc-protection"],`), nil, 1)
}

func reviewOf(operation, resource, object string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","resource":%s,"operation":%q,"object":%s}}`,
		resource, operation, object)
}

func newChain(t testing.TB) *handlers.Chain {
	t.Helper()
	chain, err := handlertest.NewChain(Plugin(), "")
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// run does with a body what the server does and appends the response to dst.
func run(t testing.TB, chain *handlers.Chain, body, dst []byte) ([]byte, handlers.Outcome) {
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	outcome, err := chain.Review(context.Background(), review, handlers.Mutate, handlers.All)
	if err != nil {
		t.Fatal(err)
	}
	return review.AppendResponse(dst), outcome
}

// admitted returns the created object with the response's patch applied by the
// library that kube-apiserver applies it with.
func admitted(t *testing.T, resource, object string) string {
	t.Helper()
	var response struct {
		Allowed bool
		Patch   json.RawMessage
	}
	answer := handlertest.Answer(t, newChain(t), handlers.Mutate, reviewOf("CREATE", resource, object))
	if err := json.Unmarshal(answer, &response); err != nil || !response.Allowed {
		t.Fatalf("%s: got %s (%v), want it allowed", object, answer, err)
	}
	if response.Patch == nil {
		return object
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatalf("%s: %v in %s", object, err, response.Patch)
	}
	applied, err := patch.Apply([]byte(object))
	if err != nil {
		t.Fatalf("%s: %v in %s", object, err, response.Patch)
	}
	return string(applied)
}

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return reflect.DeepEqual(x, y)
}
