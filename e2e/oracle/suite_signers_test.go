package oracle_test

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/features"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

// signers is the suite of a plugin that asks who may use a signer. Its access reviews need
// connections, which cannot be in a bubble.
func signers(name string, generate func(g *generator) *oracle.Case) suite {
	world := func(g *generator) oracle.World { return oracle.World{Authorizer: chance(g.Uint64())} }
	return suite{name: name, generate: generate, denies: true, background: true, authorizer: rbacAuthorizer,
		variants: []variant{{options: handlers.DefaultOptions(), world: world}}}
}

// signer generates one of few names, because the API server's stand-in allows some hundred
// questions of a world at once.
func (g *generator) signer() string {
	return pick(g, "a.b/c", "a.b/c", "a.b/d", "a.b/*", "a.b", "a.b/c/d", "kubernetes.io/kubelet-serving", "", "/", "..", "%2F", `q"`)
}

// requester generates one of few users.
func (g *generator) requester() user.DefaultInfo {
	return user.DefaultInfo{Name: pick(g, "alice", "system:node:n1"), UID: "7", Groups: []string{"g", "system:authenticated"},
		Extra: map[string][]string{"scopes": {"x", "y"}, "Example.com/none": nil}}
}

// signingCase generates a request about a CertificateSigningRequest, mostly an update of the
// subresource.
func (g *generator) signingCase(subresource string) *oracle.Case {
	if g.in(12) {
		return g.other()
	}
	operation := admission.Update
	if g.in(12) {
		operation = admission.Create
	}
	kind := certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")
	resource := certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
	c := g.request(operation, kind, resource)
	before := g.signedRequest()
	if g.in(6) { // written in an old version, and converted for the webhook
		version := certificatesv1beta1.SchemeGroupVersion
		c = g.request(operation, version.WithKind(kind.Kind), version.WithResource(resource.Resource))
		c.AsKind, c.AsResource = kind, resource
		g.write(c, inBeta(g.resigned(before)), func() runtime.Object { return inBeta(before) })
	} else {
		g.write(c, g.resigned(before), func() runtime.Object { return before })
	}
	if c.Subresource = subresource; g.in(8) {
		c.Subresource = pick(g, "", "status", "approval")
	}
	c.User = g.requester()
	return c
}

func inBeta(r *certificatesv1.CertificateSigningRequest) runtime.Object {
	internal, err := legacyscheme.Scheme.ConvertToVersion(r, runtime.InternalGroupVersioner)
	if err != nil {
		panic(err)
	}
	beta, err := legacyscheme.Scheme.ConvertToVersion(internal, certificatesv1beta1.SchemeGroupVersion)
	if err != nil {
		panic(err)
	}
	return beta
}

// signedRequest generates a request with conditions and perhaps a certificate.
func (g *generator) signedRequest() *certificatesv1.CertificateSigningRequest {
	r := g.signingRequest()
	r.Spec.SignerName = g.signer()
	r.Status.Certificate = pick(g, nil, nil, []byte("a"), []byte("b"))
	r.Status.Conditions = some(g, 2, g.signingCondition)
	return r
}

func (g *generator) signingCondition() certificatesv1.CertificateSigningRequestCondition {
	at := func() metav1.Time {
		if g.in(3) {
			return metav1.Time{}
		}
		return metav1.NewTime(time.Unix(int64(g.IntN(2)), 0))
	}
	return certificatesv1.CertificateSigningRequestCondition{
		Type:   pick(g, certificatesv1.CertificateApproved, certificatesv1.CertificateFailed, "é"),
		Status: pick[corev1.ConditionStatus](g, "", "True"), Reason: pick(g, "", "r"), Message: pick(g, "", `m"`), LastUpdateTime: at(),
		LastTransitionTime: at(),
	}
}

// resigned returns a request with a few changes, or none.
func (g *generator) resigned(r *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	r = r.DeepCopy()
	switch g.IntN(8) {
	case 0:
		r.Spec.SignerName = g.signer()
	case 1, 2:
		r.Status.Certificate = pick(g, nil, []byte("a"), []byte("b"))
	case 3:
		r.Status.Conditions = some(g, 2, g.signingCondition)
	case 4:
		for i := range r.Status.Conditions {
			c := &r.Status.Conditions[i]
			switch other := g.signingCondition(); g.IntN(6) {
			case 0:
				c.Type = other.Type
			case 1:
				c.Status = other.Status
			case 2:
				c.Reason = other.Reason
			case 3:
				c.Message = other.Message
			case 4:
				c.LastUpdateTime = other.LastUpdateTime
			case 5:
				c.LastTransitionTime = other.LastTransitionTime
			}
		}
	case 5:
		r.Status.Conditions = append([]certificatesv1.CertificateSigningRequestCondition{}, r.Status.Conditions...)
		r.ObjectMeta = g.metadata()
	}
	return r
}

func clusterTrustBundleAttest() suite {
	s := signers("ClusterTrustBundleAttest", (*generator).attestedCase)
	s.gate = features.ClusterTrustBundle
	return s
}

// attestedCase writes a ClusterTrustBundle.
func (g *generator) attestedCase() *oracle.Case {
	if g.in(12) {
		return g.other()
	}
	version := pick(g, certificatesv1beta1.SchemeGroupVersion, certificatesv1beta1.SchemeGroupVersion,
		certificatesv1alpha1.SchemeGroupVersion)
	c := g.request(pick(g, admission.Create, admission.Update, admission.Update), version.WithKind("ClusterTrustBundle"),
		version.WithResource("clustertrustbundles"))
	in := func(b *certificatesv1beta1.ClusterTrustBundle) runtime.Object {
		if version == certificatesv1beta1.SchemeGroupVersion {
			return b
		}
		return &certificatesv1alpha1.ClusterTrustBundle{ObjectMeta: b.ObjectMeta,
			Spec: certificatesv1alpha1.ClusterTrustBundleSpec(b.Spec)}
	}
	before := &certificatesv1beta1.ClusterTrustBundle{ObjectMeta: g.metadata()}
	before.Spec.SignerName, before.Spec.TrustBundle = g.signer(), pick(g, "", "t")
	g.write(c, in(g.reattested(before)), func() runtime.Object { return in(before) })
	c.User = g.requester()
	return c
}

// reattested returns a bundle with a few changes, or none.
func (g *generator) reattested(b *certificatesv1beta1.ClusterTrustBundle) *certificatesv1beta1.ClusterTrustBundle {
	b = b.DeepCopy()
	switch g.IntN(8) {
	case 0:
		b.Spec.SignerName = g.signer()
	case 1:
		b.Spec.TrustBundle = pick(g, "", "t", "u")
	case 2:
		b.Finalizers = some(g, 2, g.finalizer)
	case 3:
		b.OwnerReferences = some(g, 2, g.ownerReference)
	case 4:
		b.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: g.word()}}
	case 5:
		b.Labels = map[string]string{"app": g.word()}
	case 6:
		b.Annotations = map[string]string{}
	}
	return b
}
