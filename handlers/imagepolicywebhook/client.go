package imagepolicywebhook

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/answers"
	"github.com/fastadmit/fastadmit/handlers/internal/kubeconfigclient"
	"github.com/fastadmit/fastadmit/handlers/internal/slots"
)

const (
	// answersMax is how many answers are cached: upstream's.
	answersMax = 1024

	// answerBytesMax is the maximum length of an answer. It may repeat the question,
	// which has the images and annotations of a Pod; the largest Pod that etcd stores has
	// 1.5 MiB.
	answerBytesMax = 4 << 20

	// cachedBytesMax is the longest answer that is cached: the API server gets at most 32 KiB of
	// a message and 32 KiB of all audit annotations. It bounds the cache to 64 MiB.
	cachedBytesMax = 64 << 10

	// callsMax is the maximum number of concurrent requests to the backend: a tenth of
	// the reviews in flight. Other requests wait.
	callsMax = 100
	// namespaceCallsMax is the maximum number of concurrent requests for the Pods of one namespace:
	// a quarter, so that images for which the backend is slow do not delay other namespaces.
	namespaceCallsMax = callsMax / 4

	// triesMax, backoffFactor and backoffJitter are those of k8s.io/apiserver
	// pkg/util/webhook DefaultRetryBackoffWithInitialDelay.
	triesMax      = 5
	backoffFactor = 1.5
	backoffJitter = 0.2

	// The plugin stops asking before kube-apiserver's call times out, so that it can still allow
	// or deny the pod: earlier by a tenth of the time, at most reserveMax.
	reserveShare = 10
	reserveMax   = 500 * time.Millisecond
)

var errNoAnswer = errors.New("no answer of the image policy backend")

// answerKey is the digest of a question, so that the cache contains no data of a request.
type answerKey = [sha256.Size]byte

type status = imagepolicyv1alpha1.ImageReviewStatus

// A client asks the backend and caches its answers.
type client struct {
	backend           rest.Interface
	answers           *cache.LRUExpireCache
	allowTTL, denyTTL time.Duration
	backoff           wait.Backoff
	flights           singleflight.Group // merges equal concurrent questions
	calls             *slots.Slots
	series            series
}

// series are the metrics of the plugin.
type series struct {
	allowed, denied, failed *metrics.Counter // requests to the backend
	duration                *metrics.PrometheusHistogram
	cached                  *metrics.Counter
	failedOpen              *metrics.Counter
}

func newSeries(set *metrics.Set) series {
	request := func(result string) *metrics.Counter {
		return set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_image_policy_requests_total{result=%q}`, result))
	}
	return series{
		allowed: request("allowed"), denied: request("denied"), failed: request("failed"),
		duration:   set.GetOrCreatePrometheusHistogramExt("fastadmit_image_policy_request_duration_seconds", requestBuckets),
		cached:     set.GetOrCreateCounter("fastadmit_image_policy_cache_hits_total"),
		failedOpen: set.GetOrCreateCounter("fastadmit_image_policy_failed_open_total"),
	}
}

// requestBuckets are upper bounds in seconds: a server nearby answers in
// milliseconds, and a request ends after 30 s.
var requestBuckets = []float64{1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30}

func newClient(c *imagePolicy, kubeconfig []byte, set *metrics.Set) (*client, error) {
	scheme := runtime.NewScheme()
	if err := imagepolicyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	fields := answers.Status() // an answer with an HTTP error may be a Status
	fields["status"] = answers.Fields{"allowed": nil, "reason": nil, "auditAnnotations": answers.Listed}
	backend, err := kubeconfigclient.New(kubeconfigclient.Options{
		Kubeconfig: kubeconfig, Scheme: scheme, Version: imagepolicyv1alpha1.SchemeGroupVersion, Fields: fields,
		AnswerBytesMax: answerBytesMax,
	})
	if err != nil {
		return nil, err
	}
	return &client{
		backend: backend,
		answers: cache.NewLRUExpireCache(answersMax), allowTTL: c.AllowTTL, denyTTL: c.DenyTTL,
		backoff: wait.Backoff{Duration: c.RetryBackoff, Factor: backoffFactor, Jitter: backoffJitter, Steps: triesMax},
		calls:   slots.New(callsMax, namespaceCallsMax),
		series:  newSeries(set),
	}, nil
}

// askUntil returns when the plugin stops asking and decides without an answer; see reserveShare.
func askUntil(ctx context.Context) time.Time {
	if deadline, ok := ctx.Deadline(); ok {
		return deadline.Add(-min(time.Until(deadline)/reserveShare, reserveMax))
	}
	return time.Now().Add(time.Minute)
}

// ask returns the answer of the backend to a question, from the cache if it has one. The error is
// that of the last attempt.
func (a *client) ask(ctx context.Context, namespace string, question []byte) (status, error) {
	tenant := sha256.Sum256([]byte(namespace))
	key := sha256.Sum256(question)
	if cached, ok := a.answers.Get(key); ok {
		a.series.cached.Inc()
		return cached.(status), nil
	}
	until, loan := askUntil(ctx), answers.NewLoan(ctx)
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if a.allowTTL == 0 || a.denyTTL == 0 { // without a cache, each pod gets its own request
		return a.fetch(ctx, loan, tenant, question, key)
	}
	return a.share(ctx, loan, until, tenant, question, key)
}

// share sends one request for all callers that ask the same question at the same time. Each
// caller waits as long as its own context allows. The request runs in a goroutine, until the
// deadline of the caller that started it. The goroutine may outlive that call for a moment, so
// it uses no memory of the review.
func (a *client) share(ctx context.Context, loan *answers.Loan, until time.Time, tenant slots.Tenant, question []byte,
	key answerKey) (status, error) {
	for {
		own := false
		flight := a.flights.DoChan(string(key[:]), func() (got any, err error) {
			own = true
			defer func() {
				if v := recover(); v != nil { // the panic would end the process
					err = fmt.Errorf("%w: it panicked: %v", errNoAnswer, v)
				}
			}()
			asking, cancel := context.WithDeadline(context.Background(), until)
			defer cancel()
			if cached, ok := a.answers.Get(key); ok { // another flight has ended since ask looked
				return cached.(status), nil
			}
			return a.fetch(asking, loan, tenant, question, key)
		})
		select {
		case <-ctx.Done():
			return status{}, fmt.Errorf("%w in time: %w", errNoAnswer, ctx.Err())
		case got := <-flight:
			if got.Err == nil {
				return got.Val.(status), nil
			}
			if own || ctx.Err() != nil || !errors.Is(got.Err, context.DeadlineExceeded) {
				return status{}, got.Err
			}
			// The caller that started the request had an earlier deadline: try again.
		}
	}
}

// fetch asks the backend and caches the answer. It tries up to five times if the failure is
// temporary. The answer takes its memory from loan.
func (a *client) fetch(ctx context.Context, loan *answers.Loan, tenant slots.Tenant, question []byte, key answerKey) (status, error) {
	release, ok := a.calls.Take(ctx, tenant)
	if !ok {
		return status{}, fmt.Errorf("%w: %d requests are in flight, or %d for the namespace: %w", errNoAnswer, callsMax, namespaceCallsMax, ctx.Err())
	}
	defer release()
	defer loan.Return()
	ctx = klog.NewContext(answers.With(ctx, loan), logr.Discard()) // otherwise client-go logs to stderr
	result := a.try(ctx, question)
	if err := result.Error(); err != nil {
		return status{}, err
	}
	var review imagepolicyv1alpha1.ImageReview
	if err := result.Into(&review); err != nil {
		a.series.failed.Inc()
		return status{}, err
	}
	ttl := a.denyTTL
	if review.Status.Allowed {
		ttl = a.allowTTL
		a.series.allowed.Inc()
	} else {
		a.series.denied.Inc()
	}
	if ttl > 0 && sizeOf(&review.Status) <= cachedBytesMax {
		a.answers.Add(key, review.Status, ttl)
	}
	clip(&review.Status)
	return review.Status, nil
}

// try sends the question until the backend answers, a failure is final, or there is no time for
// another attempt (k8s.io/apiserver pkg/util/webhook WithExponentialBackoff).
func (a *client) try(ctx context.Context, question []byte) rest.Result {
	body := make([]byte, 0, len(question)+128)
	body = append(body, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","metadata":{},"spec":`...)
	body = append(body, question...)
	body = append(body, `,"status":{"allowed":false}}`...)
	backoff := a.backoff
	for {
		start := time.Now()
		result := a.backend.Post().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx)
		a.series.duration.Update(time.Since(start).Seconds())
		err := result.Error()
		if err == nil {
			return result
		}
		a.series.failed.Inc()
		if !isTemporary(err) || backoff.Steps == 1 {
			return result
		}
		pause := backoff.Step()
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
			return result
		}
		select {
		case <-ctx.Done():
			return result
		case <-time.After(pause):
		}
	}
}

// isTemporary reports whether another try may succeed (DefaultShouldRetry there).
func isTemporary(err error) bool {
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// clip drops the parts of an answer that the API server never gets, so that a long answer does not
// stay in memory. The API server gets at most 32 KiB of the reason, 32 KiB of all audit
// annotations, and codec.TruncatedMin bytes of each annotation after that.
func clip(s *status) {
	if len(s.Reason) > cachedBytesMax {
		s.Reason = strings.Clone(s.Reason[:cachedBytesMax])
	}
	total := 0
	for _, key := range slices.Sorted(maps.Keys(s.AuditAnnotations)) {
		value := s.AuditAnnotations[key]
		switch {
		case !codec.IsAnnotationKey(key):
			delete(s.AuditAnnotations, key)
		case total >= cachedBytesMax:
			s.AuditAnnotations[key] = codec.TruncateString(value, codec.TruncatedMin)
		case total+len(value) > cachedBytesMax:
			s.AuditAnnotations[key] = strings.Clone(value[:cachedBytesMax-total])
		}
		total += len(value)
	}
}

// sizeOf returns the number of bytes of text in an answer.
func sizeOf(s *status) int {
	size := len(s.Reason)
	for key, value := range s.AuditAnnotations {
		size += len(key) + len(value)
	}
	return size
}
