package accessreview

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/cluster"
)

// MayUseSigner reports whether the user of a review has the permission verb on a
// signer of certificates: by its name, or else by the wildcard of its domain, such as
// "example.com/*" for "example.com/ca". The resource "signers" exists only in RBAC.
// As upstream, it takes no answer that comes with an evaluation error. The error says
// that the API server did not answer, and nothing about the user.
//
// Behaviour: k8s.io/kubernetes pkg/certauthorization v1.36.3.
func MayUseSigner(ctx context.Context, access *cluster.Access, review *codec.Review, verb, signer string) (bool, error) {
	attributes := &authorizationv1.ResourceAttributes{Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers"}
	spec, err := Spec(review, attributes)
	if err != nil {
		return false, err
	}
	domain, _, _ := strings.Cut(signer, "/")
	for _, attributes.Name = range [...]string{signer, domain + "/*"} {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		status, err := access.Review(ctx, spec)
		if err != nil {
			return false, err
		}
		if status.Allowed && !status.Denied && status.EvaluationError == "" {
			return true, nil
		}
	}
	return false, nil
}
