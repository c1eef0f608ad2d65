// Package schedulingv1alpha2 has the fields of PodGroups and Workloads that plugins read, as in
// scheduling.k8s.io/v1alpha2. Kubernetes 1.36 alone serves this version (behind the feature gate
// GenericWorkload), and its libraries have no Go types of it since 1.37.
//
// Behaviour: k8s.io/api v0.36 scheduling/v1alpha2.
package schedulingv1alpha2

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the types.
var SchemeGroupVersion = schema.GroupVersion{Group: "scheduling.k8s.io", Version: "v1alpha2"}

// A PodGroup is a group of pods that are scheduled together.
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec PodGroupSpec `json:"spec"`
}

// A PodGroupSpec is the desired state of a PodGroup.
type PodGroupSpec struct {
	// PodGroupTemplateRef names the template of the group.
	PodGroupTemplateRef *PodGroupTemplateReference `json:"podGroupTemplateRef,omitempty"`

	// SchedulingPolicy says how the pods are scheduled.
	SchedulingPolicy PodGroupSchedulingPolicy `json:"schedulingPolicy"`
}

// A PodGroupTemplateReference names the template of a PodGroup.
type PodGroupTemplateReference struct {
	Workload *WorkloadPodGroupTemplateReference `json:"workload,omitempty"`
}

// A WorkloadPodGroupTemplateReference names a template of a Workload in the same namespace.
type WorkloadPodGroupTemplateReference struct {
	WorkloadName         string `json:"workloadName"`
	PodGroupTemplateName string `json:"podGroupTemplateName"`
}

// A PodGroupSchedulingPolicy has one of its fields.
type PodGroupSchedulingPolicy struct {
	Basic *BasicSchedulingPolicy `json:"basic,omitempty"` // each pod alone
	Gang  *GangSchedulingPolicy  `json:"gang,omitempty"`  // all pods or none
}

// A BasicSchedulingPolicy schedules each pod alone.
type BasicSchedulingPolicy struct{}

// A GangSchedulingPolicy schedules at least MinCount pods at once.
type GangSchedulingPolicy struct {
	MinCount int32 `json:"minCount"`
}

// A Workload has templates of PodGroups.
type Workload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec WorkloadSpec `json:"spec"`
}

// A WorkloadSpec is the desired state of a Workload.
type WorkloadSpec struct {
	PodGroupTemplates []PodGroupTemplate `json:"podGroupTemplates"`
}

// A PodGroupTemplate describes PodGroups.
type PodGroupTemplate struct {
	Name             string                   `json:"name"`
	SchedulingPolicy PodGroupSchedulingPolicy `json:"schedulingPolicy"`
}

// DeepCopyObject implements runtime.Object.
func (g *PodGroup) DeepCopyObject() runtime.Object {
	copied := &PodGroup{TypeMeta: g.TypeMeta, ObjectMeta: *g.DeepCopy(), Spec: g.Spec}
	if of := g.Spec.PodGroupTemplateRef; of != nil {
		copied.Spec.PodGroupTemplateRef = &PodGroupTemplateReference{Workload: clone(of.Workload)}
	}
	copied.Spec.SchedulingPolicy = g.Spec.SchedulingPolicy.deepCopy()
	return copied
}

// DeepCopyObject implements runtime.Object.
func (w *Workload) DeepCopyObject() runtime.Object {
	copied := &Workload{TypeMeta: w.TypeMeta, ObjectMeta: *w.DeepCopy()}
	copied.Spec.PodGroupTemplates = slices.Clone(w.Spec.PodGroupTemplates)
	for i := range copied.Spec.PodGroupTemplates {
		template := &copied.Spec.PodGroupTemplates[i]
		template.SchedulingPolicy = template.SchedulingPolicy.deepCopy()
	}
	return copied
}

func (p PodGroupSchedulingPolicy) deepCopy() PodGroupSchedulingPolicy {
	return PodGroupSchedulingPolicy{Basic: clone(p.Basic), Gang: clone(p.Gang)}
}

func clone[T any](v *T) *T {
	if v == nil {
		return nil
	}
	return new(*v)
}
