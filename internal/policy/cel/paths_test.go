package cel

import (
	"strings"
	"testing"
)

func TestPaths(t *testing.T) {
	c := NewCompiler(true)
	for _, v := range [][2]string{
		{"spec", "object.spec.template.spec"}, {"image", "variables.spec.containers[0].image"}, {"broken", "object."},
		{"object", "object.metadata"}, {"sum", "size(object.spec.a) + size(object.spec.b)"},
		{"loop", "object.spec.list.all(x, x.a == 1)"},
	} {
		c.AddVariable(v[0], v[1], Declarations{})
	}
	f := func(text string, want ...string) {
		t.Helper()
		x := c.Compile(text, Declarations{}, Bool)
		if x.Err != nil && want != nil {
			t.Errorf("%s: %v", text, x.Err)
		}
		got, wanted := strings.Join(c.Paths(x), " "), strings.Join(want, " ")
		if got != wanted {
			t.Errorf("%s: got %q, want %q", text, got, wanted)
		}
	}
	f("object.spec.replicas >= 2", "spec.replicas")
	f("object.spec.?replicas.orValue(1) >= 2", "spec.replicas")
	f("has(object.spec.paused) || oldObject.spec.x == 1 || request.name == 'a'", "spec.paused")
	f("object.metadata.labels['app.kubernetes.io/name'] == object.metadata.name",
		`metadata.labels["app.kubernetes.io/name"]`, "metadata.name")
	f("object.spec.containers[1].image == 'a' && object.spec.containers[size(object.spec.x)].name == 'b'",
		"spec.containers[*].name", "spec.containers[1].image", "spec.x")
	f("object.spec.containers.all(c, c.image != '' && c.ports.exists(p, p.hostPort == object.spec.port))",
		"spec.containers[*].image", "spec.containers[*].ports[*].hostPort", "spec.port")
	f("object.spec.ports.all(object, object.x == 1)", "spec.ports[*].x")
	f("object.metadata.labels.all(k, v, v != k)", "metadata.labels[*]")
	f("object.spec.containers.map(c, c.name).exists(n, n.x == 1)", "spec.containers[*].name")
	f("[1].all(x, x > 0 && object.spec.list.all(x, x.b == 1) && x < 2)", "spec.list[*].b")
	f("object.spec.list.all(x, object.spec.other.all(x, x.a == 1) && x.b == 1)", "spec.list[*].b", "spec.other[*].a")
	f("variables.image.startsWith('a') && variables.spec.x == 1", "spec.template.spec.containers[0].image", "spec.template.spec.x")
	f("object.spec.list.all(x, variables.object.name == x.y && variables.sum == 1)", "metadata.name", "spec.a", "spec.b", "spec.list[*].y")
	f("object.spec.other.all(x, variables.loop && x.b == 1)", "spec.list[*].a", "spec.other[*].b")
	f("{object.spec.b: object.spec.a}.size() == [object.spec.c].size()", "spec.a", "spec.b", "spec.c")
	f("object.spec.__namespace__ == 1 && object == oldObject", "spec.namespace")
	f("object.spec.a == 1 || object.spec['a-b'] == 1 || object.spec.a.c == 1", "spec.a-b", "spec.a.c") // sorted between both
	f("object != null")
	f("1 + 1") // not of the wanted type
	f("object.spec.replicas >=")
	f("variables.broken == 1")
	f("object" + strings.Repeat(".a", 200) + " == 1")
	var many strings.Builder
	many.WriteString("true")
	for i := range 30 {
		many.WriteString(" && object.spec." + strings.Repeat("a", i+1) + " == 1")
	}
	if got := c.Paths(c.Compile(many.String(), Declarations{}, Bool)); len(got) != pathsMax {
		t.Errorf("got %d paths, want %d", len(got), pathsMax)
	}
}
