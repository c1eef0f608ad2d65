// Package certificatesigning is the admission plugin CertificateSigning.
//
// A user may write the certificate of a CertificateSigningRequest only with the permission
// to sign for its signer. Without it, a signer that may update the status of requests could
// issue certificates in the name of every other signer.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/certificates/signing.
package certificatesigning

import (
	"bytes"
	"context"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/accessreview"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "CertificateSigning",
		Summary:     "restricts who may sign certificates, by signer",
		Rules:       []admission.Rule{admission.NewRule("certificates.k8s.io", "v1", "certificatesigningrequests/status", codec.Update)},
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

// validate reads the signer of the stored object, as CertificateApproval does.
func (p *plugin) validate(ctx context.Context, review *codec.Review, request,
	old *certificatesv1.CertificateSigningRequest) admission.Result {
	if request == nil || old == nil {
		return admission.Denied(admission.Forbidden(review, errors.New("expected type CertificateSigningRequest, got: <nil>")))
	}
	if bytes.Equal(request.Status.Certificate, old.Status.Certificate) &&
		apiequality.Semantic.DeepEqual(request.Status.Conditions, old.Status.Conditions) {
		return admission.Allowed()
	}
	return accessreview.RequireSigner(ctx, p.access, review, "sign", old.Spec.SignerName, "sign requests with")
}
