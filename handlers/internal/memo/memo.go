// Package memo caches the results of parsing texts.
package memo

import "sync"

const (
	// memoMax is how many texts a Memo knows: as many as namespaces of a large
	// cluster say something of their own. With memoTextMax it bounds the memory
	// to some tens of megabytes, whatever anybody writes there.
	memoMax = 4096
	// memoTextMax is how long they are at most, in bytes: several times what
	// annotations that are meant seriously have.
	memoTextMax = 4096
)

// A Memo caches the results of parsing texts, such as annotations of namespaces. Several
// goroutines may call Get at the same time.
type Memo[T any] struct {
	parse func(text string) T
	mu    sync.RWMutex
	known map[string]T
}

// New returns a Memo that caches the results of parse. parse must always return the same
// result for the same text.
func New[T any](parse func(text string) T) *Memo[T] {
	return &Memo[T]{parse: parse, known: make(map[string]T)}
}

// Get returns the result of parse for the text. All callers share the result and must not
// change it. The Memo keeps the text, so it must not be a view of a review. Get does not
// allocate if the result is cached.
func (m *Memo[T]) Get(text string) T {
	m.mu.RLock()
	meaning, ok := m.known[text]
	m.mu.RUnlock()
	if ok {
		return meaning
	}
	meaning = m.parse(text)
	if len(text) > memoTextMax {
		return meaning
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= memoMax {
		clear(m.known) // those in use come back; most of the others are of the past
	}
	m.known[text] = meaning
	return meaning
}
