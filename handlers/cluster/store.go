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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// A store has the objects of a kind. It is the cache.ReflectorStore of its
// watch.
type store struct {
	kind    *Kind
	decoder func() runtime.Decoder // of objects in files, with fields that the kind does not have
	log     *slog.Logger
	synced  chan struct{} // closed when all objects were there for the first time
	sync    sync.Once

	mu      sync.RWMutex
	buckets map[string]*bucket // by namespace, which is empty for objects in none
	count   int
	pinned  map[cache.ObjectName]pinned // objects that a Putter has put

	users []string // the plugins that need it, by name

	client   rest.Interface
	files    *stored // instead of a client
	followed atomic.Bool
	gone     context.CancelFunc // of an optional kind: ends following it
	timing   timing
	flights  singleflight.Group // live requests under way, by what is asked for

	began   time.Time
	contact atomic.Int64          // when the API server was heard last, in nanoseconds since began
	fault   atomic.Pointer[error] // why it is not heard, nil if it is
	faults  *metrics.Counter
	live    [len(verbs)][len(results)]*metrics.Counter
}

// A bucket has the objects of a namespace.
type bucket struct {
	objects map[string]Object   // by name
	sorted  atomic.Pointer[any] // they as a slice of their type, nil since the last change
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

// Transformer has the reflector trim objects while it gathers them
// (cache.TransformingStore).
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return s.kind.trim(object.(runtime.Object)) }
}

// Add implements cache.ReflectorStore: the reflector adds what may be there
// already.
func (s *store) Add(object any) error {
	trimmed, err := s.Transformer()(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, stays := s.pinned[cache.MetaObjectToName(trimmed.(Object))]; !stays {
		s.put(trimmed.(Object))
	}
	return nil
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
	if _, ok := b.objects[object.GetName()]; !ok {
		s.count++
	}
	b.objects[object.GetName()] = object
	b.sorted.Store(nil)
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(got any) error {
	object, ok := got.(Object)
	if !ok {
		return fmt.Errorf("got a %T to delete, want one of %s", got, s.kind)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[object.GetNamespace()]
	if _, stays := s.pinned[cache.MetaObjectToName(object)]; stays || b == nil || b.objects[object.GetName()] == nil {
		return nil
	}
	s.count--
	delete(b.objects, object.GetName())
	b.sorted.Store(nil)
	if len(b.objects) == 0 {
		delete(s.buckets, object.GetNamespace())
	}
	return nil
}

// Replace implements cache.ReflectorStore: it takes a list as all objects there
// are.
func (s *store) Replace(objects []any, _ string) error {
	trimmed := make([]Object, 0, len(objects))
	for _, object := range objects {
		object, err := s.Transformer()(object)
		if err != nil {
			s.failed(err)
			return err
		}
		trimmed = append(trimmed, object.(Object))
	}
	s.mu.Lock()
	s.buckets, s.count = make(map[string]*bucket), 0
	for _, object := range trimmed {
		s.put(object)
	}
	for _, p := range s.pinned {
		s.put(p.trimmed)
	}
	s.mu.Unlock()
	s.contacted()
	s.sync.Do(func() { close(s.synced) })
	return nil
}

// lookup returns the object that the cache has, without allocating.
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

// size returns how many objects the cache has.
func (s *store) size() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.count
}

// isReady reports whether what is followed is known.
func (s *store) isReady() bool { return !s.followed.Load() || s.isSynced() }

func (s *store) isSynced() bool {
	select {
	case <-s.synced:
		return true
	default:
		return false
	}
}

// unsynced says why isSynced is false.
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

// neededBy notes that a plugin of this name, which may be empty, needs the objects.
func (s *store) neededBy(plugin string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if plugin != "" && !slices.Contains(s.users, plugin) {
		s.users = append(s.users, plugin)
	}
}

// age returns how long ago the API server was heard, by a list, an event or a
// bookmark: the state is as of then, or later.
func (s *store) age() time.Duration {
	return time.Since(s.began) - time.Duration(s.contact.Load())
}

// contacted notes that the API server said what is.
func (s *store) contacted() {
	s.contact.Store(int64(time.Since(s.began)))
	if s.fault.Load() != nil && s.fault.Swap(nil) != nil {
		s.log.Info("following the cluster again", "resource", s.kind.String())
	}
}

// failed notes that the API server did not. The log has the first of several
// failures, the counter each.
func (s *store) failed(err error) {
	s.faults.Inc()
	if s.fault.Swap(&err) == nil {
		s.log.Warn("cannot follow the cluster, going on with what is known", "resource", s.kind.String(), "error", err.Error())
	}
}
