// Package certificateapproval is the admission plugin CertificateApproval.
//
// A user may approve or deny a CertificateSigningRequest only with the permission to approve
// requests to its signer. Without it, users who may update the approval of requests may
// approve requests to every signer, even for client certificates of kube-apiserver.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/certificates/approval.
package certificateapproval

import (
	"context"
	"errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/accessreview"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "CertificateApproval",
		Summary:     "restricts who may approve requests for certificates, by signer",
		Rules:       []admission.Rule{admission.NewRule("certificates.k8s.io", "v1", "certificatesigningrequests/approval", codec.Update)},
		Validates:   true,
		OnByDefault: true,
		Needs:       []cluster.Need{cluster.SubjectAccessReviews.Called("create")},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{access: cluster.AccessIn(setup.Cluster)}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct{ access *cluster.Access }

// validate reads the signer of the stored object, because the user writes the new object.
// kube-apiserver does not let the signer change anyway.
func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	if !review.OldObject.Root().IsSet() {
		return admission.Denied(admission.Forbidden(review, errors.New("expected type CertificateSigningRequest, got: <nil>")))
	}
	signer := review.OldObject.Get("spec", "signerName").String()
	return accessreview.RequireSigner(ctx, p.access, review, "approve", signer, "approve requests with")
}
