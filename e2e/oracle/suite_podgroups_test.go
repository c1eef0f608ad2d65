package oracle_test

import (
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/features"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

// grouped is the suite of the plugin that writes to PodGroups.
func grouped() []suite {
	return []suite{{
		name: "PodGroupProtection", generate: (*generator).groupCase, changes: true, gate: features.GenericWorkload,
		variants: []variant{{options: handlers.DefaultOptions()}},
	}}
}

// groupCase writes a PodGroup.
func (g *generator) groupCase() *oracle.Case {
	if g.in(12) {
		return g.other()
	}
	operation := admission.Create
	if g.in(6) {
		operation = admission.Update
	}
	version := schedulingv1beta1.SchemeGroupVersion
	c := g.request(operation, version.WithKind("PodGroup"), version.WithResource("podgroups"))
	if g.in(12) {
		c.Subresource = "status"
	}
	return g.write(c, g.podGroup(), func() runtime.Object { return g.podGroup() })
}

func (g *generator) podGroup() *schedulingv1beta1.PodGroup {
	group := &schedulingv1beta1.PodGroup{ObjectMeta: g.metadata()}
	if g.in(3) {
		group.Finalizers = append(group.Finalizers, pick(g, "scheduling.k8s.io/podgroup-protection",
			"Scheduling.k8s.io/podgroup-protection"))
	}
	if g.in(2) {
		group.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	} else {
		group.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(g.IntN(4))}
	}
	return group
}
