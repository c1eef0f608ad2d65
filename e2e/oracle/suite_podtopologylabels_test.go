package oracle_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func podTopologyLabelsSuite() suite {
	return suite{
		name: "PodTopologyLabels", generate: (*generator).bound, changes: true,
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).nodes}},
	}
}

func (g *generator) nodeName() string { return pick(g, "", "n0", "n0", "n1", "n1", "n2", "none") }

func (g *generator) topology() map[string]string {
	var labels map[string]string
	for range g.IntN(5) {
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[pick(g, corev1.LabelTopologyZone, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelTopologyRegion,
			"topology.kubernetes.io/rack", "sub.topology.kubernetes.io/zone", "topology.kubernetes.io",
			corev1.LabelFailureDomainBetaZone)] = g.word()
	}
	return labels
}

// nodes generates a world of some nodes.
func (g *generator) nodes() oracle.World {
	var world oracle.World
	for i := range 1 + g.IntN(3) {
		world.Objects = append(world.Objects,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i), Labels: g.topology()}})
	}
	return world
}

// bound generates a request about a pod that may have a node, or a binding.
func (g *generator) bound() *oracle.Case {
	if g.in(2) {
		gvk := corev1.SchemeGroupVersion.WithKind("Binding")
		c := g.request(g.writes(), gvk, pods)
		if c.Subresource = "binding"; g.in(8) {
			c.Resource, c.Subresource = corev1.SchemeGroupVersion.WithResource("bindings"), ""
		}
		return g.write(c, g.binding(), func() runtime.Object { return g.binding() })
	}
	c := g.pod()
	if pod, ok := c.Object.(*corev1.Pod); ok {
		if pod.Spec.NodeName = g.nodeName(); g.in(2) {
			pod.Labels = g.topology()
		}
	}
	return c
}

func (g *generator) binding() *corev1.Binding {
	b := &corev1.Binding{ObjectMeta: g.metadata(), Target: corev1.ObjectReference{
		Kind: pick(g, "Node", "Node", "Node", "node", "Machine", ""), Name: g.nodeName(), APIVersion: pick(g, "", "v1", "example.com/v1"),
	}}
	if g.in(2) {
		b.Labels = g.topology()
	}
	return b
}
