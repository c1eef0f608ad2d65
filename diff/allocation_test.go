//go:build !race && !poison

package diff_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/allocs"
)

// TestNoAllocations goes from the raw object to the patch in base64.
func TestNoAllocations(t *testing.T) {
	pod := podObject(t)
	var o codec.Object
	var patch, response []byte
	f := func(name string, run func()) {
		t.Helper()
		run() // the first run grows the pooled memory
		if n := allocs.PerRun(1000, run); n != 0 || o.Err() != nil {
			t.Errorf("%s: got %v allocations, %v, want 0", name, n, o.Err())
		}
		if len(patch) == 0 {
			t.Errorf("%s: no patch", name)
		}
	}
	f("AlwaysPullImages", func() { patch, response = alwaysPull(&o, pod, patch, response) })
	f("every kind of edit", func() {
		o.Reset(pod)
		o.SetString("é", "metadata", "annotations", "example.com/a")
		o.Append(`{"operator":"Exists"}`, "spec", "tolerations")
		o.Remove("spec", "terminationGracePeriodSeconds")
		o.Add(`{"name":"x"}`, "spec", "containers", "0")
		o.Set(`{"app":"other","é":"x"}`, "metadata", "labels")
		patch = diff.AppendPatch(patch[:0], &o)
	})
}
