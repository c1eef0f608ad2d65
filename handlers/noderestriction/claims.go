package noderestriction

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// checkClaimStatus lets a kubelet report the progress of resizing a volume.
func checkClaimStatus(r *request) error {
	if operation := r.Operation(); operation != codec.Update {
		return r.forbidden("unexpected operation %q", operation)
	}
	old, err := claimOf(&r.OldObject)
	if err != nil {
		return err
	}
	claim, err := claimOf(&r.Object)
	if err != nil {
		return err
	}
	if !apiequality.Semantic.DeepEqual(old, claim) {
		return r.forbidden("node %q is not allowed to update fields other than status.quantity and status.conditions: %v",
			r.node, diff.Diff(shownClaim(old), shownClaim(claim)))
	}
	return nil
}

// claimOf returns a claim without the fields that a kubelet may write.
func claimOf(object *codec.Object) (*corev1.PersistentVolumeClaim, error) {
	claim := new(corev1.PersistentVolumeClaim)
	if !object.Root().FitsDecoded() {
		return nil, object.Err()
	}
	if err := quantity.CheckDecoded[corev1.PersistentVolumeClaim](object.Root()); err != nil {
		return nil, err
	}
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(object.Root().JSON()), claim); err != nil {
		return nil, &failureError{fmt.Errorf("cannot read the claim: %w", err)}
	}
	claim.ResourceVersion = "" // optional in a request
	claim.ManagedFields = nil
	claim.Status.Capacity, claim.Status.Conditions = nil, nil
	claim.Status.AllocatedResources, claim.Status.AllocatedResourceStatuses = nil, nil
	return claim, nil
}

// claim is a claim as in-tree formats it in the message of a denial: the JSON of Kubernetes'
// internal types, which have no JSON names (k8s.io/kubernetes pkg/apis/core/types.go).
type claim struct {
	metav1.ObjectMeta
	Spec   claimSpec
	Status claimStatus
}

type claimSpec struct {
	AccessModes               []corev1.PersistentVolumeAccessMode
	Selector                  *metav1.LabelSelector
	Resources                 claimResources
	VolumeName                string
	StorageClassName          *string
	VolumeMode                *corev1.PersistentVolumeMode
	DataSource                *dataSource
	DataSourceRef             *dataSourceRef
	VolumeAttributesClassName *string
}

type claimResources struct{ Limits, Requests corev1.ResourceList }

type dataSource struct {
	APIGroup   *string
	Kind, Name string
}

type dataSourceRef struct {
	APIGroup   *string
	Kind, Name string
	Namespace  *string
}

type claimStatus struct {
	Phase                            corev1.PersistentVolumeClaimPhase
	AccessModes                      []corev1.PersistentVolumeAccessMode
	Capacity                         corev1.ResourceList
	Conditions                       []corev1.PersistentVolumeClaimCondition
	AllocatedResources               corev1.ResourceList
	AllocatedResourceStatuses        map[corev1.ResourceName]corev1.ClaimResourceStatus
	CurrentVolumeAttributesClassName *string
	ModifyVolumeStatus               *modifyVolumeStatus
	HealthStatus                     *healthStatus // since v1.37
}

type modifyVolumeStatus struct {
	TargetVolumeAttributesClassName string
	Status                          corev1.PersistentVolumeClaimModifyVolumeStatus
}

type healthStatus struct {
	HealthConditions   []healthCondition
	LastTransitionTime metav1.Time
}

type healthCondition struct {
	Status          corev1.VolumeHealthStatusType
	Reason, Message string
}

func shownClaim(c *corev1.PersistentVolumeClaim) *claim {
	spec, status := &c.Spec, &c.Status
	shown := &claim{
		ObjectMeta: c.ObjectMeta,
		Spec: claimSpec{
			AccessModes: spec.AccessModes, Selector: spec.Selector, Resources: claimResources(spec.Resources),
			VolumeName: spec.VolumeName, StorageClassName: spec.StorageClassName, VolumeMode: spec.VolumeMode,
			VolumeAttributesClassName: spec.VolumeAttributesClassName,
		},
		Status: claimStatus{
			Phase: status.Phase, AccessModes: status.AccessModes,
			CurrentVolumeAttributesClassName: status.CurrentVolumeAttributesClassName,
		},
	}
	if from := spec.DataSource; from != nil {
		shown.Spec.DataSource = &dataSource{from.APIGroup, from.Kind, from.Name}
	}
	if from := spec.DataSourceRef; from != nil {
		shown.Spec.DataSourceRef = &dataSourceRef{from.APIGroup, from.Kind, from.Name, from.Namespace}
	}
	if modify := status.ModifyVolumeStatus; modify != nil {
		shown.Status.ModifyVolumeStatus = &modifyVolumeStatus{modify.TargetVolumeAttributesClassName, modify.Status}
	}
	if health := status.HealthStatus; health != nil {
		shown.Status.HealthStatus = &healthStatus{LastTransitionTime: health.LastTransitionTime}
		for _, c := range health.HealthConditions {
			shown.Status.HealthStatus.HealthConditions = append(shown.Status.HealthStatus.HealthConditions, healthCondition(c))
		}
	}
	return shown
}
