package cluster

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// verbs and results are the values of the labels "verb" and "result".
var (
	verbs   = [...]string{"get", "list", "create", "update", "delete"}
	results = [...]string{"done", "notfound", "conflict", "failed"}
)

const (
	verbGet = iota // indexes of verbs
	verbList
	verbCreate
	verbUpdate
	verbDelete
)

const (
	done = iota // indexes of results
	notFound
	conflict
	failed
)

// series has the stores from which the cache metrics of a resource are computed: those of
// all Kinds of the resource.
type series struct{ stores atomic.Pointer[[]*store] }

// addMetrics adds the cache metrics of a store, and those of its watch if there is an API
// server. The caller holds s.mu.
func (s *State) addMetrics(added *store) {
	set, resource := s.options.Metrics, added.kind.String()
	if added.client != nil {
		added.faults = set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_cluster_watch_failures_total{resource=%q}`, resource))
	}
	if known := s.series[resource]; known != nil {
		stores := append(slices.Clip(*known.stores.Load()), added)
		known.stores.Store(&stores)
		return
	}
	all := new(series)
	all.stores.Store(&[]*store{added})
	s.series[resource] = all
	set.NewGauge(fmt.Sprintf(`fastadmit_cluster_objects{resource=%q}`, resource), all.size)
	set.NewGauge(fmt.Sprintf(`fastadmit_cluster_synced{resource=%q}`, resource), all.synced)
	if added.client != nil {
		set.NewGauge(fmt.Sprintf(`fastadmit_cluster_bytes{resource=%q}`, resource), all.bytes)
		set.NewGauge(fmt.Sprintf(`fastadmit_cluster_left_out_objects{resource=%q}`, resource), all.leftOut)
		set.NewGauge(fmt.Sprintf(`fastadmit_cluster_state_age_seconds{resource=%q}`, resource), all.age)
	}
}

// removeMetrics removes the cache metrics of a store, unless another store has the same
// resource. The caller holds s.mu.
func (s *State) removeMetrics(removed *store) {
	set, resource := s.options.Metrics, removed.kind.String()
	known := s.series[resource]
	stores := slices.DeleteFunc(slices.Clone(*known.stores.Load()), func(other *store) bool { return other == removed })
	known.stores.Store(&stores)
	if len(stores) > 0 {
		return
	}
	delete(s.series, resource)
	for _, name := range [...]string{"watch_failures_total", "objects", "left_out_objects", "bytes", "synced", "state_age_seconds"} {
		set.UnregisterMetric(fmt.Sprintf(`fastadmit_cluster_%s{resource=%q}`, name, resource))
	}
}

// size returns the number of objects in all caches of the resource.
func (s *series) size() float64 {
	size := 0
	for _, store := range *s.stores.Load() {
		size += store.size()
	}
	return float64(size)
}

// leftOut returns the number of objects that are too large for the caches.
func (s *series) leftOut() float64 {
	left := 0
	for _, store := range *s.stores.Load() {
		left += store.leftOut()
	}
	return float64(left)
}

// bytes returns the memory that the objects in all caches take.
func (s *series) bytes() float64 {
	bytes := int64(0)
	for _, store := range *s.stores.Load() {
		bytes += store.kept()
	}
	return float64(bytes)
}

// synced returns 1 if all stores have listed their objects, otherwise 0.
func (s *series) synced() float64 {
	for _, store := range *s.stores.Load() {
		if !store.isSynced() {
			return 0
		}
	}
	return 1
}

// age returns the age of the oldest store in seconds.
func (s *series) age() float64 {
	var oldest time.Duration
	for _, store := range *s.stores.Load() {
		oldest = max(oldest, store.age())
	}
	return oldest.Seconds()
}

// addLiveMetrics adds the metrics of requests to the API server, for the needed verbs.
func (s *store) addLiveMetrics(set *metrics.Set, needed []string) {
	for i, verb := range verbs {
		if !slices.Contains(needed, verb) || s.live[i][0] != nil {
			continue
		}
		for j, result := range results {
			s.live[i][j] = set.GetOrCreateCounter(fmt.Sprintf(
				`fastadmit_cluster_live_requests_total{resource=%q,result=%q,verb=%q}`, s.kind, result, verb))
		}
	}
}
