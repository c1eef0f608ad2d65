package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A View gives a plugin access to the parts of a State that it has declared in its
// needs. Other requests are refused, so the declared needs are always complete.
type View struct {
	state   *State
	needs   []Need
	watched []*store // of the needs
	groups  []*GroupObjects
	plugin  string

	readOnly bool
	log      *slog.Logger // nil for that of the State
	metrics  *metrics.Set // nil for that of the State
}

// ErrReadOnly is the error of a write through a View that ReadOnly returned.
var ErrReadOnly = errors.New("cluster state: a plugin that only reads tried to write")

// ReadOnly returns v for a plugin whose answers nobody gets. Create, UpdateStatus and Delete send nothing
// and return ErrReadOnly. Only SubjectAccessReviews are created, because they store nothing. The plugin gets this log
// and this set of metrics.
func (v *View) ReadOnly(log *slog.Logger, set *metrics.Set) *View {
	own := *v
	own.readOnly, own.log, own.metrics = true, log, set
	return &own
}

// IsReadOnly reports whether ReadOnly returned the View. Then a plugin starts nothing that writes.
func (v *View) IsReadOnly() bool { return v.readOnly }

// For returns v for the plugin with this name. Each plugin gets its share of the
// requests to the API server.
func (v *View) For(plugin string) *View {
	own := *v
	own.plugin = plugin
	return &own
}

// Ready returns nil when all objects that the needs watch have been listed, whatever
// other plugins wait for. Returning nil does not allocate. A nil View, of a plugin
// without needs, is ready.
func (v *View) Ready() error {
	if v == nil {
		return nil
	}
	return ready(v.watched, v.groups, true)
}

// Log returns the log for the plugin.
func (v *View) Log() *slog.Logger { return cmp.Or(v.log, v.state.options.Log) }

// Metrics returns the set for the plugin's own metrics.
func (v *View) Metrics() *metrics.Set { return cmp.Or(v.metrics, v.state.options.Metrics) }

// Object is the interface of all objects of the API. The type parameter T of Objects is a
// pointer type that implements it.
type Object interface {
	runtime.Object
	metav1.Object
}

// Objects are the objects of a kind in a State. Callers share them: objects must not be
// changed, but may be kept. The namespace of cluster-scoped objects is empty.
//
// Requests to the API server end with ctx, and after half of a webhook's default timeout
// at the latest. Their errors contain the metav1.Status of the API server, if it sent
// one. apierrors.IsNotFound is true only if the API server said so, or would say so
// because no object can have this name. IsInvalidName is true for names for which no
// request can be sent. Without an API server, the files answer.
type Objects[T Object] struct {
	store   *store
	needs   []Need // of this kind
	watched bool
	plugin  string

	readOnly bool
}

// In returns the objects of the kind. It panics if the kind is not among the needs of
// the View, because its objects are not watched then, and RBAC may not allow it.
func (k KindOf[T]) In(v *View) *Objects[T] {
	if v == nil {
		panic(fmt.Sprintf("cluster state: the plugin reads %s, but declares no Needs", k))
	}
	o := &Objects[T]{plugin: v.plugin, readOnly: v.readOnly}
	for _, need := range v.needs {
		if need.Kind == k.Kind {
			o.needs = append(o.needs, need)
			o.watched = o.watched || need.isWatched()
		}
	}
	if o.store = v.state.find(k.Kind); o.needs == nil || o.store == nil {
		panic(fmt.Sprintf("cluster state: the plugin reads %s, but does not declare them in its Needs", k))
	}
	return o
}

// must panics if the verb is not among the needs.
func (o *Objects[T]) must(verb, subResource string) {
	if !slices.ContainsFunc(o.needs, func(n Need) bool { return n.SubResource == subResource && slices.Contains(n.Verbs, verb) }) {
		resource := o.store.kind.resource
		if subResource != "" {
			resource += "/" + subResource
		}
		panic(fmt.Sprintf("cluster state: the plugin calls %s for %s, but does not declare it in its Needs", verb, resource))
	}
}

// mayWrite returns ErrReadOnly if the objects are stored and the View is read-only.
func (o *Objects[T]) mayWrite() error {
	if o.readOnly && o.store.kind.list != nil {
		return ErrReadOnly
	}
	return nil
}

// Cached returns an object from the cache; ok is false if the cache does not have it. It
// does not allocate. The names are not retained.
func (o *Objects[T]) Cached(namespace, name string) (object T, ok bool) {
	if !o.watched {
		o.must("watch", "")
	}
	found, ok := o.store.lookup(namespace, name)
	if !ok {
		return object, false
	}
	return found.(T), true
}

// LeftOut returns a TooLargeError if an object exists that Cached does not return because it,
// or its namespace, is too large for the cache. Call it if ok of Cached is false, and
// nothing else asks the API server.
func (o *Objects[T]) LeftOut(namespace, name string) error {
	s := o.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, left := s.now.lookup(namespace, name); left {
		return s.tooLarge(namespace, name, s.now.buckets[namespace].left)
	}
	return nil
}

// List returns the cached objects of a namespace, or of all namespaces if it is empty,
// sorted by namespace and name. It allocates only if objects changed since the last call.
// The caller must not change the slice. If the cache does not have all of them, because
// they are too large, the error is a TooLargeError, and a denial is the only safe answer.
func (o *Objects[T]) List(namespace string) ([]T, error) {
	if !o.watched {
		o.must("watch", "")
	}
	return listed[T](o.store, namespace)
}

func listed[T Object](s *store, namespace string) ([]T, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.complete(namespace); err != nil {
		return nil, err
	}
	if s.kind.namespaced && namespace == "" {
		var all []T
		for _, namespace := range slices.Sorted(maps.Keys(s.now.buckets)) {
			all = append(all, inOrder[T](s.now.buckets[namespace])...)
		}
		return all, nil
	}
	return inOrder[T](s.now.buckets[namespace]), nil
}

// inOrder returns the objects of a bucket by name.
func inOrder[T Object](b *bucket) []T {
	if b == nil {
		return nil
	}
	last := b.sorted.Load()
	if last != nil && last.seen == len(b.changes) {
		return last.objects.([]T)
	}
	var objects []T
	if last == nil {
		objects = make([]T, 0, len(b.objects))
		for _, name := range slices.Sorted(maps.Keys(b.objects)) {
			objects = append(objects, b.objects[name].object.(T))
		}
	} else {
		objects = withChanges(b, last.objects.([]T), b.changes[last.seen:])
	}
	b.sorted.Store(&sorted{objects, len(b.changes)})
	return objects
}

// withChanges returns a copy of sorted objects with the current objects of these names.
func withChanges[T Object](b *bucket, objects []T, names []string) []T {
	objects = slices.Clone(objects)
	for _, name := range names {
		place, had := slices.BinarySearchFunc(objects, name, func(o T, name string) int { return strings.Compare(o.GetName(), name) })
		switch e := b.objects[name]; {
		case e.object == nil && had:
			objects = slices.Delete(objects, place, place+1)
		case e.object == nil:
		case had:
			objects[place] = e.object.(T)
		default:
			objects = slices.Insert(objects, place, e.object.(T))
		}
	}
	return objects
}

// Subscribe calls changed each time after objects in the cache have changed, until the
// returned function is called. changed must not block.
func (o *Objects[T]) Subscribe(changed func()) (unsubscribe func()) {
	o.must("watch", "")
	return o.store.subscribers.subscribe(changed)
}

// Synced returns a channel that is closed when the cache has all objects.
func (o *Objects[T]) Synced() <-chan struct{} { return o.store.synced }

// Get returns an object from the cache or, if the cache does not have it, from the API
// server, with the fields that the cache would keep. It does not allocate if the object
// is cached.
func (o *Objects[T]) Get(ctx context.Context, namespace, name string) (object T, err error) {
	if found, ok := o.Cached(namespace, name); ok {
		return found, nil
	}
	live, err := o.GetLive(ctx, namespace, name)
	if err != nil {
		return object, err
	}
	trimmed, err := o.store.kind.trim(live.DeepCopyObject())
	if err != nil {
		return object, err
	}
	return trimmed.(T), nil
}

// GetLive returns an object with all fields from the API server, without using the
// cache. Concurrent equal calls share a request. The names are copied.
func (o *Objects[T]) GetLive(ctx context.Context, namespace, name string) (object T, err error) {
	o.must("get", "")
	found, err := o.store.getLive(asCaller(ctx, o.plugin, namespace), namespace, name)
	if err != nil {
		return object, err
	}
	return found.(T), nil
}

// ListLive returns the objects of a namespace, or of all namespaces if it is empty, from the
// API server, without using the cache. It decodes the Fields of the kind. Concurrent equal
// calls share a request. The objects may take 64 MiB; if they take more, or if there is no
// memory for them, there is an error.
func (o *Objects[T]) ListLive(ctx context.Context, namespace string) ([]T, error) {
	o.must("list", "")
	list, err := o.store.listLive(asCaller(ctx, o.plugin, namespace), namespace)
	if err != nil {
		return nil, err
	}
	objects := make([]T, 0, len(list))
	for _, item := range list {
		objects = append(objects, item.(T))
	}
	return objects, nil
}

// Create creates an object and returns the API server's version of it. For a
// SubjectAccessReview, this contains the answer. Nothing in object is retained, so its
// strings may be views of the request.
func (o *Objects[T]) Create(ctx context.Context, object T) (created T, err error) {
	o.must("create", "")
	if err := o.mayWrite(); err != nil {
		return created, err
	}
	answer, err := o.store.create(asCaller(ctx, o.plugin, object.GetNamespace()), object)
	if err != nil {
		return created, err
	}
	return answer.(T), nil
}

// UpdateStatus replaces the status of an object and returns the new object. Nothing in
// object is retained, so its strings may be views of the request. If the object's
// resource version is not the current one, apierrors.IsConflict is true for the error.
func (o *Objects[T]) UpdateStatus(ctx context.Context, object T) (updated T, err error) {
	o.must("update", "status")
	if err := o.mayWrite(); err != nil {
		return updated, err
	}
	answer, err := o.store.updateStatus(asCaller(ctx, o.plugin, object.GetNamespace()), object)
	if err != nil {
		return updated, err
	}
	return answer.(T), nil
}

// Delete deletes an object. The error is one for apierrors.IsNotFound if there is none.
func (o *Objects[T]) Delete(ctx context.Context, namespace, name string) error {
	o.must("delete", "")
	if err := o.mayWrite(); err != nil {
		return err
	}
	return o.store.remove(asCaller(ctx, o.plugin, namespace), namespace, name)
}

// Newest returns the object that was created last, among those for which is returns true.
// ok is false if there is none. objects must be in the order of List: of several objects
// with the same creation time, Newest returns the one whose name sorts first. Kubernetes
// chooses among several default classes in this way (k8s.io/kubernetes
// pkg/volume/util/storageclass.go GetDefaultClass). It does not allocate.
func Newest[T Object](objects []T, is func(object T) bool) (newest T, ok bool) {
	var at int64
	for _, object := range objects {
		if !is(object) {
			continue
		}
		created := object.GetCreationTimestamp()
		if nano := created.UnixNano(); !ok || nano > at {
			newest, at, ok = object, nano, true
		}
	}
	return newest, ok
}
