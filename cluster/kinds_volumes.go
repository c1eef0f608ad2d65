package cluster

import (
	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
)

// migrated translates volumes of in-tree types that a CSI driver mounts.
var migrated = csitranslation.New()

// trimVolume keeps the fields that tell which CSI driver mounts a volume.
func trimVolume(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	trimmed := &corev1.PersistentVolume{ObjectMeta: trimMeta(&v.ObjectMeta)}
	switch source := &v.Spec.PersistentVolumeSource; {
	case source.CSI != nil:
		trimmed.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: source.CSI.Driver}
	case migrated.IsPVMigratable(v):
		// The translation reads these fields, also to report its errors.
		trimmed.Labels = v.Labels
		trimmed.Spec.PersistentVolumeSource, trimmed.Spec.NodeAffinity = *source, v.Spec.NodeAffinity
		if claim := v.Spec.ClaimRef; claim != nil {
			trimmed.Spec.ClaimRef = &corev1.ObjectReference{Namespace: claim.Namespace}
		}
	}
	return trimmed
}
