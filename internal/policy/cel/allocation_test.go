//go:build !race && !poison

package cel

import (
	"maps"
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/allocs"
)

// TestNoAllocations expects closures not to allocate, unless the expression creates a
// text or a list.
func TestNoAllocations(t *testing.T) {
	needsClosures(t)
	c, body := NewCompiler(false), corpus.MustRead("pods-create-v1-1.json")
	expressions := slices.Collect(maps.Values(fourExpressions))
	for _, expression := range append(expressions,
		"request.operation == 'CREATE'", "has(request.dryRun) && has(request.userInfo.groups)", "request.userInfo.username.contains(':')",
		"'a' in request.userInfo.groups",
		"object.kind.startsWith('P')", "object.kind.endsWith('d')", "object.kind.contains('o')", "object.kind.matches('^P')",
		"object.kind in ['Pod', 'Node']", "object.kind < object.apiVersion", "request.operation >= 'CREATE'",
		"size(object.spec.containers) < 3", "size(object.kind) > 2 && size(object.metadata.labels) == 3",
		"object.spec.containers[object.kind == 'Pod' ? 0 : 1].name == object.spec.containers[0].name",
		"object.metadata != null", "null != object.metadata", "object.metadata != 'a'", "'a' != object.metadata",
		"object.metadata == oldObject",
		"object.metadata.?labels.?app.hasValue()", "object.metadata.labels[?'team'].orValue('') == 'storefront'",
		"object.spec.containers[?9].hasValue()", "object.metadata.labels[object.kind == 'Pod' ? 'app' : 'team'] == 'web'",
		"(object.kind == 'Pod' ? object.kind : object.apiVersion) == 'Pod'",
		"object.spec.containers.exists(c, c.name == 'web')", "object.spec.containers.exists_one(c, c.name == 'web')",
		"object.metadata.labels.all(l, l != '')", "!(object.spec.schedulerName in ['a', 'b'])",
	) {
		x := c.Compile(expression, Declarations{}, Bool)
		if x.closure == nil {
			t.Errorf("%s: got no closure", expression)
		}
		if n := allocs.PerRun(200, func() { evaluateAll(t, c, []*Expression{x}, body) }); n >= 1 {
			t.Errorf("%s: got %v allocations, want 0", expression, n)
		}
	}
}

// TestShipped expects closures for all expressions of the chart's policies.
func TestShipped(t *testing.T) {
	needsClosures(t)
	for _, expression := range []string{
		"object.spec.containers + object.spec.?initContainers.orValue([]) + object.spec.?ephemeralContainers.orValue([])",
		"object.spec.containers.filter(c, !has(c.resources) || !('cpu' in c.resources.requests)).map(c, c.name)",
		"object.spec.containers.filter(c, !['a/', 'b/'].exists(r, c.image.startsWith(r))).map(c, c.name + ' (' + c.image + ')').join(', ')",
		"object.kind == 'CronJob' ? object.spec.jobTemplate.spec.template.?metadata.?labels.orValue({}) : " +
			"object.spec.template.?metadata.?labels.orValue({})",
		"['hostNetwork', 'hostPID'].filter(f, f == 'hostPID' ? object.spec.?hostPID.orValue(false) : " +
			"object.spec.?hostNetwork.orValue(false))",
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
