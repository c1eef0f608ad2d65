package oracle_test

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/features"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

// grouped are the suites of the plugins that read PodGroups.
func grouped() []suite {
	in := []variant{{options: handlers.DefaultOptions(), world: (*generator).podGroups}}
	return []suite{
		{name: "PodGroupProtection", generate: (*generator).groupCase, changes: true, gate: features.GenericWorkload,
			variants: []variant{{options: handlers.DefaultOptions()}}},
		{name: "PodGroupWorkloadExists", generate: (*generator).groupCase, denies: true, gate: features.GenericWorkload, variants: in},
		{name: "JobValidation", generate: (*generator).jobCase, denies: true, gate: features.GenericWorkload, variants: in},
	}
}

// podGroups generates a world of Workloads and PodGroups.
func (g *generator) podGroups() oracle.World {
	var world oracle.World
	for _, namespace := range []string{"shop", "kube-system"} {
		for _, name := range []string{"a", "b", "deleted"} {
			if g.in(4) {
				continue
			}
			workload := &schedulingv1alpha2.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			if name == "deleted" {
				workload.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
			}
			for _, template := range []string{"worker", "driver", ""} {
				if g.in(2) {
					workload.Spec.PodGroupTemplates = append(workload.Spec.PodGroupTemplates,
						schedulingv1alpha2.PodGroupTemplate{Name: template})
				}
			}
			group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
			group.Spec.SchedulingPolicy = g.schedulingPolicy()
			group.OwnerReferences = some(g, 2, func() metav1.OwnerReference {
				return metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: g.jobUID(),
					Controller: maybe(g, func() bool { return !g.in(4) })}
			})
			world.Objects = append(world.Objects, workload, group)
		}
	}
	return world
}

func (g *generator) jobUID() types.UID { return pick[types.UID](g, "", "u1", "u2", "u3") }

func (g *generator) schedulingPolicy() schedulingv1alpha2.PodGroupSchedulingPolicy {
	if g.in(2) {
		return schedulingv1alpha2.PodGroupSchedulingPolicy{Basic: &schedulingv1alpha2.BasicSchedulingPolicy{}}
	}
	return schedulingv1alpha2.PodGroupSchedulingPolicy{Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: int32(g.IntN(4))}}
}

// groupName generates the name of a Workload or PodGroup, which may not exist or may be
// invalid.
func (g *generator) groupName() string {
	return pick(g, "a", "a", "b", "deleted", "missing", "", ".", "..", "a/b", "%2F", "UPPER", `q"`)
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
	version := schedulingv1alpha2.SchemeGroupVersion
	c := g.request(operation, version.WithKind("PodGroup"), version.WithResource("podgroups"))
	if g.in(12) {
		c.Subresource = "status"
	}
	return g.write(c, g.podGroup(), func() runtime.Object { return g.podGroup() })
}

func (g *generator) podGroup() *schedulingv1alpha2.PodGroup {
	group := &schedulingv1alpha2.PodGroup{ObjectMeta: g.metadata()}
	if g.in(3) {
		group.Finalizers = append(group.Finalizers, pick(g, "scheduling.k8s.io/podgroup-protection",
			"Scheduling.k8s.io/podgroup-protection"))
	}
	group.Spec.SchedulingPolicy = g.schedulingPolicy()
	if g.in(6) {
		return group
	}
	group.Spec.PodGroupTemplateRef = new(schedulingv1alpha2.PodGroupTemplateReference)
	if !g.in(6) {
		group.Spec.PodGroupTemplateRef.Workload = &schedulingv1alpha2.WorkloadPodGroupTemplateReference{
			WorkloadName: g.groupName(), PodGroupTemplateName: pick(g, "worker", "driver", "", "é"),
		}
	}
	return group
}

// jobCase writes a Job, mostly an update of the parallelism.
func (g *generator) jobCase() *oracle.Case {
	if g.in(12) {
		return g.other()
	}
	operation := admission.Update
	if g.in(12) {
		operation = admission.Create
	}
	version := batchv1.SchemeGroupVersion
	c := g.request(operation, version.WithKind("Job"), version.WithResource("jobs"))
	if g.in(12) {
		c.Subresource = "status"
	}
	job := &batchv1.Job{ObjectMeta: g.metadata()}
	job.UID = g.jobUID()
	job.Spec.Parallelism = maybe(g, func() int32 { return int32(g.IntN(3)) })
	if !g.in(3) {
		job.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: maybe(g, g.groupName)}
	}
	c.Unordered = true // if a Job has several gangs, either may be named
	return g.write(c, job, func() runtime.Object {
		old := job.DeepCopy()
		old.Spec.Parallelism = maybe(g, func() int32 { return int32(g.IntN(3)) })
		switch g.IntN(6) {
		case 0:
			old.UID, old.Namespace = g.jobUID(), pick(g, "", "shop", "kube-system")
		case 1:
			old.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: maybe(g, g.groupName)}
		}
		return old
	})
}
