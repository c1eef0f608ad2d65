package policy

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// workloadPodsOf returns the value of the annotation, empty for none.
func workloadPodsOf(document metav1.Object) admission.WorkloadPods {
	return admission.WorkloadPods(document.GetAnnotations()[translate.WorkloadPodsAnnotation])
}

func checkWorkloadPods(meta *metav1.ObjectMeta) field.ErrorList {
	value := workloadPodsOf(meta)
	if value == "" {
		return nil
	}
	return oneOf(field.NewPath("metadata", "annotations").Key(translate.WorkloadPodsAnnotation), value,
		[]admission.WorkloadPods{admission.WorkloadPodsOff, admission.WorkloadPodsWarn, admission.WorkloadPodsDeny})
}

// skips reports whether the policy is not evaluated, because the review is that of the Pod of a workload.
func (p *Policy[E]) skips(ctx context.Context) bool {
	return p.workloadPods == admission.WorkloadPodsOff && admission.IsWorkloadPod(ctx)
}

// OnlyWarns reports whether the policy warns instead of denying, because the review is that of the Pod of a workload.
func (p *Policy[E]) OnlyWarns(ctx context.Context) bool {
	return p.workloadPods == admission.WorkloadPodsWarn && admission.IsWorkloadPod(ctx)
}
