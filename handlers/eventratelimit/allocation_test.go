//go:build !race

package eventratelimit

import (
	"context"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
)

// An Event with known keys allocates nothing, whatever the limits.
func TestNoAllocations(t *testing.T) {
	const most = "qps: 2147483647, burst: 2147483647"
	handler, err := newHandler([]byte(configOf("{type: Server, "+most+"}", "{type: Namespace, "+most+"}",
		"{type: User, "+most+"}", "{type: SourceAndObject, "+most+"}")), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	body := corpus.MustRead("events-update-v1-2.json")
	allocations := testing.AllocsPerRun(200, func() {
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(body); err != nil {
			t.Fatal(err)
		}
		if denial := handler.Validate(context.Background(), review).Denial; denial != nil {
			t.Fatalf("got denial %+v, want none", denial)
		}
	})
	if allocations != 0 {
		t.Errorf("got %v allocations, want 0", allocations)
	}
}
