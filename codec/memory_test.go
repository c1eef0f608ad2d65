package codec

import (
	"strings"
	"testing"
)

// TestArenaBytesMax states which memory a pooled Object or Response keeps.
func TestArenaBytesMax(t *testing.T) {
	f := func(size int, kept bool) {
		t.Helper()
		if b := resetArena(make([]byte, size)); (cap(b) == size) != kept || len(b) != 0 {
			t.Errorf("%d: keeps %d bytes, want kept=%v", size, cap(b), kept)
		}
	}
	f(0, true)
	f(1, true)
	f(arenaBytesMax-1, true)
	f(arenaBytesMax, true)
	f(arenaBytesMax+1, false)
}

// TestMemoryKept makes an Object grow and looks at what it keeps.
func TestMemoryKept(t *testing.T) {
	var r Review
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{"a":[` +
		strings.Repeat(`"\u0061",`, 2*nodesMax) + `"\u0061"]}}}`
	long := strings.Repeat("x", arenaBytesMax)
	for range 2 {
		if err := r.Decode([]byte(body)); err != nil {
			t.Fatal(err)
		}
		for i, element := range r.Object.Get("a").Elements() {
			if element.String() != "a" {
				t.Fatalf("element %d is %q", i, element.String())
			}
			r.Object.Set("0", "a", Index(i))
		}
		r.Object.SetString("\n"+long, "b")
		if got := r.Object.Get("b").String(); len(got) != len(long)+1 {
			t.Fatalf("got %d bytes", len(got))
		}
		r.Object.Set("1", long)
		for range r.Object.Edits() {
			continue
		}
		r.Response.Patch = append(r.Response.Patch, long...)
		r.Response.Patch = append(r.Response.Patch, '1')
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	r.reset()
	o := &r.Object
	for name, kept := range map[string]int{
		"arena": cap(o.arena), "plain": cap(o.plain), "pointer": cap(o.pointer), "patch": cap(r.Response.Patch),
	} {
		if kept > arenaBytesMax {
			t.Errorf("%s keeps %d bytes, want at most %d", name, kept, arenaBytesMax)
		}
	}
	if cap(o.nodes) > 2*nodesMax {
		t.Errorf("keeps %d nodes", cap(o.nodes))
	}
}

// TestLookupsKeepNothing looks members up whose names have escapes: what that
// takes must not add up.
func TestLookupsKeepNothing(t *testing.T) {
	var o Object
	o.Reset([]byte(`{"l\u0061bel":{"n\u0061me":"v\u0061lue"}}`))
	for range 1000 {
		if !o.Get("label", "name").EqualString("value") {
			t.Fatal("not there")
		}
	}
	if len(o.plain) != 0 {
		t.Errorf("keeps %d bytes", len(o.plain))
	}
}
