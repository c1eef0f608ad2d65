package oracle_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func taintNodesByCondition() suite {
	return suite{
		name: "TaintNodesByCondition", generate: (*generator).node, changes: true,
		variants: []variant{{options: handlers.DefaultOptions()}},
	}
}

// node generates a request about nodes, mostly a creation.
func (g *generator) node() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	operation := admission.Create
	if g.in(5) {
		operation = admission.Update
	}
	c := g.request(operation, corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithResource("nodes"))
	if g.in(12) {
		c.Subresource = "status"
	}
	return g.write(c, g.aNode(), func() runtime.Object { return g.aNode() })
}

func (g *generator) aNode() *corev1.Node {
	node := new(corev1.Node)
	if g.in(16) {
		node = fuzzed[*corev1.Node](g, corev1.SchemeGroupVersion.WithKind("Node"))
	}
	if g.in(2) || node.Kind == "" {
		node.ObjectMeta = g.metadata()
	}
	node.Spec.Taints = some(g, 4, g.taint)
	if g.in(8) {
		node.Spec.Taints = []corev1.Taint{}
	}
	if g.in(4) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: pick(g, corev1.ConditionTrue, corev1.ConditionFalse)}}
	}
	return node
}

func (g *generator) taint() corev1.Taint {
	taint := corev1.Taint{
		Key: pick(g, corev1.TaintNodeNotReady, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady+" ",
			"example.com/gpu", "", `k"<`),
		Value: pick(g, "", "", "v", "é"),
		Effect: pick(g, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute,
			corev1.TaintEffectPreferNoSchedule, "", "noschedule"),
	}
	if g.in(4) {
		taint.TimeAdded = new(metav1.NewTime(time.Unix(1_700_000_000, 0)))
	}
	return taint
}
