package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// dynamicKindsMax is how many watches of kinds that were named at run time there are
	// at the same time. A watch costs a goroutine here and a stream in the API server.
	// Of Kubernetes' own kinds, two are used for parameters (ConfigMap, Secret), by two
	// plugins.
	dynamicKindsMax = 32

	// dynamicReadOnlyMax is the same for Views that are read-only: they do not take watches from others.
	dynamicReadOnlyMax = 8
)

// dynamic is the kind of the need for kinds that are named at run time.
var dynamic = &Kind{version: schema.GroupVersion{Version: "v1"}, name: "Dynamic", resource: "dynamic"}

// Dynamic is the need to watch kinds that are named at run time. Rules does not contain
// the permissions to get, list and watch them; the operator grants these.
func Dynamic() Need { return dynamic.Called("get", "list") }

// DynamicKinds watches kinds that are named at run time, with at most 32 watches at the
// same time. Several goroutines may call its methods at the same time.
type DynamicKinds struct {
	state     *State
	discovery *Discovery
	used      *atomic.Int64 // the number of watches
	max       int64
}

// DynamicIn returns the DynamicKinds of a cluster. It panics if Dynamic and Discovered
// are not among the needs of the View.
func DynamicIn(v *View) *DynamicKinds {
	for _, need := range v.needs {
		if need.Kind == dynamic {
			if v.readOnly {
				return &DynamicKinds{v.state, DiscoveryIn(v), &v.state.dynamicReadOnly, dynamicReadOnlyMax}
			}
			return &DynamicKinds{v.state, DiscoveryIn(v), &v.state.dynamic, dynamicKindsMax}
		}
	}
	panic("cluster state: the plugin watches kinds that are named at run time, but does not declare Dynamic in its Needs")
}

// Watch watches a kind until Stop is called. wants reports which objects to keep; of the
// object it gets, only name, namespace and labels are known. Watch waits for discovery of
// the kind, but not for its objects; ctx limits the wait. If the API server does not have
// the kind, meta.IsNoMatchError is true for the error.
func (d *DynamicKinds) Watch(ctx context.Context, gvk schema.GroupVersionKind, wants func(metav1.Object) bool) (*DynamicKind, error) {
	if d.used.Add(1) > d.max {
		d.used.Add(-1)
		d.state.dynamicRefusals("kinds").Inc()
		return nil, fmt.Errorf("cluster state: cannot watch %s: %d kinds are watched already, the maximum", gvk, d.max)
	}
	kind, err := d.find(ctx, gvk)
	if err == nil {
		var k *DynamicKind
		if k, err = d.state.watchDynamic(kind, wants, func() { d.used.Add(-1) }); err == nil {
			k.objects = &Objects[*JSON]{store: k.store, needs: []Need{kind.Watched()}, watched: true, plugin: d.discovery.plugin}
			return k, nil
		}
	}
	d.used.Add(-1)
	return nil, err
}

// KindOf asks the API server for the kind of a resource. If the API server does not have it, meta.IsNoMatchError is
// true for the error.
func (d *DynamicKinds) KindOf(ctx context.Context, resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	list, err := d.discovery.Resources(ctx, resource.GroupVersion())
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	if list != nil {
		for i := range list.APIResources {
			if r := &list.APIResources[i]; r.Name == resource.Resource {
				return resource.GroupVersion().WithKind(r.Kind), nil
			}
		}
	}
	return schema.GroupVersionKind{}, &meta.NoResourceMatchError{PartialResource: resource}
}

// find asks the API server for the resource of a kind.
func (d *DynamicKinds) find(ctx context.Context, gvk schema.GroupVersionKind) (*Kind, error) {
	list, err := d.discovery.Resources(ctx, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	if list != nil {
		for i := range list.APIResources {
			if r := &list.APIResources[i]; r.Kind == gvk.Kind && !strings.Contains(r.Name, "/") {
				return newDynamicKind(gvk, r), nil
			}
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
}

// newDynamicKind is DefineJSON for a kind that discovery found.
func newDynamicKind(gvk schema.GroupVersionKind, r *metav1.APIResource, keep ...string) *Kind {
	k := DefineJSON(Definition{
		Group: gvk.Group, Version: gvk.Version, Resource: r.Name, Kind: gvk.Kind, Namespaced: r.Namespaced,
	}, keep...).Kind
	trim := k.trim
	k.trim = func(got runtime.Object) (runtime.Object, error) {
		trimmed, err := trim(got)
		if err != nil {
			return nil, err
		}
		return k.typed(trimmed.(*JSON))
	}
	return k
}

// watchDynamic starts to watch a kind. Stop of the result calls stopped.
func (s *State) watchDynamic(kind *Kind, wants func(metav1.Object) bool, stopped func()) (*DynamicKind, error) {
	client, err := s.dial(kind)
	if err != nil {
		return nil, err
	}
	store := newStore(kind, s.options.Log)
	store.client, store.account, store.wants = client, s.account, wants
	s.account.add(store)
	s.mu.Lock()
	s.addMetrics(store)
	store.addLiveMetrics(s.options.Metrics, []string{"get"})
	s.mu.Unlock()
	ctx, end := context.WithCancel(context.Background())
	go store.follow(ctx)
	return &DynamicKind{store: store, stop: sync.OnceFunc(func() {
		end()
		s.account.remove(store)
		stopped()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.removeMetrics(store)
	})}, nil
}

// dynamicRefusals counts kinds that are not watched because of a limit.
func (s *State) dynamicRefusals(reason string) *metrics.Counter {
	return s.options.Metrics.GetOrCreateCounter(fmt.Sprintf(`fastadmit_cluster_kind_refusals_total{reason=%q}`, reason))
}

// A DynamicKind has the objects of a kind that was named at run time, as JSON without
// managed fields and without the annotation
// kubectl.kubernetes.io/last-applied-configuration.
type DynamicKind struct {
	store   *store
	objects *Objects[*JSON] // of store
	stop    func()
}

// Stop ends this watch. Other watches of the kind continue.
func (k *DynamicKind) Stop() { k.stop() }

// Kind returns the watched kind.
func (k *DynamicKind) Kind() *Kind { return k.store.kind }

// Err returns nil if the objects have been listed. Otherwise, it says why not.
func (k *DynamicKind) Err() error {
	if !k.store.isSynced() {
		return k.store.unsynced()
	}
	return nil
}

// LeftOut returns a TooLargeError if the cache does not have all objects that are wanted,
// because some are too large.
func (k *DynamicKind) LeftOut() error {
	k.store.mu.RLock()
	defer k.store.mu.RUnlock()
	return k.store.complete("")
}

// Synced returns a channel that is closed when all objects are cached.
func (k *DynamicKind) Synced() <-chan struct{} { return k.store.synced }

// Subscribe does the same as Objects.Subscribe.
func (k *DynamicKind) Subscribe(changed func()) (unsubscribe func()) {
	return k.store.subscribers.subscribe(changed)
}

// Get returns an object from the cache or, if it is too large for the cache, from the API
// server. The namespace of cluster-scoped objects is empty. apierrors.IsNotFound is true for
// the error if the cache knows no such object.
func (k *DynamicKind) Get(ctx context.Context, namespace, name string) (*JSON, error) {
	k.store.mu.RLock()
	found, left := k.store.now.lookup(namespace, name)
	k.store.mu.RUnlock()
	switch {
	case found != nil:
		return found.(*JSON), nil
	case left:
		return k.objects.Get(ctx, namespace, name)
	}
	return nil, apierrors.NewNotFound(k.store.kind.Resource(), name)
}

// List does the same as Objects.List.
func (k *DynamicKind) List(namespace string) ([]*JSON, error) {
	return listed[*JSON](k.store, namespace)
}

// typed returns the object with apiVersion and kind, which items of lists of
// Kubernetes' own kinds lack.
func (k *Kind) typed(j *JSON) (*JSON, error) {
	var o codec.Object
	v := j.Read(&o)
	if v.Get("kind").IsSet() && v.Get("apiVersion").IsSet() {
		return j, nil
	}
	o.SetString(k.version.String(), "apiVersion")
	o.SetString(k.name, "kind")
	return NewJSON(o.Root().AppendJSON(nil))
}

// Fault returns the error of the last list or watch. It is nil if that succeeded, or if
// there was none yet.
func (k *DynamicKind) Fault() error {
	if fault := k.store.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}
