package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/sync/singleflight"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// A store has the objects of a kind. It is the cache.ReflectorStore of its
// watch and the cache.Indexer of its lister.
type store struct {
	cache.Indexer
	kind   *Kind
	log    *slog.Logger
	synced chan struct{} // closed when all objects were there for the first time
	sync   sync.Once

	client  rest.Interface // nil if the objects came from files
	timing  timing
	flights singleflight.Group // live requests under way, by key

	began  time.Time
	heard  atomic.Int64          // when the API server was heard last, in nanoseconds since began
	fault  atomic.Pointer[error] // why it is not heard, nil if it is
	faults *metrics.Counter
	live   [len(results)]*metrics.Counter // by result
}

func newStore(kind *Kind, log *slog.Logger) *store {
	indexers := cache.Indexers{}
	if kind.namespaced {
		indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
	}
	return &store{
		Indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers, cache.WithTransformer(kind.trim)),
		kind:    kind,
		log:     log,
		synced:  make(chan struct{}),
		timing:  defaultTiming,
		began:   time.Now(),
	}
}

// Transformer has the reflector trim objects while it gathers them
// (cache.TransformingStore).
func (s *store) Transformer() cache.TransformFunc { return s.kind.trim }

// Replace takes a list as all objects there are.
func (s *store) Replace(objects []any, resourceVersion string) error {
	if err := s.Indexer.Replace(objects, resourceVersion); err != nil {
		s.failed(err)
		return err
	}
	s.hear()
	s.sync.Do(func() { close(s.synced) })
	return nil
}

func (s *store) isSynced() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

// unsynced says why isSynced is false.
func (s *store) unsynced() error {
	err := errors.New("waiting for the API server")
	if fault := s.fault.Load(); fault != nil {
		err = *fault
	}
	return fmt.Errorf("cluster state: %s are not known yet: %w", s.kind, err)
}

// age returns how long ago the API server was heard, by a list, an event or a
// bookmark: the state is as of then, or later.
func (s *store) age() time.Duration {
	return time.Since(s.began) - time.Duration(s.heard.Load())
}

// hear notes that the API server said what is.
func (s *store) hear() {
	s.heard.Store(int64(time.Since(s.began)))
	if s.fault.Load() != nil && s.fault.Swap(nil) != nil {
		s.log.Info("following the cluster again", "resource", s.kind.String())
	}
}

// failed notes that the API server did not. The log has the first of several
// failures, the counter each.
func (s *store) failed(err error) {
	s.faults.Inc()
	if s.fault.Swap(&err) == nil {
		s.log.Warn("cannot follow the cluster, going on with what is known", "resource", s.kind.String(), "error", err.Error())
	}
}

// results are the values of the label "result".
var results = [...]string{"found", "notfound", "failed"}

const (
	found = iota // indexes of results
	notFound
	failed
)

// addMetrics makes the series of the store: those about the API server only if
// there is one.
func (s *store) addMetrics(set *metrics.Set) {
	set.NewGauge(fmt.Sprintf(`fastadmit_cluster_objects{resource=%q}`, s.kind), func() float64 { return float64(len(s.ListKeys())) })
	set.NewGauge(fmt.Sprintf(`fastadmit_cluster_synced{resource=%q}`, s.kind), func() float64 {
		if s.isSynced() {
			return 1
		}
		return 0
	})
	if s.client == nil {
		return
	}
	set.NewGauge(fmt.Sprintf(`fastadmit_cluster_state_age_seconds{resource=%q}`, s.kind), func() float64 { return s.age().Seconds() })
	s.faults = set.NewCounter(fmt.Sprintf(`fastadmit_cluster_watch_failures_total{resource=%q}`, s.kind))
	for i, result := range results {
		s.live[i] = set.NewCounter(fmt.Sprintf(
			`fastadmit_cluster_live_requests_total{resource=%q,result=%q}`, s.kind, result))
	}
}
