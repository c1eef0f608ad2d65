package podsecuritypolicy

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

// A PodSecurityPolicy is an object of policy/v1beta1, which Kubernetes had until v1.24
// (k8s.io/api policy/v1beta1).
type PodSecurityPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec `json:"spec"`

	rules *rules
	fault error // why the policy is invalid
}

// Spec says what pods may do, and sets fields that they leave out.
type Spec struct {
	Privileged               bool                `json:"privileged,omitempty"`
	DefaultAddCapabilities   []corev1.Capability `json:"defaultAddCapabilities,omitempty"`
	RequiredDropCapabilities []corev1.Capability `json:"requiredDropCapabilities,omitempty"`
	AllowedCapabilities      []corev1.Capability `json:"allowedCapabilities,omitempty"`
	Volumes                  []string            `json:"volumes,omitempty"`

	HostNetwork bool            `json:"hostNetwork,omitempty"`
	HostPorts   []HostPortRange `json:"hostPorts,omitempty"`
	HostPID     bool            `json:"hostPID,omitempty"`
	HostIPC     bool            `json:"hostIPC,omitempty"`

	SELinux            SELinuxOptions `json:"seLinux"`
	RunAsUser          IDOptions      `json:"runAsUser"`
	RunAsGroup         *IDOptions     `json:"runAsGroup,omitempty"`
	SupplementalGroups IDOptions      `json:"supplementalGroups"`
	FSGroup            IDOptions      `json:"fsGroup"`

	ReadOnlyRootFilesystem          bool  `json:"readOnlyRootFilesystem,omitempty"`
	DefaultAllowPrivilegeEscalation *bool `json:"defaultAllowPrivilegeEscalation,omitempty"`
	AllowPrivilegeEscalation        *bool `json:"allowPrivilegeEscalation,omitempty"` // nil is true

	AllowedHostPaths      []AllowedHostPath      `json:"allowedHostPaths,omitempty"`
	AllowedFlexVolumes    []AllowedFlexVolume    `json:"allowedFlexVolumes,omitempty"`
	AllowedCSIDrivers     []AllowedCSIDriver     `json:"allowedCSIDrivers,omitempty"`
	AllowedUnsafeSysctls  []string               `json:"allowedUnsafeSysctls,omitempty"`
	ForbiddenSysctls      []string               `json:"forbiddenSysctls,omitempty"`
	AllowedProcMountTypes []corev1.ProcMountType `json:"allowedProcMountTypes,omitempty"`
	RuntimeClass          *RuntimeClassOptions   `json:"runtimeClass,omitempty"`
}

// HostPortRange is a range of ports of nodes, both ends included.
type HostPortRange struct {
	Min int32 `json:"min"`
	Max int32 `json:"max"`
}

// IDRange is a range of user or group IDs, both ends included.
type IDRange struct {
	Min int64 `json:"min"`
	Max int64 `json:"max"`
}

// IDOptions say which user or group IDs are allowed.
type IDOptions struct {
	Rule   string    `json:"rule,omitempty"`
	Ranges []IDRange `json:"ranges,omitempty"`
}

// SELinuxOptions say which SELinux labels are allowed.
type SELinuxOptions struct {
	Rule           string                 `json:"rule"`
	SELinuxOptions *corev1.SELinuxOptions `json:"seLinuxOptions,omitempty"`
}

// AllowedHostPath is a path of nodes; it includes the paths below it.
type AllowedHostPath struct {
	PathPrefix string `json:"pathPrefix,omitempty"`
	ReadOnly   bool   `json:"readOnly,omitempty"`
}

// AllowedFlexVolume is a driver of flex volumes.
type AllowedFlexVolume struct {
	Driver string `json:"driver"`
}

// AllowedCSIDriver is a driver of inline volumes.
type AllowedCSIDriver struct {
	Name string `json:"name"`
}

// RuntimeClassOptions say which runtime classes are allowed.
type RuntimeClassOptions struct {
	AllowedRuntimeClassNames []string `json:"allowedRuntimeClassNames"`
	DefaultRuntimeClassName  *string  `json:"defaultRuntimeClassName,omitempty"`
}

// PodSecurityPolicies are cached completely. Their group is not Kubernetes' "policy",
// because API servers reject a CustomResourceDefinition whose group has no dot.
var PodSecurityPolicies = cluster.Define(cluster.Definition{
	Group: cluster.PolicyGroup, Version: "v1beta1", Resource: "podsecuritypolicies", Kind: "PodSecurityPolicy", Optional: true,
}, cluster.Type[*PodSecurityPolicy]{Keep: func(p *PodSecurityPolicy) *PodSecurityPolicy {
	p.ManagedFields = nil
	delete(p.Annotations, corev1.LastAppliedConfigAnnotation)
	p.complete()
	return p
}})

// apiVersions are the versions that documents in files may have: that of the cluster, and
// the former ones of Kubernetes.
var apiVersions = []string{PodSecurityPolicies.GroupVersionKind().GroupVersion().String(), "policy/v1beta1", "extensions/v1beta1"}

// UnmarshalJSON implements json.Unmarshaler. A wrong spec makes the policy invalid, but is
// not an error, so that the other policies of the cluster can be read.
func (p *PodSecurityPolicy) UnmarshalJSON(text []byte) error {
	object, fault, err := documents.DecodeLenient[Spec](text)
	if err != nil {
		return err
	}
	*p = PodSecurityPolicy{TypeMeta: object.TypeMeta, ObjectMeta: object.ObjectMeta, Spec: object.Spec, fault: fault}
	p.complete()
	return nil
}

// complete sets the fields that derive from the spec and the annotations.
func (p *PodSecurityPolicy) complete() {
	if p.rules == nil && p.fault == nil {
		p.rules, p.fault = newRules(&p.Spec, p.Annotations)
	}
}

// DeepCopyObject implements runtime.Object. It shares the spec, which is never changed.
func (p *PodSecurityPolicy) DeepCopyObject() runtime.Object {
	c := *p
	c.ObjectMeta = *p.DeepCopy()
	return &c
}
