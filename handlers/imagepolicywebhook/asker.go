package imagepolicywebhook

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/handlers/internal/backend"
)

const (
	// answersMax is how many answers are kept: upstream's.
	answersMax = 1024

	// answerBytesMax is how long an answer may be. It may repeat the question: the
	// images and annotations of the largest Pod that etcd stores (1.5 MiB) with as much
	// for the rest.
	answerBytesMax = 4 << 20

	// keptBytesMax is how long an answer may be to be kept. Of a message, and of all
	// audit annotations, 32 KiB reach the API server. It bounds what is kept to 64 MiB.
	keptBytesMax = 64 << 10

	// callsMax is how many questions the backend is asked at the same time: a tenth of
	// the requests in flight. Others wait.
	callsMax = 100

	// triesMax, backoffFactor and backoffJitter are those of k8s.io/apiserver
	// pkg/util/webhook DefaultRetryBackoffWithInitialDelay.
	triesMax      = 5
	backoffFactor = 1.5
	backoffJitter = 0.2

	// A question ends before the call of kube-apiserver does, so that there is time to
	// say what becomes of the pod: by a tenth of the time, at most spareMax.
	spareShare = 10
	spareMax   = 500 * time.Millisecond
)

var errNoAnswer = errors.New("no answer of the image policy backend")

// answerKey is the digest of a question: nothing of a request is kept.
type answerKey = [sha256.Size]byte

type status = imagepolicyv1alpha1.ImageReviewStatus

// An asker asks the backend and keeps its answers.
type asker struct {
	client            rest.Interface
	answers           *cache.LRUExpireCache
	allowTTL, denyTTL time.Duration
	backoff           wait.Backoff
	flights           singleflight.Group // of who asks the same at the same time
	calls             *semaphore.Weighted
	series            series
}

// series are the plugin's own.
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

func newAsker(c *imagePolicy, kubeconfig []byte, set *metrics.Set) (*asker, error) {
	scheme := runtime.NewScheme()
	if err := imagepolicyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	client, err := backend.New(backend.Options{
		Kubeconfig: kubeconfig, Scheme: scheme, Version: imagepolicyv1alpha1.SchemeGroupVersion, AnswerBytesMax: answerBytesMax,
	})
	if err != nil {
		return nil, err
	}
	return &asker{
		client:  client,
		answers: cache.NewLRUExpireCache(answersMax), allowTTL: c.AllowTTL, denyTTL: c.DenyTTL,
		backoff: wait.Backoff{Duration: c.RetryBackoff, Factor: backoffFactor, Jitter: backoffJitter, Steps: triesMax},
		calls:   semaphore.NewWeighted(callsMax),
		series:  newSeries(set),
	}, nil
}

// ask returns what the backend says to a question, which may be kept. The error is
// that of the last try.
func (a *asker) ask(ctx context.Context, question []byte) (status, error) {
	key := sha256.Sum256(question)
	if kept, ok := a.answers.Get(key); ok {
		a.series.cached.Inc()
		return kept.(status), nil
	}
	until := time.Now().Add(time.Minute)
	if deadline, ok := ctx.Deadline(); ok {
		until = deadline.Add(-min(time.Until(deadline)/spareShare, spareMax))
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if a.allowTTL == 0 || a.denyTTL == 0 { // the operator wants each pod to be asked about
		return a.fetch(ctx, question, key)
	}
	return a.share(ctx, until, question, key)
}

// share asks a question once for all who ask it at the same time. Each waits as long
// as its own context allows. Who asks does it until its own time is over, in a
// goroutine that may outlive the call by the time it takes to give up, and that has
// nothing of its review.
func (a *asker) share(ctx context.Context, until time.Time, question []byte, key answerKey) (status, error) {
	for {
		own := false
		flight := a.flights.DoChan(string(key[:]), func() (got any, err error) {
			own = true
			defer func() {
				if v := recover(); v != nil { // which would end the process
					err = fmt.Errorf("%w: it panicked: %v", errNoAnswer, v)
				}
			}()
			asking, cancel := context.WithDeadline(context.Background(), until)
			defer cancel()
			return a.fetch(asking, question, key)
		})
		select {
		case <-ctx.Done():
			return status{}, fmt.Errorf("%w in time: %w", errNoAnswer, ctx.Err())
		case answer := <-flight:
			if answer.Err == nil {
				return answer.Val.(status), nil
			}
			if own || ctx.Err() != nil || !errors.Is(answer.Err, context.DeadlineExceeded) {
				return status{}, answer.Err
			}
			// The one who asked had less time.
		}
	}
}

// fetch asks the backend, up to five times if its failure is one that may pass, and
// keeps what it says.
func (a *asker) fetch(ctx context.Context, question []byte, key answerKey) (status, error) {
	if err := a.calls.Acquire(ctx, 1); err != nil {
		return status{}, fmt.Errorf("%w: %d requests wait for one: %w", errNoAnswer, callsMax, err)
	}
	defer a.calls.Release(1)
	ctx = klog.NewContext(ctx, logr.Discard()) // client-go would write to stderr
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
	if ttl > 0 && sizeOf(&review.Status) <= keptBytesMax {
		a.answers.Add(key, review.Status, ttl)
	}
	return review.Status, nil
}

// try sends the question until there is an answer, or a failure that is final, or no
// time for another try (k8s.io/apiserver pkg/util/webhook WithExponentialBackoff).
func (a *asker) try(ctx context.Context, question []byte) rest.Result {
	body := make([]byte, 0, len(question)+128)
	body = append(body, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","metadata":{},"spec":`...)
	body = append(body, question...)
	body = append(body, `,"status":{"allowed":false}}`...)
	backoff := a.backoff
	for {
		start := time.Now()
		result := a.client.Post().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx)
		a.series.duration.Update(time.Since(start).Seconds())
		err := result.Error()
		if err == nil {
			return result
		}
		a.series.failed.Inc()
		if !mayPass(err) || backoff.Steps == 1 {
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

// mayPass says whether another try may succeed (DefaultShouldRetry there).
func mayPass(err error) bool {
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// sizeOf returns how many bytes of text an answer has.
func sizeOf(s *status) int {
	size := len(s.Reason)
	for key, value := range s.AuditAnnotations {
		size += len(key) + len(value)
	}
	return size
}
