package cluster

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fastadmit/fastadmit/internal/memory"
)

const (
	// leftOutMax is the maximum number of lines of LeftOut: what fits on a screen.
	leftOutMax = 20

	// stateBytesDefault is the limit of the cached objects if the process has no memory
	// limit: 32 kinds of parameters of 32 MiB each. Otherwise it is memory.StateShare.
	stateBytesDefault = 1 << 30
)

// An account limits the memory of all stores of a State together. Above the limit, the
// namespaces that take the most lose their largest objects.
type account struct {
	max    int64
	mu     sync.Mutex // held while objects are left out, and while stores changes
	stores map[*store]struct{}
}

func newAccount() *account {
	return &account{max: memory.Share(memory.StateShare, stateBytesDefault), stores: make(map[*store]struct{})}
}

func (a *account) add(s *store) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stores[s] = struct{}{}
}

func (a *account) remove(s *store) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stores, s)
}

// sum returns the memory of all stores. The caller holds a.mu.
func (a *account) sum() (bytes int64) {
	for s := range a.stores {
		bytes += s.kept()
	}
	return bytes
}

// settle leaves out objects until all others fit.
func (a *account) settle() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sum() <= a.max {
		return
	}
	for excess := a.excess(); excess > 0; excess = a.excess() {
		var most int64
		var of *store
		for s := range a.stores {
			if bytes := s.largest(); bytes > most {
				most, of = bytes, s
			}
		}
		if of == nil {
			return
		}
		of.shedLargest(excess)
	}
}

// excess returns how much less all objects must take after some were left out. The caller holds a.mu.
func (a *account) excess() int64 { return a.sum() - (a.max - a.max/8) }

// LeftOut returns a line for each kind and namespace of which the caches do not have all
// objects, because these are too large, sorted; at most leftOutMax lines.
func (s *State) LeftOut() (lines []string) {
	if s.account == nil {
		return nil
	}
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	for store := range s.account.stores {
		store.mu.RLock()
		for namespace := range store.now.leftOut() {
			lines = append(lines, fmt.Sprintf("%d %s in %q are too large for the cache", store.now.buckets[namespace].left, store.kind, namespace))
		}
		store.mu.RUnlock()
	}
	slices.Sort(lines)
	return lines[:min(len(lines), leftOutMax)]
}

// hasRoom reports whether so many bytes more fit, with some room left for changes.
func (a *account) hasRoom(bytes int64) bool {
	if a == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sum()+bytes <= a.max-a.max/8
}

// A TooLargeError means that the cache does not have all objects of a namespace, because
// they take more memory than it keeps for one. Requests must then be denied, whatever
// the failure policy is: users would switch a plugin off with large objects otherwise.
type TooLargeError struct{ text string }

// Error names the namespace, the largest object and the limits.
func (e *TooLargeError) Error() string { return e.text }

// IsTooLarge reports whether err is a TooLargeError.
func IsTooLarge(err error) bool {
	_, ok := errors.AsType[*TooLargeError](err)
	return ok
}

// tooLarge returns the error of a namespace that lacks objects.
func (s *store) tooLarge(namespace, largest string, left int) error {
	where := "among them"
	if namespace != "" {
		where = fmt.Sprintf("in the namespace %q", namespace)
	}
	return &TooLargeError{fmt.Sprintf("cluster state: %d %s %s are too large for the cache: an object may take %d bytes, all of a namespace %d, "+
		"all of the cluster %d; delete or shorten some, first %q", left, s.kind, where, s.now.bounds.object, s.now.bounds.namespace,
		s.account.limit(), largest)}
}

func (a *account) limit() int64 {
	if a == nil {
		return 0
	}
	return a.max
}

// memoryOf estimates the memory that an object takes, with all that it points to. What
// objects share counts for each of them.
func memoryOf(object Object) int64 {
	v := reflect.ValueOf(object)
	return inside(v)
}

var timeType = reflect.TypeFor[time.Time]()

// inside returns the memory of what v points to.
func inside(v reflect.Value) (bytes int64) {
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return 0
		}
		return int64(v.Elem().Type().Size()) + inside(v.Elem())
	case reflect.Slice:
		bytes = int64(v.Cap()) * int64(v.Type().Elem().Size())
		if !holds(v.Type().Elem().Kind()) {
			return bytes
		}
		for i := range v.Len() {
			bytes += inside(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			bytes += inside(v.Index(i))
		}
	case reflect.Map:
		const group = 2 // maps are half full on average
		bytes = int64(v.Len()) * group * int64(v.Type().Key().Size()+v.Type().Elem().Size())
		for each := v.MapRange(); each.Next(); {
			bytes += inside(each.Key()) + inside(each.Value())
		}
	case reflect.Struct:
		if v.Type() == timeType { // its location is shared
			return 0
		}
		for i := range v.NumField() {
			if field := v.Field(i); holds(field.Kind()) {
				bytes += inside(field)
			}
		}
	}
	return bytes
}

// holds reports whether a value of the kind can point to more memory.
func holds(kind reflect.Kind) bool {
	switch kind {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	}
	return false
}
