package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/sync/singleflight"
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

	mu      sync.RWMutex
	buckets map[string]*bucket // by namespace, which is empty for objects in none
	count   int
	pinned  map[cache.ObjectName]pinned // objects that a Putter has put

	users []string // names of the plugins that need the kind

	subscribers map[*func()]struct{} // called after each change

	// For a kind that was named at run time: the limit of its JSON in bytes, the bytes
	// in the cache and in the list that the reflector is receiving, whether the limit
	// was exceeded, and the function that then ends the reflector.
	bytesMax, bytes, bytesListed int64
	isOver                       bool
	full                         func()

	client     rest.Interface
	files      *fileAPI // set if client is nil
	followed   atomic.Bool
	endReflect context.CancelFunc // of an optional kind: ends following it
	timing     timing
	flights    singleflight.Group // live requests in progress, by verb, object and caller

	began   time.Time
	contact atomic.Int64          // time of the last list, event or bookmark, in nanoseconds since began
	fault   atomic.Pointer[error] // error of the last list or watch, nil if it succeeded
	faults  *metrics.Counter
	live    [len(verbs)][len(results)]*metrics.Counter
}

// A bucket has the objects of a namespace.
type bucket struct {
	objects map[string]Object   // by name
	sorted  atomic.Pointer[any] // a sorted slice of objects; nil after a change
}

func newStore(kind *Kind, log *slog.Logger) *store {
	return &store{
		kind:    kind,
		decoder: sync.OnceValue(func() runtime.Decoder { return kind.codecs().UniversalDeserializer() }),
		log:     log,
		synced:  make(chan struct{}),
		buckets: make(map[string]*bucket),
		timing:  defaultTiming,
		began:   time.Now(),
	}
}

// A trimmedObject is an object that Transformer has trimmed.
type trimmedObject struct{ Object }

// Transformer implements cache.TransformingStore: the reflector trims each object of a
// list when it receives it.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		trimmed, err := s.trim(object)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bytesListed += s.sizeOf(trimmed)
		return trimmedObject{trimmed}, s.checkBytes(s.bytesListed)
	}
}

// trim returns an object with the fields that the cache keeps. If the cache has an equal
// object, it returns that. So a second list of the same objects, as after a restart of
// the API server, takes little memory.
func (s *store) trim(object any) (Object, error) {
	if trimmed, ok := object.(trimmedObject); ok {
		return trimmed.Object, nil
	}
	reduced, err := s.kind.trim(object.(runtime.Object))
	if err != nil {
		return nil, err
	}
	trimmed := reduced.(Object)
	before, ok := s.lookup(trimmed.GetNamespace(), trimmed.GetName())
	if ok && before.GetResourceVersion() == trimmed.GetResourceVersion() && reflect.DeepEqual(before, trimmed) {
		return before, nil
	}
	return trimmed, nil
}

// Add implements cache.ReflectorStore. It replaces an object with the same name.
func (s *store) Add(object any) error {
	trimmed, err := s.trim(object)
	if err != nil {
		return err
	}
	defer s.changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, stays := s.pinned[cache.MetaObjectToName(trimmed)]; !stays {
		s.put(trimmed)
	}
	return s.checkBytes(s.bytes)
}

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

// put adds or replaces an object.
func (s *store) put(object Object) {
	b := s.buckets[object.GetNamespace()]
	if b == nil {
		b = &bucket{objects: make(map[string]Object)}
		s.buckets[object.GetNamespace()] = b
	}
	if before, ok := b.objects[object.GetName()]; !ok {
		s.count++
	} else {
		s.bytes -= s.sizeOf(before)
	}
	s.bytes += s.sizeOf(object)
	b.objects[object.GetName()] = object
	b.sorted.Store(nil)
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(got any) error {
	object, ok := got.(Object)
	if !ok {
		return fmt.Errorf("cannot delete a %T, want an object of %s", got, s.kind)
	}
	defer s.changed()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[object.GetNamespace()]
	if _, stays := s.pinned[cache.MetaObjectToName(object)]; stays || b == nil || b.objects[object.GetName()] == nil {
		return nil
	}
	s.count--
	s.bytes -= s.sizeOf(b.objects[object.GetName()])
	delete(b.objects, object.GetName())
	b.sorted.Store(nil)
	if len(b.objects) == 0 {
		delete(s.buckets, object.GetNamespace())
	}
	return nil
}

// Replace implements cache.ReflectorStore: the objects of a list replace all others.
func (s *store) Replace(objects []any, _ string) error {
	trimmed := make([]Object, 0, len(objects))
	for _, object := range objects {
		object, err := s.trim(object)
		if err != nil {
			s.failed(err)
			return err
		}
		trimmed = append(trimmed, object)
	}
	s.mu.Lock()
	s.buckets, s.count, s.bytes, s.bytesListed = make(map[string]*bucket), 0, 0, 0
	for _, object := range trimmed {
		s.put(object)
	}
	for _, p := range s.pinned {
		s.put(p.trimmed)
	}
	err := s.checkBytes(s.bytes)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.contacted()
	s.sync.Do(func() { close(s.synced) })
	s.changed()
	return nil
}

// checkBytes returns an error if bytes exceed the limit. It then removes all objects and
// ends the reflector. Kinds without a limit have no bytes, see sizeOf. The caller holds
// s.mu.
func (s *store) checkBytes(bytes int64) error {
	if bytes <= s.bytesMax {
		return nil
	}
	s.isOver = true
	s.buckets, s.count = make(map[string]*bucket), 0
	s.full()
	return errFull
}

func (s *store) isFull() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.isOver
}

// changed calls the subscribers after objects changed.
func (s *store) changed() {
	s.mu.RLock()
	subscribers := slices.Collect(maps.Keys(s.subscribers))
	s.mu.RUnlock()
	for _, notify := range subscribers {
		(*notify)()
	}
}

// subscribe calls changed after each change, until the returned function is called.
func (s *store) subscribe(changed func()) (unsubscribe func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers == nil {
		s.subscribers = make(map[*func()]struct{})
	}
	s.subscribers[&changed] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscribers, &changed)
	}
}

// lookup returns an object from the cache. It does not allocate.
func (s *store) lookup(namespace, name string) (Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b := s.buckets[namespace]
	if b == nil {
		return nil, false
	}
	object, ok := b.objects[name]
	return object, ok
}

// size returns the number of objects in the cache.
func (s *store) size() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.count
}

// isReady reports whether the objects have been listed, or need not be.
func (s *store) isReady() bool { return !s.followed.Load() || s.isSynced() }

func (s *store) isSynced() bool {
	select {
	case <-s.synced:
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
