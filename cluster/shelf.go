package cluster

import (
	"cmp"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

const (
	// objectBytesMax is how much memory one cached object may take. The largest that is
	// read as a whole is a ConfigMap or Secret with 1 MiB of data (k8s.io/api core/v1
	// MaxSecretSize). The rest is for its metadata.
	objectBytesMax = 2 << 20

	// wireBytesMax is how long the kept fields of an object of a Go type may be before
	// they are decoded: two bytes of protobuf can become a struct of 112 bytes, so 128
	// KiB can become 7 MiB, and 23 MiB with the copies that are made while it grows. An
	// object of a few KiB is usual. Objects that are kept as JSON are bounded by
	// objectBytesMax, because their text does not grow.
	wireBytesMax = 128 << 10

	// namespaceBytesMax is how much memory the cached objects of one kind in one
	// namespace may take: 16,000 Pods of 500 bytes, five times as many as Kubernetes
	// is made for in a namespace (3,000), or four of the largest parameters.
	namespaceBytesMax = 8 << 20
)

// A shelf has the objects of a kind, by namespace, and counts the memory that they take.
// What a namespace has above its limit is left out, the largest objects first: their
// names and sizes stay known.
type shelf struct {
	bounds  bounds
	buckets map[string]*bucket // by namespace, which is empty for objects in none
	count   int                // of the objects that are not left out
	bytes   int64              // that the objects take
}

// bounds limit what a shelf keeps. Zero is no limit.
type bounds struct{ object, namespace int64 }

// A bucket has the objects of a namespace.
type bucket struct {
	objects map[string]entry       // by name
	bytes   int64                  // of the objects that are not left out
	wanted  int64                  // of all objects that are not too large by themselves
	left    int                    // how many objects are left out
	sorted  atomic.Pointer[sorted] // nil if the objects are not sorted, or too many changed since
	changes []string               // names of the objects that changed since they were sorted
}

// A sorted is a sorted slice of the objects of a bucket.
type sorted struct {
	objects any // a []T
	seen    int // of the changes of the bucket; the slice has these
}

// changesMax is how many changes are made in a sorted slice. After more, it is cheaper to sort anew.
const changesMax = 32

// changed notes that an object was added, replaced or removed. The caller holds the lock of the store.
func (b *bucket) changed(name string) {
	last, n := b.sorted.Load(), len(b.changes)
	switch {
	case last == nil:
	case last.seen == n:
		b.changes = append(b.changes[:0], name)
		b.sorted.Store(&sorted{objects: last.objects})
	case b.changes[n-1] == name: // it was removed to be replaced
	case n == changesMax:
		b.unsort()
	default:
		b.changes = append(b.changes, name)
	}
}

// unsort makes the next list sort all objects.
func (b *bucket) unsort() {
	b.sorted.Store(nil)
	b.changes = nil
}

// An entry is an object and the memory that it takes, or nil for one that is left out.
type entry struct {
	object Object
	bytes  int64
}

func newShelf(limits bounds) *shelf {
	return &shelf{bounds: limits, buckets: make(map[string]*bucket)}
}

// isLarge reports whether an object is too large by itself.
func (s *shelf) isLarge(e entry) bool { return s.bounds.object > 0 && e.bytes > s.bounds.object }

// put adds or replaces an object.
func (s *shelf) put(namespace, name string, e entry) {
	s.remove(namespace, name)
	b := s.buckets[namespace]
	if b == nil {
		b = &bucket{objects: make(map[string]entry)}
		s.buckets[namespace] = b
	}
	if s.isLarge(e) {
		e.object = nil
	} else {
		b.wanted += e.bytes
	}
	b.objects[name] = e
	b.changed(name)
	if e.object == nil {
		b.left++
		return
	}
	s.count++
	b.bytes += e.bytes
	s.bytes += e.bytes
	if most := s.bounds.namespace; most > 0 && b.bytes > most {
		s.shed(b, most-most/8, 0) // so that not every further object sorts the bucket
	}
}

// remove removes an object, if there is one.
func (s *shelf) remove(namespace, name string) {
	b := s.buckets[namespace]
	if b == nil {
		return
	}
	e, ok := b.objects[name]
	if !ok {
		return
	}
	if !s.isLarge(e) {
		b.wanted -= e.bytes
	}
	if e.object == nil {
		b.left--
	} else {
		s.count--
		b.bytes -= e.bytes
		s.bytes -= e.bytes
	}
	delete(b.objects, name)
	b.changed(name)
	if len(b.objects) == 0 {
		delete(s.buckets, namespace)
	}
}

// take removes an object and returns it.
func (s *shelf) take(namespace, name string) (e entry, ok bool) {
	if b := s.buckets[namespace]; b != nil {
		e, ok = b.objects[name]
		s.remove(namespace, name)
	}
	return e, ok
}

// shed leaves out the largest objects of a bucket until the others take at most most
// bytes. It keeps those of at most least bytes.
func (s *shelf) shed(b *bucket, most, least int64) {
	type sized struct {
		name  string
		bytes int64
	}
	var kept []sized
	for name, e := range b.objects {
		if e.object != nil && e.bytes > least {
			kept = append(kept, sized{name, e.bytes})
		}
	}
	slices.SortFunc(kept, func(x, y sized) int { return cmp.Or(cmp.Compare(y.bytes, x.bytes), cmp.Compare(y.name, x.name)) })
	for _, k := range kept {
		if b.bytes <= most {
			break
		}
		b.objects[k.name] = entry{bytes: k.bytes}
		b.bytes -= k.bytes
		s.bytes -= k.bytes
		s.count--
		b.left++
	}
	b.unsort()
}

// shedAbove makes excess bytes free: it leaves out the largest objects of the buckets that take more than level, those
// that take the most first, until each takes no more than that. The objects of a kind that is not namespaced count one
// by one, since each may be of another tenant.
func (s *shelf) shedAbove(level, excess int64) {
	var large []*bucket
	for namespace, b := range s.buckets {
		switch {
		case namespace == "":
			s.shed(b, b.bytes-excess, level)
		case b.bytes > level:
			large = append(large, b)
		}
	}
	slices.SortFunc(large, func(x, y *bucket) int { return cmp.Compare(y.bytes, x.bytes) })
	for _, b := range large {
		if excess <= 0 {
			break
		}
		before := b.bytes
		s.shed(b, max(level, b.bytes-excess), 0)
		excess -= before - b.bytes
	}
}

// largest returns how much memory the bucket takes that takes the most, or the largest object of
// a kind that is not namespaced.
func (s *shelf) largest() (bytes int64) {
	for namespace, b := range s.buckets {
		size := b.bytes
		if namespace == "" {
			size = 0
			for _, e := range b.objects {
				if e.object != nil {
					size = max(size, e.bytes)
				}
			}
		}
		bytes = max(bytes, size)
	}
	return bytes
}

// recoverable returns the memory that the objects would take that are left out and fit
// now: those of namespaces that are below their limit again. 0 means that there are none.
func (s *shelf) recoverable() (bytes int64) {
	for _, b := range s.buckets {
		most := s.bounds.namespace
		if missing := b.wanted - b.bytes; missing > 0 && (most == 0 || b.wanted <= most-most/8) {
			bytes += missing
		}
	}
	return bytes
}

// lookup returns an object. left reports whether it is left out.
func (s *shelf) lookup(namespace, name string) (object Object, left bool) {
	b := s.buckets[namespace]
	if b == nil {
		return nil, false
	}
	e, ok := b.objects[name]
	return e.object, ok && e.object == nil
}

// leftOut returns the namespaces that lack objects, with the largest one of each.
func (s *shelf) leftOut() map[string]cache.ObjectName {
	var lacking map[string]cache.ObjectName
	for namespace, b := range s.buckets {
		if b.left == 0 {
			continue
		}
		largest, name := int64(-1), ""
		for n, e := range b.objects {
			if e.object == nil && (e.bytes > largest || e.bytes == largest && n < name) {
				largest, name = e.bytes, n
			}
		}
		if lacking == nil {
			lacking = make(map[string]cache.ObjectName)
		}
		lacking[namespace] = cache.NewObjectName(namespace, name)
	}
	return lacking
}
