package podpreset

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

// A PodPreset is an object of settings.k8s.io/v1alpha1, which Kubernetes had until
// v1.19 (k8s.io/api settings/v1alpha1).
type PodPreset struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec `json:"spec"`

	selector labels.Selector
	bytes    int   // added to a container, as JSON
	fault    error // why the preset cannot be applied
}

// Spec says what a PodPreset adds, and to which pods.
type Spec struct {
	// Selector selects pods by their labels. An empty one selects all pods of the namespace.
	Selector metav1.LabelSelector `json:"selector"`
	// Env, EnvFrom and VolumeMounts are added to each container and init container.
	Env     []corev1.EnvVar        `json:"env,omitempty"`
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Volumes are added to the pod.
	Volumes      []corev1.Volume      `json:"volumes,omitempty"`
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// PodPresets is the kind of PodPresets, with all fields except annotations and managedFields.
var PodPresets = cluster.Define(cluster.Definition{
	Group: "settings.k8s.io", Version: "v1alpha1", Resource: "podpresets", Kind: "PodPreset", Namespaced: true, Optional: true,
}, cluster.Type[*PodPreset]{Keep: func(p *PodPreset) *PodPreset {
	p.ManagedFields, p.Annotations = nil, nil
	p.complete()
	return p
}})

// UnmarshalJSON implements json.Unmarshaler. An invalid spec is not an error here, because
// the other presets of the cluster must be read; the preset is then not applied.
func (p *PodPreset) UnmarshalJSON(text []byte) error {
	object, fault, err := documents.DecodeLenient[Spec](text)
	if err != nil {
		return err
	}
	*p = PodPreset{TypeMeta: object.TypeMeta, ObjectMeta: object.ObjectMeta, Spec: object.Spec, fault: fault}
	p.complete()
	return nil
}

// complete sets the defaults and the fields that are derived from the spec.
func (p *PodPreset) complete() {
	if p.selector != nil || p.fault != nil {
		return
	}
	setDefaults(&p.Spec)
	added, err := json.Marshal(Spec{Env: p.Spec.Env, EnvFrom: p.Spec.EnvFrom, VolumeMounts: p.Spec.VolumeMounts})
	if err != nil {
		p.fault = err
		return
	}
	p.bytes = len(added)
	if p.selector, err = metav1.LabelSelectorAsSelector(&p.Spec.Selector); err != nil {
		p.fault = field.Invalid(field.NewPath("spec", "selector"), p.Spec.Selector, err.Error())
	}
}

// check returns the error of a preset of a file.
func (p *PodPreset) check() error {
	name := fmt.Sprintf("PodPreset %q", p.Name)
	switch s := &p.Spec; {
	case p.fault != nil:
		return fmt.Errorf("%s: %w", name, p.fault)
	case p.Name == "":
		return fmt.Errorf("%s: %w", name, field.Required(field.NewPath("metadata", "name"), ""))
	case p.Namespace == "":
		return fmt.Errorf("%s: %w", name,
			field.Required(field.NewPath("metadata", "namespace"), "want the namespace to whose pods the preset applies"))
	case s.Env == nil && s.EnvFrom == nil && s.Volumes == nil && s.VolumeMounts == nil: // as upstream
		return fmt.Errorf("%s: %w", name,
			field.Required(field.NewPath("spec").Child("volumes", "env", "envFrom", "volumeMounts"), "must specify at least one"))
	}
	return nil
}

// DeepCopyObject implements runtime.Object. It shares the spec, which is never changed.
func (p *PodPreset) DeepCopyObject() runtime.Object {
	c := *p
	c.ObjectMeta = *p.DeepCopy()
	return &c
}
