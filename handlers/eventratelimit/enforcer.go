package eventratelimit

import (
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// enforcer enforces one limit. It has a token bucket for each of the keys used
// last; a key that is used again after it was dropped begins with a full one.
type enforcer struct {
	limit limit
	now   func() time.Time

	// mu is held from the look-up to the charge: of two requests with a new
	// key the second must find the bucket of the first, and no bucket must see
	// the time go back.
	mu      sync.Mutex
	buckets *simplelru.LRU[key, *rate.Limiter]
}

// cacheSizeDefault is how many buckets a limit has if its configuration does
// not say (upstream's defaultCacheSize).
const cacheSizeDefault = 4096

func newEnforcer(l limit, now func() time.Time) (*enforcer, error) {
	size := int(l.CacheSize)
	switch {
	case l.Type == serverLimit:
		size = 1 // it has one key, and ignores the field
	case size == 0:
		size = cacheSizeDefault
	}
	buckets, err := simplelru.NewLRU[key, *rate.Limiter](size, nil)
	if err != nil {
		return nil, fmt.Errorf("cannot make a cache of %d buckets: %w", size, err)
	}
	return &enforcer{limit: l, now: now, buckets: buckets}, nil
}

// accepts takes a token from the key's bucket and reports whether there was
// one. It does not keep k.
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

// newBucket returns a full bucket. The detour over float32 loses what it loses
// upstream (k8s.io/client-go util/flowcontrol/throttle.go).
func (e *enforcer) newBucket() *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float32(e.limit.QPS)), int(e.limit.Burst))
}
