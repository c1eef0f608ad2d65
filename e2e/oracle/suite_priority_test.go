package oracle_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func prioritySuite() suite {
	return suite{
		name: "Priority", generate: (*generator).prioritized, denies: true, changes: true,
		variants: []variant{
			{about: "classes", options: handlers.DefaultOptions(), world: (*generator).classes},
			{about: "no classes", options: handlers.DefaultOptions()},
		},
	}
}

func (g *generator) priorityClassName() string {
	return pick(g, "", "", "c0", "c1", "c2", "c3", "system-node-critical", "none", `q"`)
}

func (g *generator) preemption() corev1.PreemptionPolicy {
	return pick(g, corev1.PreemptLowerPriority, corev1.PreemptLowerPriority, corev1.PreemptNever, "", "odd")
}

// classes generates a world of some classes, all with different values, because Kubernetes
// chooses randomly among default classes with the same value.
func (g *generator) classes() oracle.World {
	var world oracle.World
	for _, value := range g.Perm(8)[:g.IntN(5)] {
		class := &schedulingv1.PriorityClass{
			ObjectMeta:    metav1.ObjectMeta{Name: fmt.Sprintf("c%d", len(world.Objects))},
			Value:         priorities[value],
			GlobalDefault: g.in(4),
		}
		if g.in(2) {
			class.PreemptionPolicy = new(g.preemption())
		}
		legacyscheme.Scheme.Default(class)
		world.Objects = append(world.Objects, class)
	}
	return world
}

var priorities = [8]int32{0, 1, -1, 1000, 2_000_000_000, 2_147_483_647, -2_147_483_648, 5}

// prioritized generates a request about a pod, a priority class or another object.
func (g *generator) prioritized() *oracle.Case {
	if g.in(4) {
		gvk := schedulingv1.SchemeGroupVersion.WithKind("PriorityClass")
		c := g.request(g.writes(), gvk, schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"))
		if g.in(12) {
			c.Subresource = "status"
		}
		return g.write(c, g.priorityClass(), func() runtime.Object { return g.priorityClass() })
	}
	c := g.pod()
	for _, object := range []runtime.Object{c.Object, c.OldObject} {
		if pod, ok := object.(*corev1.Pod); ok {
			g.prioritize(&pod.Spec)
		}
	}
	return c
}

func (g *generator) prioritize(spec *corev1.PodSpec) {
	spec.PriorityClassName, spec.Priority, spec.PreemptionPolicy = g.priorityClassName(), nil, nil
	if g.in(3) {
		spec.Priority = new(pick(g, priorities[:]...))
	}
	if g.in(3) {
		spec.PreemptionPolicy = new(g.preemption())
	}
}

func (g *generator) priorityClass() *schedulingv1.PriorityClass {
	class := &schedulingv1.PriorityClass{ObjectMeta: g.metadata(), Value: pick(g, priorities[:]...), GlobalDefault: !g.in(3)}
	class.Namespace = ""
	if g.in(2) {
		class.Name = g.priorityClassName()
	}
	return class
}
