//go:build !race && !poison

package codec_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/allocs"
)

// TestNoAllocations counts the allocations of a request, from Acquire to
// Release.
func TestNoAllocations(t *testing.T) {
	body := corpus.MustRead("pods-create-v1-1.json")
	var patch, response []byte
	f := func(name string, run func(r *codec.Review)) {
		t.Helper()
		once := func() {
			r := codec.Acquire()
			if err := r.Decode(body); err != nil {
				t.Fatal(err)
			}
			run(r)
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			response = r.AppendResponse(response[:0])
			r.Release()
		}
		once() // the first run grows the pooled memory
		if n := allocs.PerRun(1000, once); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
	f("decode", func(*codec.Review) {})
	f("fields", func(r *codec.Review) {
		_, _, _, _ = r.UID(), r.Name(), r.Namespace(), r.Username()
		_, _ = r.SubResource(), r.RequestSubResource()
		_, _, _, _ = r.Kind(), r.Resource(), r.RequestKind(), r.RequestResource()
		_, _ = r.Operation(), r.DryRun()
		for _, group := range r.UserInfo().Get("groups").Elements() {
			group.EqualString("system:masters")
		}
	})
	f("reads", func(r *codec.Review) {
		for _, container := range r.Object.Get("spec", "containers").Elements() {
			_ = container.Get("image").String()
			container.Get("resources", "limits").Len()
			container.Get("securityContext", "privileged").Bool()
		}
		for name, value := range r.Object.Get("metadata", "labels").Members() {
			value.EqualString(name)
		}
		_, _ = r.Object.Get("spec", "terminationGracePeriodSeconds").Int64()
		_ = r.Object.Get("spec", "containers", codec.Index(0), "name").Scalar()
		_ = r.Object.Root().JSON()
	})
	f("edits", func(r *codec.Review) {
		for _, container := range r.Object.Get("spec", "containers").Elements() {
			container.SetString("Always", "imagePullPolicy")
		}
		r.Object.Set(`{"limits":{"cpu":"1"}}`, "spec", "containers", "0", "resources")
		r.Object.SetString("é", "metadata", "annotations", "a")
		r.Object.Append(`{"operator":"Exists"}`, "spec", "tolerations")
		r.Object.SetInt(1000, "spec", "securityContext", "runAsUser")
		r.Object.SetBool(true, "spec", "hostUsers")
		r.Object.Remove("spec", "priority")
		r.Object.Remove("spec", "tolerations", "0")
		patch = patch[:0]
		for edit := range r.Object.Edits() {
			patch = edit.After.AppendJSON(append(patch, edit.Pointer...))
		}
		r.Response.Allowed = true
		r.Response.Patch = append(r.Response.Patch, patch...)
	})
	f("denial", func(r *codec.Review) {
		r.Response.Status = codec.Status{Code: 403, Reason: "Forbidden", Message: "no \"é\""}
	})
}
