package main

import (
	"encoding/json"
	"testing"

	"github.com/google/pprof/profile"
)

// sampleOf returns a sample whose stack has these functions, the innermost first.
func sampleOf(value int64, stack ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{value}}
	for _, name := range stack {
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	return s
}

const (
	serveConn = "github.com/valyala/fasthttp.(*Server).serveConn"
	handle    = "github.com/fastadmit/fastadmit/internal/server.(*Server).handle"
	wrapped   = "github.com/fastadmit/fastadmit/internal/server.(*conn).Read"
)

func TestCount(t *testing.T) {
	f := func(want int64, stack ...string) {
		t.Helper()
		p := &profile.Profile{
			SampleType: []*profile.ValueType{{Type: "cpu"}},
			Sample:     []*profile.Sample{sampleOf(7, stack...), sampleOf(1, "runtime.mallocgc", "net/http.(*conn).serve")},
		}
		ours, all, where := count(p, "cpu")
		if ours != want || all != 8 || (where == "") != (want == 0) {
			t.Errorf("got %d of %d at %q, want %d of 8", ours, all, where, want)
		}
	}
	f(7, handle, serveConn)
	f(7, "runtime.mallocgc", "strings.Clone", "github.com/fastadmit/fastadmit/codec.(*Review).Decode", handle, serveConn)
	f(7, "runtime.mallocgc", "github.com/valyala/fasthttp.(*URI).QueryArgs", handle, serveConn)
	f(7, "main.privileged", handle, serveConn)
	f(0, "runtime.mallocgc", "crypto/tls.(*Conn).Read", wrapped, "bufio.(*Reader).Read", serveConn)
	f(7, "runtime.mallocgc", wrapped, "bufio.(*Reader).Read", serveConn)
	f(0, "github.com/valyala/fasthttp.(*Request).ReadBody", serveConn)
	f(0, "github.com/fastadmit/fastadmit/internal/server.(*listener).Accept", "github.com/valyala/fasthttp.(*Server).Serve")
	f(0, "github.com/fastadmit/fastadmit/internal/server.(*serverMetrics).write", "net/http.(*conn).serve")
}

func TestBudget(t *testing.T) {
	var budget map[string]bound
	if err := json.Unmarshal(bounds, &budget); err != nil {
		t.Fatal(err)
	}
	for _, scenario := range []string{"validate", "mutate", "ten"} {
		b, ok := budget[scenario]
		if !ok || b.Allocations != 0 || b.Instructions <= 0 || b.CPUShare <= 0 || b.CPUShare >= 1 || b.Target > b.CPUShare {
			t.Errorf("%s: got %+v", scenario, b)
		}
	}
}
