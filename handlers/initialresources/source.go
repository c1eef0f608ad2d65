package initialresources

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/fastadmit/fastadmit/handlers/internal/jsonclient"
)

const (
	// samplesThreshold is the number of samples that are enough, as upstream.
	samplesThreshold = 30

	// week and month are upstream's periods, in days.
	week  = 7
	month = 30

	// imageMax is the maximum length of the name of an image, in bytes. Longer ones are not
	// valid: a name has at most 255 bytes, a tag 128, and a digest 135.
	imageMax = 1024

	// answerMax is the maximum length of an answer, in bytes. There are at most 63 * 128
	// steps, of about 60 bytes each.
	answerMax = 1 << 20

	// queriesMax is the maximum number of concurrent queries: half of Prometheus' default
	// limit. Further queries wait.
	queriesMax = 10

	// queryTimeout is the maximum duration of a query, including the time that it waits: the
	// default timeout of a webhook.
	queryTimeout = 10 * time.Second

	// answersMax is the number of cached answers, 48 bytes each. answerTTL is how long they
	// are cached: ten minutes make no difference to the samples of a week. Failures are
	// cached for failureTTL, so that not every pod waits for a server that is down.
	answersMax = 4096
	answerTTL  = 10 * time.Minute
	failureTTL = 10 * time.Second
)

// A source estimates the usage of containers.
type source struct {
	server        *jsonclient.Client
	percentile    int64
	namespaceOnly bool
	resolution    time.Duration
	cache         *cache.LRUExpireCache // usage or error by the digest of the query
	flights       singleflight.Group    // merges equal concurrent queries
	queries       *semaphore.Weighted
	series        series
}

// series are the plugin's own.
type series struct {
	succeeded, failed *metrics.Counter // queries
	duration          *metrics.PrometheusHistogram
	cached            *metrics.Counter
	unestimated       *metrics.Counter
}

func newSeries(set *metrics.Set) series {
	query := func(result string) *metrics.Counter {
		return set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_initial_resources_queries_total{result=%q}`, result))
	}
	return series{
		succeeded: query("succeeded"), failed: query("failed"),
		duration:    set.GetOrCreatePrometheusHistogramExt("fastadmit_initial_resources_query_duration_seconds", queryBuckets),
		cached:      set.GetOrCreateCounter("fastadmit_initial_resources_cache_hits_total"),
		unestimated: set.GetOrCreateCounter("fastadmit_initial_resources_failed_estimates_total"),
	}
}

// queryBuckets are upper bounds in seconds: a query over a month reads millions of samples.
var queryBuckets = []float64{5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10}

func newSource(c *configuration, set *metrics.Set) (*source, error) {
	server, err := jsonclient.New(&c.Source, answerMax)
	if err != nil {
		return nil, err
	}
	return &source{
		server: server, percentile: c.percentile(), namespaceOnly: c.NamespaceOnly, resolution: c.resolution(),
		cache: cache.NewLRUExpireCache(answersMax), queries: semaphore.NewWeighted(queriesMax), series: newSeries(set),
	}, nil
}

// estimate returns the usage of a resource by containers with an image. While there are too
// few samples, it widens the question: to more days, to other namespaces, and at last to
// other tags (upstream's getEstimation). If samples is 0, there is no estimate.
func (s *source) estimate(ctx context.Context, resource, image, namespace string) (u usage, err error) {
	if len(image) > imageMax || !utf8.ValidString(image) {
		return usage{}, nil
	}
	// As upstream, this also cuts off the port of a registry.
	name, _, _ := strings.Cut(image, ":")
	questions := []question{
		{resource, image, true, namespace, week}, {resource, image, true, namespace, month},
		{resource, image, true, "", week}, {resource, image, true, "", month},
		{resource, name, false, "", month},
	}
	if s.namespaceOnly {
		questions = append(questions[:2], question{resource, name, false, namespace, month})
	}
	for i := range questions {
		if questions[i].image == "" { // would match all images
			return usage{}, nil
		}
		if u, err = s.ask(ctx, questions[i].query(s.resolution)); err != nil || u.samples >= samplesThreshold {
			return u, err
		}
	}
	return u, nil
}

// cached returns the answer or the error that the cache has for a query.
func (s *source) cached(key [sha256.Size]byte) (u usage, ok bool, err error) {
	value, ok := s.cache.Get(key)
	if err, failed := value.(error); failed {
		return usage{}, ok, err
	}
	u, _ = value.(usage)
	return u, ok, nil
}

// ask returns the answer to a query. Concurrent callers with the same query share one
// request. Each caller waits as long as its own context allows. The request continues after
// that, without memory of a review, so that the answer is cached for the next caller.
func (s *source) ask(ctx context.Context, query string) (usage, error) {
	key := sha256.Sum256([]byte(query))
	if u, ok, err := s.cached(key); ok {
		s.series.cached.Inc()
		return u, err
	}
	if ctx.Err() != nil {
		return usage{}, ctx.Err()
	}
	flight := s.flights.DoChan(string(key[:]), func() (got any, err error) {
		defer func() {
			if v := recover(); v != nil { // a panic in this goroutine would end the process
				err = fmt.Errorf("a query panicked: %v", v)
			}
		}()
		if u, ok, err := s.cached(key); ok { // another flight has ended since ask looked
			return u, err
		}
		asking, cancel := context.WithTimeout(context.Background(), queryTimeout)
		defer cancel()
		u, err := s.fetch(asking, query)
		if err != nil {
			s.series.failed.Inc()
			s.cache.Add(key, err, failureTTL)
			return nil, err
		}
		s.series.succeeded.Inc()
		s.cache.Add(key, u, answerTTL)
		return u, nil
	})
	select {
	case <-ctx.Done():
		return usage{}, fmt.Errorf("no answer in time: %w", ctx.Err())
	case got := <-flight:
		if got.Err != nil {
			return usage{}, got.Err
		}
		return got.Val.(usage), nil
	}
}

func (s *source) fetch(ctx context.Context, query string) (usage, error) {
	if err := s.queries.Acquire(ctx, 1); err != nil {
		return usage{}, fmt.Errorf("%d queries wait for an answer: %w", queriesMax, err)
	}
	defer s.queries.Release(1)
	defer func(start time.Time) { s.series.duration.Update(time.Since(start).Seconds()) }(time.Now())
	var a answer
	if err := s.server.Get(ctx, "/api/v1/query", url.Values{"query": {query}, "timeout": {queryTimeout.String()}}, &a); err != nil {
		if errors.Is(err, jsonclient.ErrNotFound) {
			return usage{}, errors.New("the server has no /api/v1/query (code 404), want the HTTP API of Prometheus")
		}
		return usage{}, err
	}
	return a.percentile(s.percentile)
}
