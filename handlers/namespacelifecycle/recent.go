package namespacelifecycle

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// recentTime is how long the API server is asked for a namespace that was deleted, as
	// in-tree. The watch has reported the deletion long before.
	recentTime = 30 * time.Second
	// recentMax is how many deleted namespaces are remembered: a tenth of the namespaces of
	// a large cluster, at 64 bytes and a name each. Upstream remembers 100.
	recentMax = 1000
)

// recent are the names of namespaces that were deleted lately.
type recent struct {
	mu    sync.RWMutex
	until map[string]time.Time
}

func newRecent() *recent { return &recent{until: make(map[string]time.Time)} }

// add remembers a name, which is copied, unless it is too long for a namespace. If
// there are too many, that is in place of the one that would be forgotten first.
func (r *recent) add(name string) {
	if len(name) > validation.DNS1123LabelMaxLength {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	oldest := ""
	for known, until := range r.until {
		switch {
		case now.After(until):
			delete(r.until, known)
		case oldest == "" || until.Before(r.until[oldest]):
			oldest = known
		}
	}
	if _, again := r.until[name]; !again && len(r.until) >= recentMax {
		delete(r.until, oldest)
	}
	r.until[strings.Clone(name)] = now.Add(recentTime)
}

// has reports whether a name is remembered.
func (r *recent) has(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return !time.Now().After(r.until[name]) // which is long ago for others
}
