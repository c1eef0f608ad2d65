package noderestriction

import (
	"maps"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	csitranslation "k8s.io/csi-translation-lib"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/protobuf"
)

// A knownPod has the cached fields of a Pod. A cluster has many pods, and a Pod of
// k8s.io/api takes 1.1 KB even if it is empty.
type knownPod struct {
	knownMeta `json:"metadata"`
	Spec      knownPodSpec `json:"spec"`
}

type knownPodSpec struct {
	NodeName           string          `json:"nodeName,omitempty"`
	ServiceAccountName string          `json:"serviceAccountName,omitempty"`
	Volumes            []corev1.Volume `json:"volumes,omitempty"` // those by which the pod gets tokens or certificates
}

var knownPods = cluster.Define(cluster.Definition{
	Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true,
}, cluster.Type[*knownPod]{Whole: cluster.Pods.Kind, Keep: trimPod})

func trimPod(p *knownPod) *knownPod {
	trimmed := &knownPod{
		knownMeta: knownMeta{Name: p.Name, Namespace: shared(p.Namespace), UID: p.UID, ResourceVersion: p.ResourceVersion},
		Spec: knownPodSpec{
			NodeName: shared(p.Spec.NodeName), ServiceAccountName: shared(p.Spec.ServiceAccountName), Volumes: trimVolumes(p.Spec.Volumes),
		},
	}
	if mirror, ok := p.Annotations[corev1.MirrorPodAnnotationKey]; ok {
		trimmed.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: mirror}
	}
	return trimmed
}

// shared returns a single copy of a text, shared by all pods with an equal text.
func shared(text string) string { return unique.Make(text).Value() }

// GetObjectKind implements runtime.Object. The kind is not cached.
func (p *knownPod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. It shares the volumes, which are never changed.
func (p *knownPod) DeepCopyObject() runtime.Object {
	c := *p
	c.Annotations = maps.Clone(p.Annotations)
	return &c
}

// Reset and Unmarshal decode a pod from protobuf.
func (p *knownPod) Reset() { *p = knownPod{} }

// Unmarshal reads the cached fields. The field numbers of Pod and PodSpec are in k8s.io/api
// core/v1/generated.proto.
func (p *knownPod) Unmarshal(wire []byte) error {
	return protobuf.Fields(wire, func(number protobuf.Number, field []byte) error {
		switch number {
		case 1:
			return p.unmarshalMeta(field)
		case 2:
			return p.Spec.unmarshal(field)
		}
		return nil
	})
}

func (s *knownPodSpec) unmarshal(wire []byte) error {
	return protobuf.Fields(wire, func(number protobuf.Number, field []byte) error {
		switch number {
		case 1:
			s.Volumes = append(s.Volumes, corev1.Volume{})
			return s.Volumes[len(s.Volumes)-1].Unmarshal(field)
		case 8:
			s.ServiceAccountName = string(field)
		case 10:
			s.NodeName = string(field)
		}
		return nil
	})
}

// unmarshalMeta reads an ObjectMeta (k8s.io/apimachinery
// pkg/apis/meta/v1/generated.proto).
func (p *knownPod) unmarshalMeta(wire []byte) error {
	return protobuf.Fields(wire, func(number protobuf.Number, field []byte) error {
		switch number {
		case 1:
			p.Name = string(field)
		case 3:
			p.Namespace = string(field)
		case 5:
			p.UID = types.UID(field)
		case 6:
			p.ResourceVersion = string(field)
		case 12:
			return p.unmarshalAnnotation(field)
		}
		return nil
	})
}

func (p *knownPod) unmarshalAnnotation(wire []byte) error {
	var key, value []byte
	err := protobuf.Fields(wire, func(number protobuf.Number, field []byte) error {
		switch number {
		case 1:
			key = field
		case 2:
			value = field
		}
		return nil
	})
	switch string(key) {
	case corev1.MirrorPodAnnotationKey, metav1.InitialEventsAnnotationKey: // the latter ends the initial list of a watch
		if p.Annotations == nil {
			p.Annotations = make(map[string]string)
		}
		p.Annotations[string(key)] = string(value)
	}
	return err
}

// migrated tells which in-tree volumes are mounted by a CSI driver.
var migrated = csitranslation.New()

// plainVolumes are the cached volumes of nearly every pod, which share them: the token that
// the admission plugin ServiceAccount adds.
var plainVolumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
	Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{projectedToken("")}},
}}}

// madeClaim replaces every template of a claim.
var madeClaim = &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}

// trimVolumes returns the volumes by which a pod gets tokens or certificates: those that project
// them, and those that a CSI driver mounts.
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
	return slices.Clone(trimmed) // without unused capacity
}

func trimSource(volume *corev1.Volume) (trimmed corev1.VolumeSource) {
	projected := trimProjected(volume.Projected)
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
	trimmed.Projected = projected
	return trimmed
}

// trimProjected returns a volume with only the audiences of its tokens and the signers of its
// certificates; nil if it has none.
func trimProjected(projected *corev1.ProjectedVolumeSource) *corev1.ProjectedVolumeSource {
	if projected == nil {
		return nil
	}
	var sources []corev1.VolumeProjection
	for _, source := range projected.Sources {
		if source.ServiceAccountToken != nil {
			sources = append(sources, projectedToken(source.ServiceAccountToken.Audience))
		}
		if source.PodCertificate != nil {
			sources = append(sources, corev1.VolumeProjection{
				PodCertificate: &corev1.PodCertificateProjection{SignerName: source.PodCertificate.SignerName},
			})
		}
	}
	if sources == nil {
		return nil
	}
	return &corev1.ProjectedVolumeSource{Sources: slices.Clone(sources)} // without unused capacity
}

func projectedToken(audience string) corev1.VolumeProjection {
	return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience}}
}
