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

	subscribers map[*func()]struct{} // called after each change

	// Of a kind that was named at run time: how much text is kept at most, how much
	// there is, how much a list that is being gathered has, and what ends following
	// when there is more.
	bytesMax, bytes, gathered int64
	isOver                    bool
	full                      func()

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

// A gathered is an object that Transformer has trimmed.
type gathered struct{ Object }

// Transformer has the reflector trim objects while it gathers them
// (cache.TransformingStore).
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		trimmed, err := s.trim(object)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gathered += s.sizeOf(trimmed)
		return gathered{trimmed}, s.checkBytes(s.gathered)
	}
}

// trim returns an object with the fields that are kept: the one that the store has if that
// is equal. So a second list of the same objects, such as after a restart of the API
// server, takes little memory.
func (s *store) trim(object any) (Object, error) {
	if trimmed, ok := object.(gathered); ok {
		return trimmed.Object, nil
	}
	kept, err := s.kind.trim(object.(runtime.Object))
	if err != nil {
		return nil, err
	}
	trimmed := kept.(Object)
	before, ok := s.lookup(trimmed.GetNamespace(), trimmed.GetName())
	if ok && before.GetResourceVersion() == trimmed.GetResourceVersion() && reflect.DeepEqual(before, trimmed) {
		return before, nil
	}
	return trimmed, nil
}

// Add implements cache.ReflectorStore: the reflector adds what may be there
// already.
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
		return fmt.Errorf("got a %T to delete, want one of %s", got, s.kind)
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

// Replace implements cache.ReflectorStore: it takes a list as all objects there
// are.
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
	s.buckets, s.count, s.bytes, s.gathered = make(map[string]*bucket), 0, 0, 0
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

// checkBytes forgets all objects for good if there is more text than may be. Without a
// limit, sizeOf counts none. The caller holds s.mu.
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

// changed tells those who subscribed that objects changed.
func (s *store) changed() {
	s.mu.RLock()
	told := slices.Collect(maps.Keys(s.subscribers))
	s.mu.RUnlock()
	for _, tell := range told {
		(*tell)()
	}
}

// subscribe has changed called after each change, until the function that it returns
// is called.
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
	if s.fault.Swap(nil) != nil {
		s.log.Info("watching the cluster again", "resource", s.kind.String())
	}
}

// failed notes that the API server did not. The log has the first of several
// failures, the counter each.
func (s *store) failed(err error) {
	s.faults.Inc()
	if s.fault.Swap(&err) == nil {
		s.log.Warn("cannot watch the cluster, continuing with the cached objects", "resource", s.kind.String(), "error", err.Error())
	}
}
