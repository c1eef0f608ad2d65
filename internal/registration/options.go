package registration

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options say how fastadmit is registered: what a webhook configuration says,
// as far as the plugins do not. The zero Options are the defaults.
type Options struct {
	// Name is metadata.name of both configurations, and what the names of their
	// webhooks end with, as in "validate-fail.fastadmit.io". kube-apiserver calls
	// mutating webhooks in the order of the names of their configurations. It has
	// two segments at least, for those of a webhook have three. "fastadmit.io" by
	// default.
	Name string `json:"name,omitempty"`
	// Labels and Annotations are metadata of both configurations.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// Namespace is the one that fastadmit runs in, where no webhook is called. It
	// need not be said if it is that of the service. By default, it is
	// "fastadmit" with the default service, and none with a URL.
	Namespace string `json:"namespace,omitempty"`
	// ClientConfig says how kube-apiserver reaches fastadmit: by service, or by a
	// url. The path of either comes before those of fastadmit. The default is
	// service "fastadmit" in Namespace, port 443. caBundle are the certificates
	// in PEM, in a file in base64, that the serving certificate is checked with;
	// without any, kube-apiserver takes those of its own machine.
	ClientConfig admissionregistrationv1.WebhookClientConfig `json:"clientConfig,omitzero"`
	// TimeoutSeconds is timeout of kube-apiserver for an answer, 1 to 30 seconds and
	// 10 by default.
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
	// MatchPolicy is Equivalent, the default, or Exact, which does not call for
	// requests in another version of a resource than those that plugins name.
	MatchPolicy *admissionregistrationv1.MatchPolicyType `json:"matchPolicy,omitempty"`
	// NamespaceSelector narrows for which namespaces fastadmit is called, beyond
	// those that are always left out: Namespace, that of the service, kube-system
	// and kube-node-lease. Requests for cluster-scoped objects are not narrowed.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector narrows for which objects fastadmit is called. Who writes an
	// object chooses its labels.
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
	// MatchConditions are CEL expressions that all must be true for fastadmit to
	// be called. Only kube-apiserver compiles them.
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
	// AdmissionReviewVersions are the versions of AdmissionReview to send, of
	// which kube-apiserver takes the first that it knows: v1 and v1beta1 by
	// default, which is what fastadmit understands.
	AdmissionReviewVersions []string `json:"admissionReviewVersions,omitempty"`
	// PathToken is a secret segment of each path, before those of fastadmit, by
	// which fastadmit knows its callers (internal/pathtoken). Empty for none. It
	// comes from a file of its own and not from the configuration file.
	PathToken string `json:"-"`
	// Static makes the form that kube-apiserver reads from files when it starts
	// (KEP-5793, alpha in v1.36), which cannot be changed by its API: names end in
	// ".static.k8s.io", and there must be a url. It is no setting but a form to
	// print.
	Static bool `json:"-"`
}

// The defaults. Port and timeout are those that kube-apiserver has
// (k8s.io/kubernetes pkg/apis/admissionregistration/v1/defaults.go).
const (
	DefaultName           = "fastadmit.io"
	DefaultNamespace      = "fastadmit"
	DefaultServiceName    = "fastadmit"
	DefaultServicePort    = 443
	DefaultTimeoutSeconds = 10
)

// WithDefaults returns the options with all defaults. The maps and lists that
// are there are shared with o.
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
