// Package certificateapproval is the admission plugin CertificateApproval.
//
// It lets only those approve or deny a CertificateSigningRequest who have the
// permission to approve requests to its signer. Without it, whoever may update the
// approval of one request may approve requests to every signer, those for
// certificates of kube-apiserver's own clients included.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/certificates/approval v1.36.3.
package certificateapproval

import (
	"context"
	"errors"
	"fmt"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/accessreview"
)

// Plugin returns the plugin, for the table of package plugins.
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

// validate looks at the signer of the stored object: whoever sends the update chooses
// what the new one says. kube-apiserver keeps the stored signer anyway.
func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	if !review.OldObject.Root().IsSet() {
		return admission.Denied(admission.Forbidden(review, errors.New("expected type CertificateSigningRequest, got: <nil>")))
	}
	signer := review.OldObject.Get("spec", "signerName").String()
	may, err := accessreview.MayUseSigner(ctx, p.access, review, "approve", signer)
	if err != nil {
		return admission.Errored(err)
	}
	if !may {
		return admission.Denied(admission.Forbidden(review, fmt.Errorf("user not permitted to approve requests with signerName %q", signer)))
	}
	return admission.Allowed()
}
