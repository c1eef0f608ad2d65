package noderestriction

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// knownMeta is the cached metadata of a pod. It takes 72 bytes; a metav1.ObjectMeta takes
// 248. It implements metav1.Object: setting a field that is not cached has no effect.
type knownMeta struct {
	Name            string            `json:"name,omitempty"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             types.UID         `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

func (m *knownMeta) GetName() string                              { return m.Name }
func (m *knownMeta) SetName(name string)                          { m.Name = name }
func (m *knownMeta) GetNamespace() string                         { return m.Namespace }
func (m *knownMeta) SetNamespace(namespace string)                { m.Namespace = namespace }
func (m *knownMeta) GetUID() types.UID                            { return m.UID }
func (m *knownMeta) SetUID(uid types.UID)                         { m.UID = uid }
func (m *knownMeta) GetResourceVersion() string                   { return m.ResourceVersion }
func (m *knownMeta) SetResourceVersion(version string)            { m.ResourceVersion = version }
func (m *knownMeta) GetAnnotations() map[string]string            { return m.Annotations }
func (m *knownMeta) SetAnnotations(annotations map[string]string) { m.Annotations = annotations }

func (*knownMeta) GetGenerateName() string                       { return "" }
func (*knownMeta) SetGenerateName(string)                        {}
func (*knownMeta) GetGeneration() int64                          { return 0 }
func (*knownMeta) SetGeneration(int64)                           {}
func (*knownMeta) GetSelfLink() string                           { return "" }
func (*knownMeta) SetSelfLink(string)                            {}
func (*knownMeta) GetCreationTimestamp() metav1.Time             { return metav1.Time{} }
func (*knownMeta) SetCreationTimestamp(metav1.Time)              {}
func (*knownMeta) GetDeletionTimestamp() *metav1.Time            { return nil }
func (*knownMeta) SetDeletionTimestamp(*metav1.Time)             {}
func (*knownMeta) GetDeletionGracePeriodSeconds() *int64         { return nil }
func (*knownMeta) SetDeletionGracePeriodSeconds(*int64)          {}
func (*knownMeta) GetLabels() map[string]string                  { return nil }
func (*knownMeta) SetLabels(map[string]string)                   {}
func (*knownMeta) GetFinalizers() []string                       { return nil }
func (*knownMeta) SetFinalizers([]string)                        {}
func (*knownMeta) GetOwnerReferences() []metav1.OwnerReference   { return nil }
func (*knownMeta) SetOwnerReferences([]metav1.OwnerReference)    {}
func (*knownMeta) GetManagedFields() []metav1.ManagedFieldsEntry { return nil }
func (*knownMeta) SetManagedFields([]metav1.ManagedFieldsEntry)  {}
