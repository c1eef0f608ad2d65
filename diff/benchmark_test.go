package diff_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
)

// alwaysPull returns the patch of AlwaysPullImages for a raw Pod, in the base64
// of the response.
func alwaysPull(o *codec.Object, pod, patch, response []byte) (_, _ []byte) {
	o.Reset(pod)
	for _, list := range [...]string{"initContainers", "containers", "ephemeralContainers"} {
		for i := range o.Get("spec", list).Elements() {
			o.Set(`"Always"`, "spec", list, codec.Index(i), "imagePullPolicy")
		}
	}
	patch = diff.AppendPatch(patch[:0], o)
	return patch, codec.AppendBase64(response[:0], patch)
}

// BenchmarkAlwaysPullImages goes from the raw object to the patch in base64.
func BenchmarkAlwaysPullImages(b *testing.B) {
	pod := podObject(b)
	var o codec.Object
	var patch, response []byte
	b.SetBytes(int64(len(pod)))
	b.ReportAllocs()
	for b.Loop() {
		patch, response = alwaysPull(&o, pod, patch, response)
	}
	if o.Err() != nil || len(response) == 0 {
		b.Fatal(o.Err())
	}
}

// BenchmarkTyped does the same through corev1.Pod.
func BenchmarkTyped(b *testing.B) {
	pod := podObject(b)
	var o codec.Object
	var patch []byte
	b.SetBytes(int64(len(pod)))
	b.ReportAllocs()
	for b.Loop() {
		o.Reset(pod)
		var before, after corev1.Pod
		if err := json.Unmarshal(pod, &before); err != nil {
			b.Fatal(err)
		}
		before.DeepCopyInto(&after)
		for i := range after.Spec.Containers {
			after.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
		}
		if err := diff.Typed(&o, &before, &after); err != nil {
			b.Fatal(err)
		}
		patch = diff.AppendPatch(patch[:0], &o)
	}
}

// BenchmarkDocuments compares the whole Pod with a changed one.
func BenchmarkDocuments(b *testing.B) {
	pod := podObject(b)
	var o codec.Object
	o.Reset(pod)
	o.Set(`"Always"`, "spec", "containers", "0", "imagePullPolicy")
	after := o.Root().AppendJSON(nil)
	b.SetBytes(int64(len(pod)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := diff.Documents(pod, after); err != nil {
			b.Fatal(err)
		}
	}
}
