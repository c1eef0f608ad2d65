//go:build !race && !poison

package cel

import (
	"testing"

	"github.com/fastadmit/fastadmit/corpus"
)

// TestNoAllocations has nothing allocated for what has a closure.
func TestNoAllocations(t *testing.T) {
	c, body := NewCompiler(false), corpus.MustRead("pods-create-v1-1.json")
	for name, expression := range fourExpressions {
		x := c.Compile(expression, Declarations{}, Bool)
		if x.closure == nil {
			t.Errorf("%s: got no closure", name)
		}
		if n := testing.AllocsPerRun(200, func() { evaluateAll(t, c, []*Expression{x}, body) }); n >= 1 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
}
