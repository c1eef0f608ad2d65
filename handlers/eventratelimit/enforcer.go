package eventratelimit

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// enforcer enforces one limit. It has a token bucket for each of the most recently used
// keys. A key that was dropped gets a full bucket when it is used again.
type enforcer struct {
	limit limit
	now   func() time.Time

	// mu is held from looking up a bucket until a token is taken. Otherwise concurrent
	// requests with a new key could get different buckets, and a bucket could see time go
	// backwards.
	mu      sync.Mutex
	buckets *simplelru.LRU[key, *rate.Limiter]
}

// cacheSizeDefault is the number of buckets of a limit without cacheSize (upstream's
// defaultCacheSize).
const cacheSizeDefault = 4096

func newEnforcer(l limit, now func() time.Time) (*enforcer, error) {
	size := int(l.CacheSize)
	switch {
	case l.Type == serverLimit:
		size = 1 // it has one key, so the field is ignored
	case size == 0:
		size = cacheSizeDefault
	}
	buckets, err := simplelru.NewLRU[key, *rate.Limiter](size, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a cache of %d buckets: %w", size, err)
	}
	return &enforcer{limit: l, now: now, buckets: buckets}, nil
}

// accepts takes a token from the key's bucket, and reports whether there was one. It does
// not retain k.
func (e *enforcer) accepts(k key) bool {
	k = k.bounded()
	e.mu.Lock()
	defer e.mu.Unlock()
	bucket, known := e.buckets.Get(k)
	if !known {
		bucket = e.newBucket()
		e.buckets.Add(k.clone(), bucket)
	}
	return bucket.AllowN(e.now(), 1)
}

// newBucket returns a full bucket. The conversion to float32 loses the same precision as
// upstream (k8s.io/client-go util/flowcontrol/throttle.go).
func (e *enforcer) newBucket() *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float32(e.limit.QPS)), int(e.limit.Burst))
}
