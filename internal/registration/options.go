package registration

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options are the settings of the webhook configurations that do not depend on the plugins.
// The zero Options are the defaults.
type Options struct {
	// Name is metadata.name of both configurations and the suffix of the names of
	// their webhooks, as in "validate-fail.fastadmit.io". It has at least two
	// segments, because the name of a webhook must have three. The default is
	// "fastadmit.io". kube-apiserver calls mutating webhooks in the order of the
	// names of their configurations.
	Name string `json:"name,omitempty"`
	// Labels and Annotations are metadata of both configurations.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Namespace is the namespace in which fastadmit runs; requests in it are excluded.
	// The default is the namespace of the service, "fastadmit" with the default
	// service, and none with a URL.
	Namespace string `json:"namespace,omitempty"`
	// ClientConfig is how kube-apiserver reaches fastadmit: a service or a url. The
	// default is the service "fastadmit" in Namespace, port 443. fastadmit's paths
	// are appended to the path. caBundle contains the CA certificates (PEM, in the
	// file encoded as base64) that verify the serving certificate; without it,
	// kube-apiserver uses those of its own machine.
	ClientConfig admissionregistrationv1.WebhookClientConfig `json:"clientConfig,omitzero"`
	// TimeoutSeconds is how long kube-apiserver waits for an answer: 1 to 30
	// seconds, 10 by default.
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// MatchPolicy is Equivalent, the default, or Exact. With Exact, fastadmit is not
	// called for requests in versions of a resource that the plugins do not name.
	MatchPolicy *admissionregistrationv1.MatchPolicyType `json:"matchPolicy,omitempty"`
	// NamespaceSelector selects the namespaces for which fastadmit is called.
	// Namespace, the namespace of the service, kube-system and kube-node-lease are
	// always excluded. The selector does not apply to cluster-scoped objects.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector selects the objects for which fastadmit is called. Users choose
	// the labels of their objects, so they can avoid the selection.
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
	// MatchConditions are CEL expressions that must all be true, otherwise fastadmit
	// is not called. Only kube-apiserver and "fastadmit review" compile them.
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
	// AdmissionReviewVersions are the versions of AdmissionReview that fastadmit
	// accepts: by default v1 and v1beta1, all that it supports. kube-apiserver sends
	// the first one that it knows.
	AdmissionReviewVersions []string `json:"admissionReviewVersions,omitempty"`
	// PathToken is a secret segment of each path, before those of fastadmit. It
	// authenticates callers (internal/registration/pathtoken). Empty for none. It comes from its
	// own file, not from the configuration file.
	PathToken string `json:"-"`
	// Static selects the form that kube-apiserver reads from files at its start
	// (KEP-5793, alpha in v1.36) and that cannot be changed through the API: names
	// end with ".static.k8s.io", and a url is required.
	Static bool `json:"-"`
}

// The defaults of Options. Port and timeout are those of kube-apiserver (k8s.io/kubernetes
// pkg/apis/admissionregistration/v1/defaults.go).
const (
	DefaultName           = "fastadmit.io"
	DefaultNamespace      = "fastadmit"
	DefaultServiceName    = "fastadmit"
	DefaultServicePort    = 443
	DefaultTimeoutSeconds = 10
)

// WithDefaults returns a copy of the options with all defaults set. It shares
// maps and lists with o.
func (o *Options) WithDefaults() *Options {
	filled := *o
	filled.Name = cmp.Or(o.Name, DefaultName)
	c := &filled.ClientConfig
	if c.URL == nil && c.Service == nil && !o.Static {
		c.Service = &admissionregistrationv1.ServiceReference{
			Namespace: cmp.Or(o.Namespace, DefaultNamespace), Name: DefaultServiceName,
		}
	}
	if c.Service != nil && c.Service.Port == nil {
		c.Service = c.Service.DeepCopy()
		c.Service.Port = new(int32(DefaultServicePort))
	}
	filled.TimeoutSeconds = cmp.Or(o.TimeoutSeconds, new(int32(DefaultTimeoutSeconds)))
	filled.MatchPolicy = cmp.Or(o.MatchPolicy, new(admissionregistrationv1.Equivalent))
	if o.AdmissionReviewVersions == nil {
		filled.AdmissionReviewVersions = slices.Clone(knownReviewVersions)
	}
	return &filled
}
