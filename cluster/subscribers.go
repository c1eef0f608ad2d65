package cluster

import (
	"maps"
	"slices"
	"sync"
)

// subscribers are functions to call after changes. Several goroutines may use them at the
// same time.
type subscribers struct {
	mu  sync.Mutex
	all map[*func()]struct{}
}

// subscribe adds a function, until the returned function is called.
func (s *subscribers) subscribe(changed func()) (unsubscribe func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[*func()]struct{})
	}
	s.all[&changed] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, &changed)
	}
}

// notify calls the functions. They may subscribe and unsubscribe.
func (s *subscribers) notify() {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, changed := range all {
		(*changed)()
	}
}
