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
	// samplesThreshold is how many samples are enough: upstream's.
	samplesThreshold = 30

	// week and month are the times that upstream asks for, in days.
	week  = 7
	month = 30

	// imageMax is how long the name of an image may be, in bytes. Longer ones are of
	// no image: a name has at most 255 bytes, a tag 128, and a digest 135.
	imageMax = 1024

	// answerMax is how long an answer may be, in bytes. There are at most 63 * 128 steps,
	// of some 60 bytes each.
	answerMax = 1 << 20

	// queriesMax is how many queries are under way at the same time: half of those that
	// Prometheus evaluates at once by default. Others wait.
	queriesMax = 10

	// queryTimeout is how long a query may take, with the time that it waits: the default
	// timeout of a webhook.
	queryTimeout = 10 * time.Second

	// answersMax is how many answers are cached, 48 bytes each, and answerTTL how long. Of
	// samples of a week, those of ten minutes make no difference. Failures are cached for
	// failureTTL, so that not every pod waits for a server that is away.
	answersMax = 4096
	answerTTL  = 10 * time.Minute
	failureTTL = 10 * time.Second
)

// A source knows how much containers used.
type source struct {
	server        *jsonclient.Client
	percentile    int64
	namespaceOnly bool
	resolution    time.Duration
	cache         *cache.LRUExpireCache // usage or error by the digest of the query
	flights       singleflight.Group    // of who asks the same at the same time
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

// estimate returns the usage of a resource by containers of an image: with few samples
// those of more days, of other namespaces, and at last of other tags count too
// (getEstimation there). There is none if samples is 0.
func (s *source) estimate(ctx context.Context, resource, image, namespace string) (u usage, err error) {
	if len(image) > imageMax || !utf8.ValidString(image) {
		return usage{}, nil
	}
	// As there, a registry with a port is cut, too.
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
		if questions[i].image == "" { // which would be all images
			return usage{}, nil
		}
		if u, err = s.ask(ctx, questions[i].query(s.resolution)); err != nil || u.samples >= samplesThreshold {
			return u, err
		}
	}
	return u, nil
}

// ask returns the answer to a query. It is asked once for all who ask at the same time.
// Each waits as long as its own context allows; the query goes on, in a goroutine
// that has nothing of a review, so that the next one has an answer.
func (s *source) ask(ctx context.Context, query string) (usage, error) {
	key := sha256.Sum256([]byte(query))
	if cached, ok := s.cache.Get(key); ok {
		s.series.cached.Inc()
		if err, failed := cached.(error); failed {
			return usage{}, err
		}
		return cached.(usage), nil
	}
	if ctx.Err() != nil {
		return usage{}, ctx.Err()
	}
	flight := s.flights.DoChan(string(key[:]), func() (got any, err error) {
		defer func() {
			if v := recover(); v != nil { // which would end the process
				err = fmt.Errorf("a query panicked: %v", v)
			}
		}()
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
