package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A View is a State as far as a plugin's needs go: what is not among them cannot
// be asked for, so that what is declared is what is true.
type View struct {
	state   *State
	needs   []Need
	watched []*store // of the needs
	plugin  string
}

// For returns v as that of the plugin of this name, which gets its share of the
// requests of the API server.
func (v *View) For(plugin string) *View {
	own := *v
	own.plugin = plugin
	return &own
}

// Ready returns nil once all that the needs have watched is known, without
// allocating, whatever others wait for. A nil View, of a plugin without needs, is
// ready.
func (v *View) Ready() error {
	if v == nil {
		return nil
	}
	return ready(v.watched)
}

// Metrics returns the set that a plugin's own series are made in.
func (v *View) Metrics() *metrics.Set { return v.state.options.Metrics }

// Object is what every object of the API is: T of Objects is a pointer to it.
type Object interface {
	runtime.Object
	metav1.Object
}

// Objects are the objects of a kind in a State. They are shared with everybody
// who asks: they must not be changed, but may be kept. The namespace is empty
// for objects that are in none.
//
// Methods that ask the API server do so before ctx ends, and no longer than half
// of a webhook's default timeout. Their errors have the API server's
// metav1.Status where it sent one; apierrors.IsNotFound is true only if it said
// so, or would have for a name that no object can have. IsInvalidName is true for
// names that it cannot be asked for. Where there is no API server, the files stand
// for it.
type Objects[T Object] struct {
	store   *store
	needs   []Need // of this kind
	watched bool
	plugin  string
}

// In returns the objects of the kind. It panics if they are not among the needs
// of the View, for then nobody follows them, and RBAC may not allow to.
func (k KindOf[T]) In(v *View) *Objects[T] {
	if v == nil {
		panic(fmt.Sprintf("cluster state: %s are asked for, but the plugin declares no Needs", k))
	}
	o := &Objects[T]{plugin: v.plugin}
	for _, need := range v.needs {
		if need.Kind == k.Kind {
			o.needs = append(o.needs, need)
			o.watched = o.watched || need.isWatched()
		}
	}
	if o.store = v.state.find(k.Kind); o.needs == nil || o.store == nil {
		panic(fmt.Sprintf("cluster state: %s are asked for, but not declared as needed", k))
	}
	return o
}

// must panics unless the verb is among the needs.
func (o *Objects[T]) must(verb, subResource string) {
	if !slices.ContainsFunc(o.needs, func(n Need) bool { return n.SubResource == subResource && slices.Contains(n.Verbs, verb) }) {
		resource := o.store.kind.resource
		if subResource != "" {
			resource += "/" + subResource
		}
		panic(fmt.Sprintf("cluster state: %s of %s is asked for, but not declared as needed", verb, resource))
	}
}

// Cached returns an object if the cache has it. It allocates nothing. The names
// are not kept.
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

// List returns the objects that the cache has in a namespace, or all of them if
// it is empty, sorted by namespace and name. It allocates only if they changed
// since it was called last. The caller must not change the slice.
func (o *Objects[T]) List(namespace string) []T {
	if !o.watched {
		o.must("watch", "")
	}
	return listed[T](o.store, namespace)
}

func listed[T Object](s *store, namespace string) []T {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.kind.namespaced && namespace == "" {
		var all []T
		for _, namespace := range slices.Sorted(maps.Keys(s.buckets)) {
			all = append(all, sorted[T](s.buckets[namespace])...)
		}
		return all
	}
	return sorted[T](s.buckets[namespace])
}

// sorted returns the objects of a bucket by name.
func sorted[T Object](b *bucket) []T {
	if b == nil {
		return nil
	}
	if sorted := b.sorted.Load(); sorted != nil {
		return (*sorted).([]T)
	}
	objects := make([]T, 0, len(b.objects))
	for _, name := range slices.Sorted(maps.Keys(b.objects)) {
		objects = append(objects, b.objects[name].(T))
	}
	b.sorted.Store(new(any(objects)))
	return objects
}

// Subscribe has changed called each time after the objects in the cache changed,
// until the function that it returns is called. Changed must not block.
func (o *Objects[T]) Subscribe(changed func()) (unsubscribe func()) {
	if !o.watched {
		o.must("watch", "")
	}
	return o.store.subscribe(changed)
}

// Synced is closed once the cache has all objects.
func (o *Objects[T]) Synced() <-chan struct{} { return o.store.synced }

// Get returns an object from the cache, or else from the API server, with the
// fields that the cache would keep. Where the cache has it, it allocates
// nothing.
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

// GetLive returns an object with all its fields from the API server, whatever
// the cache has. Who asks for the same at the same time shares a request. The names
// are copied.
func (o *Objects[T]) GetLive(ctx context.Context, namespace, name string) (object T, err error) {
	o.must("get", "")
	found, err := o.store.getLive(asCaller(ctx, o.plugin, namespace), namespace, name)
	if err != nil {
		return object, err
	}
	return found.(T), nil
}

// ListLive returns the objects in a namespace, or all of them if it is empty,
// with all their fields from the API server, whatever the cache has. Who asks
// for the same at the same time shares a request.
func (o *Objects[T]) ListLive(ctx context.Context, namespace string) ([]T, error) {
	o.must("list", "")
	list, err := o.store.listLive(asCaller(ctx, o.plugin, namespace), namespace)
	if err != nil {
		return nil, err
	}
	objects := make([]T, 0, meta.LenList(list))
	err = meta.EachListItem(list, func(item runtime.Object) error {
		objects = append(objects, item.(T))
		return nil
	})
	return objects, err
}

// Create creates an object and returns it as the API server does, which is how a
// review, such as a SubjectAccessReview, is answered. Nothing of object is kept, so
// its strings may be views of the request.
func (o *Objects[T]) Create(ctx context.Context, object T) (created T, err error) {
	o.must("create", "")
	answer, err := o.store.create(asCaller(ctx, o.plugin, object.GetNamespace()), object)
	if err != nil {
		return created, err
	}
	return answer.(T), nil
}

// UpdateStatus replaces the status of an object and returns the object. Nothing of
// object is kept, so its strings may be views of the request. The error
// is one for apierrors.IsConflict if the object's resource version is not the
// current one.
func (o *Objects[T]) UpdateStatus(ctx context.Context, object T) (updated T, err error) {
	o.must("update", "status")
	answer, err := o.store.updateStatus(asCaller(ctx, o.plugin, object.GetNamespace()), object)
	if err != nil {
		return updated, err
	}
	return answer.(T), nil
}

// Delete deletes an object. The error is one for apierrors.IsNotFound if there is none.
func (o *Objects[T]) Delete(ctx context.Context, namespace, name string) error {
	o.must("delete", "")
	return o.store.remove(asCaller(ctx, o.plugin, namespace), namespace, name)
}

// Newest returns the object that was created last, of those that is reports true
// for; ok is false if there is none. Objects are in the order of List: of several
// created at the same time, it is the first, whose name sorts first. So Kubernetes
// chooses among several default classes (k8s.io/kubernetes
// pkg/volume/util/storageclass.go GetDefaultClass). It allocates nothing.
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
