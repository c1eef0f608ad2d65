//go:build poison

package codec_test

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// TestKeptStringsAreGarbage keeps what is valid until Release for longer.
func TestKeptStringsAreGarbage(t *testing.T) {
	r := codec.Acquire()
	fill(t, r) // to grow what it keeps: what is left behind in smaller arenas is not overwritten
	kept := fill(t, r)
	clone := strings.Clone(kept["abc"])
	for want, got := range kept {
		if got != want {
			t.Errorf("before Release: got %q, want %q", got, want)
		}
	}
	patch := r.Response.Patch
	r.Release()
	kept["a patch"] = string(patch)
	for want, got := range kept {
		if got != strings.Repeat("\xdb", len(want)) {
			t.Errorf("%q is still there after Release: got %q", want, got)
		}
	}
	if clone != "abc" {
		t.Errorf("the clone is %q", clone)
	}
}

// fill returns strings that are valid until r is released, by what they are.
func fill(t *testing.T, r *codec.Review) map[string]string {
	t.Helper()
	body := []byte(v1Head + `{"uid":"1","object":{"a":"\u0061\u0062\u0063","b":[1,2]}}}`)
	if err := r.Decode(body); err != nil {
		t.Fatal(err)
	}
	r.Object.SetString("kept too long", "c")
	r.Object.Set("3", "b", "0")
	r.Response.Patch = append(r.Response.Patch, "a patch"...)
	return map[string]string{
		"abc":             r.Object.Get("a").String(),
		`"kept too long"`: r.Object.Get("c").JSON(),
		"[3,2]":           r.Object.Get("b").JSON(),
	}
}
