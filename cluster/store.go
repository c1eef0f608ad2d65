package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// A store is the cache of a kind. It implements cache.ReflectorStore for its reflector.
type store struct {
	kind    *Kind
	decoder func() runtime.Decoder // for objects in files; ignores fields that the kind does not have
	log     *slog.Logger
	synced  chan struct{} // closed when the cache has all objects for the first time
	sync    sync.Once

	mu       sync.RWMutex
	now      *shelf                      // the objects
	incoming *shelf                      // the objects of the list that the reflector is receiving, nil if it is not
	pinned   map[cache.ObjectName]pinned // objects that a Putter has put

	users []string // names of the plugins that need the kind

	subscribers subscribers // called after each change

	account *account // may be nil
	// wants reports whether to keep an object, of which only the identity and the labels
	// are known. It may be nil.
	wants func(object metav1.Object) bool

	client     rest.Interface
	files      *fileAPI // set if client is nil
	followed   atomic.Bool
	required   atomic.Bool        // a need is not Aside
	endReflect context.CancelFunc // of an optional kind: ends following it
	timing     timing
	pace       pace
	flights    singleflight.Group // live requests in progress, by verb, object and caller

	began   time.Time
	contact atomic.Int64          // time of the last list, event or bookmark, in nanoseconds since began
	fault   atomic.Pointer[error] // error of the last list or watch, nil if it succeeded
	faults  *metrics.Counter
	live    [len(verbs)][len(results)]*metrics.Counter
}

func newStore(kind *Kind, log *slog.Logger) *store {
	limits := bounds{object: objectBytesMax}
	if kind.namespaced {
		limits.namespace = namespaceBytesMax
	}
	return &store{
		kind:    kind,
		decoder: sync.OnceValue(func() runtime.Decoder { return kind.codecs().UniversalDeserializer() }),
		log:     log,
		synced:  make(chan struct{}),
		now:     newShelf(limits),
		timing:  defaultTiming,
		began:   time.Now(),
	}
}

// Transformer implements cache.TransformingStore: the reflector shelves each object of a
// list when it receives it, and needs only its identity then.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		a, err := s.arrivedFrom(object)
		if err != nil {
			return nil, err
		}
		s.shelve(a)
		return a, nil
	}
}

// expect empties the shelf for the objects of a list.
func (s *store) expect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.incoming = newShelf(s.now.bounds)
}

// shelve puts an object of a list on the shelf for it, where it stays until Replace.
func (s *store) shelve(a *arrived) {
	s.mu.Lock()
	if s.incoming == nil {
		s.incoming = newShelf(s.now.bounds)
	}
	if !a.unwanted {
		s.incoming.put(a.Namespace, a.Name, entry{a.object, a.bytes})
	}
	a.object, a.shelved = nil, true
	s.mu.Unlock()
	s.account.settle()
}

// Add implements cache.ReflectorStore. It replaces an object with the same name.
func (s *store) Add(object any) error {
	a, err := s.arrivedFrom(object)
	if err != nil {
		return err
	}
	defer s.subscribers.notify()
	s.mu.Lock()
	if _, stays := s.pinned[a.objectName()]; !stays {
		if a.unwanted {
			s.now.remove(a.Namespace, a.Name)
		} else {
			s.now.put(a.Namespace, a.Name, entry{a.object, a.bytes})
		}
	}
	s.mu.Unlock()
	s.account.settle()
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(got any) error {
	object, ok := got.(metav1.Object)
	if !ok {
		return fmt.Errorf("cannot delete a %T, want an object of %s", got, s.kind)
	}
	defer s.subscribers.notify()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, stays := s.pinned[cache.MetaObjectToName(object)]; !stays {
		s.now.remove(object.GetNamespace(), object.GetName())
	}
	return nil
}

// Replace implements cache.ReflectorStore: the objects of a list replace all others.
func (s *store) Replace(objects []any, _ string) error {
	all := make([]*arrived, 0, len(objects))
	for _, object := range objects {
		a, err := s.arrivedFrom(object)
		if err != nil {
			s.failed(err)
			return err
		}
		all = append(all, a)
	}
	s.mu.Lock()
	next, shelved := newShelf(s.now.bounds), s.incoming
	for _, a := range all {
		e := entry{a.object, a.bytes}
		if a.shelved {
			var ok bool
			if e, ok = shelved.take(a.Namespace, a.Name); !ok {
				continue
			}
		}
		if !a.unwanted {
			next.put(a.Namespace, a.Name, e)
		}
	}
	for name, p := range s.pinned {
		next.put(name.Namespace, name.Name, entry{p.trimmed, memoryOf(p.trimmed)})
	}
	s.now, s.incoming = next, nil
	s.mu.Unlock()
	s.account.settle()
	s.contacted()
	s.sync.Do(func() { close(s.synced) })
	s.subscribers.notify()
	return nil
}

// kept returns the memory that the objects take.
func (s *store) kept() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.incoming != nil {
		return s.now.bytes + s.incoming.bytes
	}
	return s.now.bytes
}

// largest returns the memory of the bucket that takes the most. It is 0 for kinds that
// only administrators write: what they write makes no room for what tenants do.
func (s *store) largest() int64 {
	if !s.kind.namespaced && s.kind != Namespaces.Kind {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	bytes := s.now.largest()
	if s.incoming != nil {
		bytes = max(bytes, s.incoming.largest())
	}
	return bytes
}

// shedLargest makes up to excess bytes free: it leaves out what takes more than half of what the bucket
// takes that takes the most, so that a few rounds are enough, however many namespaces there are.
func (s *store) shedLargest(excess int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, bytes := s.now, s.now.largest()
	if s.incoming != nil {
		if more := s.incoming.largest(); more > bytes {
			from, bytes = s.incoming, more
		}
	}
	from.shedAbove(bytes/2, excess)
}

// canRecover reports whether objects are left out that would fit now.
func (s *store) canRecover() bool {
	s.mu.RLock()
	bytes := s.now.recoverable()
	s.mu.RUnlock()
	return bytes > 0 && s.account.hasRoom(bytes)
}

// complete returns a TooLargeError if objects of a namespace are left out, or of any if it
// is empty.
func (s *store) complete(namespace string) error {
	if b := s.now.buckets[namespace]; s.kind.namespaced && namespace != "" && (b == nil || b.left == 0) {
		return nil
	}
	for lacking, largest := range s.now.leftOut() {
		if namespace == "" || lacking == namespace {
			return s.tooLarge(lacking, largest.Name, s.now.buckets[lacking].left)
		}
	}
	return nil
}

// lookup returns an object from the cache. It does not allocate.
func (s *store) lookup(namespace, name string) (Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	object, _ := s.now.lookup(namespace, name)
	return object, object != nil
}

// size returns the number of objects in the cache.
func (s *store) size() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.now.count
}

// leftOut returns how many objects are too large for the cache.
func (s *store) leftOut() (left int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, b := range s.now.buckets {
		left += b.left
	}
	return left
}

// isReady reports whether the objects have been listed, or need not be.
func (s *store) isReady() bool { return !s.followed.Load() || s.isSynced() }

func (s *store) isSynced() bool { return isClosed(s.synced) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// unsynced returns the reason why isSynced is false.
func (s *store) unsynced() error {
	err := errors.New("waiting for the API server")
	if fault := s.fault.Load(); fault != nil {
		err = *fault
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.users == nil {
		return fmt.Errorf("cluster state: %s are not known yet: %w", s.kind, err)
	}
	return fmt.Errorf("cluster state: %s, needed by %s, are not known yet: %w", s.kind, strings.Join(s.users, ", "), err)
}

// neededBy records the name of a plugin that needs the objects. It may be empty.
func (s *store) neededBy(plugin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if plugin != "" && !slices.Contains(s.users, plugin) {
		s.users = append(s.users, plugin)
	}
}

// age returns the time since the last list, event or bookmark. The cached objects are not
// older.
func (s *store) age() time.Duration {
	return time.Since(s.began) - time.Duration(s.contact.Load())
}

// contacted records a list, event or bookmark of the API server.
func (s *store) contacted() {
	s.contact.Store(int64(time.Since(s.began)))
	if s.fault.Swap(nil) != nil {
		s.log.Info("watching the cluster again", "resource", s.kind.String())
	}
}

// failed records an error of a list or watch. It logs only the first of several errors,
// and counts each.
func (s *store) failed(err error) {
	s.faults.Inc()
	if s.fault.Swap(&err) == nil {
		s.log.Warn("cannot watch the cluster, continuing with the cached objects", "resource", s.kind.String(), "error", err.Error())
	}
}
