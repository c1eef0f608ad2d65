package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// allowedTTL and deniedTTL are how long answers are remembered: as
	// kube-apiserver does with those of an authorization webhook
	// (--authorization-webhook-cache-authorized-ttl and -unauthorized-ttl).
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second

	// accessMax is how many answers are remembered, as there (k8s.io/apiserver
	// plugin/pkg/authorizer/webhook). An answer takes some 400 bytes.
	accessMax = 8192
)

// Access asks the API server who may do what, and remembers the answers for a
// while. It may be used by several goroutines.
type Access struct {
	reviews *Objects[*authorizationv1.SubjectAccessReview]
	answers *cache.LRUExpireCache // statuses, by digest of the spec: users choose how long that is
}

// AccessIn returns the Access of a cluster. It panics if
// SubjectAccessReviews.Called("create") is not among the needs of the View.
func AccessIn(v *View) *Access {
	reviews := SubjectAccessReviews.In(v)
	reviews.must("create", "")
	return &Access{reviews, cache.NewLRUExpireCache(accessMax)}
}

// Review returns the answer of a SubjectAccessReview: remembered, or from the API
// server. Who asks for the same at the same time shares a request. Nothing of spec
// is kept. Files cannot say, which is an error.
func (a *Access) Review(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	key := sha256.Sum256(text)
	if status, ok := a.answers.Get(key); ok {
		return status.(authorizationv1.SubjectAccessReviewStatus), nil
	}
	store := a.reviews.store
	answer, err := store.share(asCaller(ctx, a.reviews.plugin, ""), string(text), store.kind.String(), func(ctx context.Context) (runtime.Object, error) {
		review := new(authorizationv1.SubjectAccessReview)
		if err := json.Unmarshal(text, &review.Spec); err != nil { // a copy that nobody else has
			return nil, err
		}
		return store.create(ctx, review)
	})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	status := answer.(*authorizationv1.SubjectAccessReview).Status
	ttl := deniedTTL
	if status.Allowed {
		ttl = allowedTTL
	}
	a.answers.Add(key, status, ttl)
	return status, nil
}
