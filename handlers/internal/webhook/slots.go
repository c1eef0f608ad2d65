package webhook

import (
	"context"
	"sync"
)

const (
	// callsMax is the maximum number of concurrent calls of a webhook. Each has a connection
	// with about 80 KiB of buffers, so these take 16 MiB; a webhook that answers within 10 ms
	// gets 20,000 calls per second. Further calls wait until their timeout.
	callsMax = 200

	// tenantCallsMax is how many of them are for one tenant at most: a quarter. A tenant whose
	// objects make the webhook slow leaves the others 150. A webhook that answers within 10 ms
	// gets 5,000 calls per second of one tenant.
	tenantCallsMax = callsMax / 4
)

// slots are the calls that a webhook may have in flight. Several goroutines may use them at the
// same time.
type slots struct {
	all chan struct{} // has an element for each call in flight

	mu      sync.Mutex
	tenants map[tenantKey]*share // of those with calls that are in flight or wait
}

// A share has the calls of a tenant.
type share struct {
	inFlight chan struct{} // has an element for each call that is in flight or waits for slots.all
	calls    int           // that are in flight or wait
}

func newSlots() *slots {
	return &slots{all: make(chan struct{}, callsMax), tenants: make(map[tenantKey]*share)}
}

// take waits for a slot, which release gives back. ok is false if ctx ends before.
func (s *slots) take(ctx context.Context, of tenantKey) (release func(), ok bool) {
	own := s.enter(of)
	select {
	case own.inFlight <- struct{}{}:
	case <-ctx.Done():
		s.leave(of, own)
		return nil, false
	}
	end := func() {
		<-own.inFlight
		s.leave(of, own)
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		end()
		return nil, false
	}
	return func() {
		<-s.all
		end()
	}, true
}

func (s *slots) enter(of tenantKey) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.tenants[of]
	if own == nil {
		own = &share{inFlight: make(chan struct{}, tenantCallsMax)}
		s.tenants[of] = own
	}
	own.calls++
	return own
}

func (s *slots) leave(of tenantKey, own *share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own.calls--; own.calls == 0 {
		delete(s.tenants, of)
	}
}
