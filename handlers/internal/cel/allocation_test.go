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

// TestShipped has closures for all that the policies of the chart evaluate.
func TestShipped(t *testing.T) {
	for _, expression := range []string{
		"object.spec.containers + object.spec.?initContainers.orValue([]) + object.spec.?ephemeralContainers.orValue([])",
		"object.spec.containers.filter(c, !has(c.resources) || !('cpu' in c.resources.requests)).map(c, c.name)",
		"object.spec.containers.filter(c, !['a/', 'b/'].exists(r, c.image.startsWith(r))).map(c, c.name + ' (' + c.image + ')').join(', ')",
		"object.kind == 'CronJob' ? object.spec.jobTemplate.spec.template.?metadata.?labels.orValue({}) : object.spec.template.?metadata.?labels.orValue({})",
		"['hostNetwork', 'hostPID'].filter(f, f == 'hostPID' ? object.spec.?hostPID.orValue(false) : object.spec.?hostNetwork.orValue(false))",
		"'images of ' + object.kind + '/' + object.metadata.name",
		"object.metadata.labels.map(l, l.lowerAscii().split('/')[0]).size() > 0",
		"quantity(string(object.spec.containers[0].resources.limits.cpu)).compareTo(quantity('1')) != 1",
		"object.spec.containers.exists_one(c, c.image.find(':[a-z]+$') == ':latest')",
	} {
		if x := NewCompiler(false).Compile(expression, Declarations{}, Any); x.Err != nil || x.closure == nil {
			t.Errorf("%s: got no closure: %v", expression, x.Err)
		}
	}
}
