// Package accessreview creates SubjectAccessReviews for the user of a review.
package accessreview

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

// Spec returns a SubjectAccessReview spec that asks whether the user of a review has the
// permission in attributes. The spec shares attributes, and nothing with the review. The
// error says that the review has no valid userInfo, or is that of the review.
func Spec(review *codec.Review, attributes *authorizationv1.ResourceAttributes) (*authorizationv1.SubjectAccessReviewSpec, error) {
	if !review.UserInfo().FitsDecoded() {
		return nil, review.Err()
	}
	var user authenticationv1.UserInfo
	if err := json.UnmarshalCaseSensitivePreserveInts([]byte(review.UserInfo().JSON()), &user); err != nil {
		return nil, fmt.Errorf("cannot decode userInfo: %w", err)
	}
	spec := &authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups, ResourceAttributes: attributes}
	for key, values := range user.Extra {
		if spec.Extra == nil {
			spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
		}
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	return spec, nil
}
