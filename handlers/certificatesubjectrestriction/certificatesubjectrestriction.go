// Package certificatesubjectrestriction is the admission plugin
// CertificateSubjectRestriction.
//
// It denies requests for client certificates of the group system:masters, whose members may
// do everything regardless of RBAC. Without it, an attacker can trick approvers into issuing
// credentials for the whole cluster that cannot be revoked.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/certificates/subjectrestriction
// and pkg/apis/certificates/helpers.go.
package certificatesubjectrestriction

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// masters is the group with all permissions (k8s.io/apiserver pkg/authentication/user
// SystemPrivilegedGroup).
const masters = "system:masters"

// requestType is the type of the PEM block of a certificate request (RFC 7468 section 7).
const requestType = "CERTIFICATE REQUEST"

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "CertificateSubjectRestriction",
		Summary:     "denies requests for client certificates of the group " + masters,
		Rules:       []admission.Rule{admission.NewRule("certificates.k8s.io", "v1", "certificatesigningrequests", codec.Create)},
		Validates:   true,
		OnByDefault: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: validate}, nil
		},
	}
}

// validate checks requests to one signer only: among those of Kubernetes, only this one lets
// clients choose their groups.
func validate(_ context.Context, review *codec.Review) admission.Result {
	spec := review.Object.Get("spec")
	if !spec.Get("signerName").EqualString(certificatesv1.KubeAPIServerClientSignerName) {
		return admission.Allowed()
	}
	text, err := base64.StdEncoding.DecodeString(spec.Get("request").String())
	if err != nil {
		return admission.Errored(fmt.Errorf("object: spec.request: %w", err))
	}
	request, err := parse(text)
	if err != nil {
		return admission.Denied(admission.Forbidden(review, fmt.Errorf("failed to parse CSR: %w", err)))
	}
	if slices.Contains(request.Subject.Organization, masters) {
		return admission.Denied(admission.Forbidden(review, fmt.Errorf("use of %s signer with %s group is not allowed",
			certificatesv1.KubeAPIServerClientSignerName, masters)))
	}
	return admission.Allowed()
}

// parse parses the first PEM block.
func parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != requestType {
		return nil, errors.New("PEM block type must be " + requestType)
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
