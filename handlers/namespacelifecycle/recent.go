package namespacelifecycle

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// recentTime is how long the API server is asked for a deleted namespace, as in-tree.
	// The watch reports the deletion long before that.
	recentTime = 30 * time.Second
	// recentMax is how many deleted namespaces are remembered: a tenth of those of a large
	// cluster, at 64 bytes plus the name each. Upstream remembers 100.
	recentMax = 1000
)

// recent has the names of namespaces that were deleted a short time ago.
type recent struct {
	mu    sync.RWMutex
	until map[string]time.Time
}

func newRecent() *recent { return &recent{until: make(map[string]time.Time)} }

// add remembers a copy of the name, unless it is too long for a namespace. If there are too
// many, it replaces the one that would expire first.
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
	return !time.Now().After(r.until[name]) // false for other names: their time is zero
}
