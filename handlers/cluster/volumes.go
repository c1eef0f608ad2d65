package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	csitranslation "k8s.io/csi-translation-lib"
)

// migrated knows which volumes of Kubernetes' own a CSI driver mounts.
var migrated = csitranslation.New()

// trimVolume keeps what says which CSI driver mounts a volume.
func trimVolume(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	trimmed := &corev1.PersistentVolume{ObjectMeta: trimMeta(&v.ObjectMeta)}
	switch source := &v.Spec.PersistentVolumeSource; {
	case source.CSI != nil:
		trimmed.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: source.CSI.Driver}
	case migrated.IsPVMigratable(v):
		// Whether the translation fails is in these, too.
		trimmed.Labels = v.Labels
		trimmed.Spec.PersistentVolumeSource, trimmed.Spec.NodeAffinity = *source, v.Spec.NodeAffinity
		if claim := v.Spec.ClaimRef; claim != nil {
			trimmed.Spec.ClaimRef = &corev1.ObjectReference{Namespace: claim.Namespace}
		}
	}
	return trimmed
}

// plainVolumes are what is kept of the volumes of nearly every pod: the token for
// the API server that the admission plugin ServiceAccount adds. They share it.
var plainVolumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: projectedTokens("")}}}

// madeClaim stands for any template of a claim.
var madeClaim = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}

// trimVolumes keeps the volumes of a pod by which it gets tokens, itself or for
// the CSI driver that mounts them.
func trimVolumes(volumes []corev1.Volume) []corev1.Volume {
	var trimmed []corev1.Volume
	for i := range volumes {
		if source := trimSource(&volumes[i]); source != (corev1.VolumeSource{}) {
			trimmed = append(trimmed, corev1.Volume{Name: volumes[i].Name, VolumeSource: source})
		}
	}
	if len(trimmed) == 1 && apiequality.Semantic.DeepEqual(trimmed[0].VolumeSource, plainVolumes[0].VolumeSource) {
		return plainVolumes
	}
	return slices.Clone(trimmed) // without room for more
}

func trimSource(volume *corev1.Volume) (trimmed corev1.VolumeSource) {
	tokens := trimTokens(volume.Projected)
	switch {
	case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
		trimmed.Ephemeral = madeClaim
	case volume.PersistentVolumeClaim != nil:
		trimmed.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.PersistentVolumeClaim.ClaimName}
	case volume.CSI != nil:
		trimmed.CSI = &corev1.CSIVolumeSource{Driver: volume.CSI.Driver}
	case migrated.IsInlineMigratable(volume):
		trimmed = volume.VolumeSource
	}
	trimmed.Projected = tokens
	return trimmed
}

// trimTokens keeps the audiences of the tokens in a volume; nil if there are none.
func trimTokens(projected *corev1.ProjectedVolumeSource) *corev1.ProjectedVolumeSource {
	if projected == nil {
		return nil
	}
	var audiences []string
	for _, source := range projected.Sources {
		if source.ServiceAccountToken != nil {
			audiences = append(audiences, source.ServiceAccountToken.Audience)
		}
	}
	if audiences == nil {
		return nil
	}
	return projectedTokens(audiences...)
}

func projectedTokens(audiences ...string) *corev1.ProjectedVolumeSource {
	trimmed := &corev1.ProjectedVolumeSource{Sources: make([]corev1.VolumeProjection, len(audiences))}
	for i, audience := range audiences {
		trimmed.Sources[i].ServiceAccountToken = &corev1.ServiceAccountTokenProjection{Audience: audience}
	}
	return trimmed
}
