package storageobjectinuseprotection

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const (
	volumes = "v1/persistentvolumes"
	claims  = "v1/persistentvolumeclaims"
	classes = "storage.k8s.io/v1/volumeattributesclasses"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	handlertest.Mutates(t, Plugin(), "", unprotect, "/metadata/finalizers")
}

func TestAdmit(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	f := func(resource, object, want string) {
		t.Helper()
		handlertest.CheckAdmit(t, chain, resource, object, want)
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
	chain := handlertest.MustChain(t, Plugin(), "")
	f := func(object string) {
		t.Helper()
		body := handlertest.Body(codec.Create, claims, object)
		handlertest.CheckOutcome(t, chain, handlers.Mutate, handlers.OutcomeErrored, body)
	}

	f(`{"metadata":"data"}`)
	f(`{"metadata":{"finalizers":"kubernetes.io/pvc-protection"}}`)
	f(`{"metadata":{"finalizers":{}}}`)
}

func TestHandles(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	f := func(operation codec.Operation, resource string, want handlers.Outcome) {
		t.Helper()
		body := handlertest.Body(operation, resource, `{"metadata":{}}`)
		handlertest.CheckOutcome(t, chain, handlers.Mutate, want, body)
	}

	for _, resource := range [...]string{volumes, claims, classes} {
		f(codec.Create, resource, handlers.OutcomePatched)
		f(codec.Update, resource, handlers.OutcomeAllowed)
		f(codec.Delete, resource, handlers.OutcomeAllowed)
		f(codec.Connect, resource, handlers.OutcomeAllowed)
	}
	f(codec.Create, "v1/pods", handlers.OutcomeAllowed)
	f(codec.Create, "example.com/v1/persistentvolumeclaims", handlers.OutcomeAllowed)
	f(codec.Create, "storage.k8s.io/v1/persistentvolumes", handlers.OutcomeAllowed)
	f(codec.Create, "v1/volumeattributesclasses", handlers.OutcomeAllowed)
	f(codec.Create, "storage.k8s.io/v1beta1/volumeattributesclasses", handlers.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	protected := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomeAllowed, protected)
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, unprotect(protected))
}

func BenchmarkAdmit(b *testing.B) {
	chain := handlertest.MustChain(b, Plugin(), "")
	f := func(name string, want handlers.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { handlertest.Benchmark(b, chain, handlers.Mutate, want, body) })
	}
	protected := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	f("allowed", handlers.OutcomeAllowed, protected)
	f("patched", handlers.OutcomePatched, unprotect(protected))
}

// unprotect takes the finalizers away that in-tree gave what was recorded.
func unprotect(body []byte) []byte {
	body = bytes.ReplaceAll(body, []byte(`"finalizers":["kubernetes.io/pvc-protection"],`), nil)
	return bytes.ReplaceAll(body, []byte(`"finalizers":["kubernetes.io/pv-protection"],`), nil)
}
