package accessreview

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// MayUseSigner reports whether the user of a review may use a certificate signer with
// verb. A permission on the name of the signer or on all signers of its domain suffices,
// such as "example.com/*" for "example.com/ca". The resource "signers" exists only in
// RBAC. As in kube-apiserver, an answer with an evaluation error gives no permission. An
// error of MayUseSigner means that it could not ask the API server.
//
// Behaviour: k8s.io/kubernetes pkg/certauthorization.
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
