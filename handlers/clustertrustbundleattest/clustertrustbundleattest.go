// Package clustertrustbundleattest is the admission plugin ClusterTrustBundleAttest.
//
// A user may write a ClusterTrustBundle of a signer only with the permission to attest for
// the signer. Workloads trust the certificates in a bundle. Without it, users who may write
// bundles could make workloads trust their own certificates as those of any signer.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/certificates/ctbattest and
// pkg/registry/rbac IsOnlyMutatingGCFields.
package clustertrustbundleattest

import (
	"context"
	"errors"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/accessreview"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "ClusterTrustBundleAttest",
		Summary: "restricts who may write the ClusterTrustBundles of a signer",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Create, codec.Update}, Groups: []string{"certificates.k8s.io"},
			Versions:  []string{"v1", "v1beta1", "v1alpha1"}, // API servers may have one of them alone; v1 since v1.37
			Resources: []string{"clustertrustbundles"},
		}},
		Validates:   true,
		OnByDefault: true,
		Needs:       []cluster.Need{cluster.SubjectAccessReviews.Called("create")},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{access: cluster.AccessIn(setup.Cluster)}
			return admission.Handler{Validate: admission.ValidateTyped(p.validate)}, nil
		},
	}
}

type plugin struct{ access *cluster.Access }

// bundle is a ClusterTrustBundle, which is the same in all versions
// (k8s.io/api/certificates/v1beta1).
type bundle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		SignerName  string `json:"signerName"`
		TrustBundle string `json:"trustBundle"`
	} `json:"spec"`
}

// validate reads the signer of the new object, because kube-apiserver rejects updates that
// change it.
func (p *plugin) validate(ctx context.Context, review *codec.Review, object, old *bundle) admission.Result {
	if object == nil {
		return admission.Denied(admission.Forbidden(review, errors.New("expected type ClusterTrustBundle, got: <nil>")))
	}
	signer := object.Spec.SignerName
	if signer == "" || old != nil && review.Operation() == codec.Update && isUnchanged(object, old) {
		return admission.Allowed()
	}
	return accessreview.RequireSigner(ctx, p.access, review, "attest", signer, "attest for")
}

// isUnchanged reports whether an update changes only fields of garbage collection and of
// kube-apiserver's bookkeeping. It writes to object.
func isUnchanged(object, old *bundle) bool {
	object.OwnerReferences, object.Finalizers = old.OwnerReferences, old.Finalizers
	object.SetSelfLink(old.GetSelfLink())
	object.ManagedFields = old.ManagedFields
	return apiequality.Semantic.DeepEqual(object, old)
}
