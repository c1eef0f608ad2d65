// Package memo caches the results of parsing texts.
package memo

import "sync"

const (
	// memoMax is the maximum number of cached texts: the number of namespaces with
	// annotations of their own in a large cluster. With memoTextMax it bounds the memory to
	// some tens of megabytes, whatever users write.
	memoMax = 4096
	// memoTextMax is the maximum length of a cached text, in bytes: several times that of
	// useful annotations.
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
		clear(m.known) // most are no longer in use; the others are parsed again
	}
	m.known[text] = meaning
	return meaning
}
