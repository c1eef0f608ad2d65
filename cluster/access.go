package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/VictoriaMetrics/metrics"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	kjson "sigs.k8s.io/json"
)

const (
	// allowedTTL and deniedTTL are how long answers are cached: as long as
	// kube-apiserver caches those of an authorization webhook by default
	// (--authorization-webhook-cache-authorized-ttl and -unauthorized-ttl).
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second

	// accessBytesMax is the maximum length of a question as JSON. The answer to a
	// longer one is "not allowed", without a request. kube-apiserver gets the name and
	// groups of users from the headers of their requests, which have at most 1 MiB
	// (net/http DefaultMaxHeaderBytes), and accepts bodies of 3 MiB (k8s.io/apiserver
	// pkg/server/config.go), so it accepts all shorter questions. A question is longer
	// only because of a value that a user chose, such as the audience of a token.
	accessBytesMax = 1 << 20

	// questionsMax is how many questions one review may ask: as many as the process may
	// send in one second, see qps. They are sent one after the other and must be
	// answered within the ten seconds that a webhook has by default.
	questionsMax = 50

	// accessMax is how many answers are cached, as in kube-apiserver (k8s.io/apiserver
	// plugin/pkg/authorizer/webhook). An answer takes some 400 bytes.
	accessMax = 8192
)

// Access checks permissions with SubjectAccessReviews and caches the answers, like
// kube-apiserver those of an authorization webhook. Several goroutines may use it at the
// same time.
type Access struct {
	reviews *Objects[*authorizationv1.SubjectAccessReview]
	answers *cache.LRUExpireCache // statuses by digest of the spec, which users can make long

	long, many *metrics.Counter // questions that were refused: too long, or too many in one review
}

// AccessIn returns the Access of a cluster. It panics if
// SubjectAccessReviews.Called("create") is not among the needs of the View.
func AccessIn(v *View) *Access {
	reviews := SubjectAccessReviews.In(v)
	reviews.must("create", "")
	refused := func(reason string) *metrics.Counter {
		return v.Metrics().GetOrCreateCounter(fmt.Sprintf(`fastadmit_cluster_access_refusals_total{reason=%q}`, reason))
	}
	return &Access{reviews: reviews, answers: cache.NewLRUExpireCache(accessMax), long: refused("long"), many: refused("many")}
}

// MayAsk reports whether one review may check so many permissions. most is the maximum.
// If ok is false, the review must be denied; MayAsk has counted the refusal.
func (a *Access) MayAsk(questions int) (most int, ok bool) {
	if questions > questionsMax {
		a.many.Inc()
		return questionsMax, false
	}
	return questionsMax, true
}

// encode returns a question as JSON and, if it is too long, the answer to it.
func (a *Access) encode(
	spec *authorizationv1.SubjectAccessReviewSpec,
) (text []byte, refused *authorizationv1.SubjectAccessReviewStatus, err error) {
	text, err = json.Marshal(spec)
	if err == nil && len(text) > accessBytesMax {
		a.long.Inc()
		refused = &authorizationv1.SubjectAccessReviewStatus{
			Reason: fmt.Sprintf("the question is too long: got %d bytes, want at most %d", len(text), accessBytesMax),
		}
	}
	return text, refused, err
}

// ReviewUncached is Review without the cache: it sends a request for each call.
func (a *Access) ReviewUncached(
	ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec,
) (status authorizationv1.SubjectAccessReviewStatus, err error) {
	_, refused, err := a.encode(spec)
	if err != nil {
		return status, err
	}
	if refused != nil {
		return *refused, nil
	}
	answer, err := a.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: *spec})
	if err != nil {
		return status, err
	}
	return answer.Status, nil
}

// Review returns the answer to a SubjectAccessReview from the cache or from the API
// server. Concurrent equal calls share a request. Nothing in spec is retained. A spec of
// more than 1 MiB is not sent; its answer is "not allowed". If the objects come from
// files, Review returns an error.
func (a *Access) Review(
	ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error) {
	text, refused, err := a.encode(spec)
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	if refused != nil {
		return *refused, nil
	}
	key := sha256.Sum256(text)
	if status, ok := a.answers.Get(key); ok {
		return status.(authorizationv1.SubjectAccessReviewStatus), nil
	}
	store := a.reviews.store
	answer, err := store.share(asCaller(ctx, a.reviews.plugin, ""), string(text), store.kind.String(),
		func(ctx context.Context) (runtime.Object, error) {
			review := new(authorizationv1.SubjectAccessReview)
			if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &review.Spec); err != nil { // a copy, because the request outlives the call
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
