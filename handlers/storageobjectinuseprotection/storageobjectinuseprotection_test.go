package storageobjectinuseprotection

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const (
	volumes = "v1/persistentvolumes"
	claims  = "v1/persistentvolumeclaims"
	classes = "storage.k8s.io/v1/volumeattributesclasses"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.Mutates(t, Plugin(), "", unprotect, "/metadata/finalizers")
}

func TestAdmit(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(resource, object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, resource, object, want)
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

	// Other finalizers are unchanged, even that of another resource.
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

// TestAdmitFailure has values that cannot be changed: the plugin fails, without panic or
// patch.
func TestAdmitFailure(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(object string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, claims, object)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, body)
	}

	f(`{"metadata":"data"}`)
	f(`{"metadata":{"finalizers":"kubernetes.io/pvc-protection"}}`)
	f(`{"metadata":{"finalizers":{}}}`)
}

func TestHandles(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		body := admissiontest.Body(operation, resource, `{"metadata":{}}`)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, body)
	}

	for _, resource := range [...]string{volumes, claims, classes} {
		f(codec.Create, resource, admission.OutcomePatched)
		f(codec.Update, resource, admission.OutcomeAllowed)
		f(codec.Delete, resource, admission.OutcomeAllowed)
		f(codec.Connect, resource, admission.OutcomeAllowed)
	}
	f(codec.Create, "v1/pods", admission.OutcomeAllowed)
	f(codec.Create, "example.com/v1/persistentvolumeclaims", admission.OutcomeAllowed)
	f(codec.Create, "storage.k8s.io/v1/persistentvolumes", admission.OutcomeAllowed)
	f(codec.Create, "v1/volumeattributesclasses", admission.OutcomeAllowed)
	f(codec.Create, "storage.k8s.io/v1beta1/volumeattributesclasses", admission.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	protected := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, protected)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, unprotect(protected))
}

func BenchmarkAdmit(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "")
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Mutate, want, body) })
	}
	protected := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	f("allowed", admission.OutcomeAllowed, protected)
	f("patched", admission.OutcomePatched, unprotect(protected))
}

// unprotect removes the finalizer that the in-tree plugin added to a recorded review.
func unprotect(body []byte) []byte {
	body = bytes.ReplaceAll(body, []byte(`"finalizers":["kubernetes.io/pvc-protection"],`), nil)
	return bytes.ReplaceAll(body, []byte(`"finalizers":["kubernetes.io/pv-protection"],`), nil)
}
