package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/VictoriaMetrics/metrics"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// dynamicKindsMax is how many kinds that were named at run time are watched at the
	// same time. A watch costs a goroutine here and a stream in the API server. Of
	// Kubernetes' own kinds, two are used for parameters (ConfigMap, Secret).
	dynamicKindsMax = 32

	// dynamicBytesMax is how much JSON the cache of one such kind may have: as much as
	// 10,000 ConfigMaps of 3 KB. With dynamicKindsMax kinds of this size it is 1 GiB.
	// Parameters are few and small, so a kind with more was named by mistake.
	dynamicBytesMax = 32 << 20
)

// dynamic is the kind of the need for kinds that are named at run time.
var dynamic = &Kind{version: schema.GroupVersion{Version: "v1"}, name: "Dynamic", resource: "dynamic"}

// Dynamic is the need to watch kinds that are named at run time. Rules does not contain
// the permissions to get, list and watch them; the operator grants these.
func Dynamic() Need { return dynamic.Called("get", "list") }

// DynamicKinds watches kinds that are named at run time, at most 32 at the same time.
// Several watches of one kind share a cache. Several goroutines may call its methods at
// the same time.
type DynamicKinds struct {
	state     *State
	discovery *Discovery
}

// dynamicKinds are the kinds of a State that are watched now.
type dynamicKinds struct {
	mu      sync.Mutex
	watched map[schema.GroupVersionKind]*dynamicKind
}

type dynamicKind struct {
	store *store
	users int
	end   context.CancelFunc
}

// DynamicIn returns the DynamicKinds of a cluster. It panics if Dynamic and Discovered
// are not among the needs of the View.
func DynamicIn(v *View) *DynamicKinds {
	for _, need := range v.needs {
		if need.Kind == dynamic {
			return &DynamicKinds{v.state, DiscoveryIn(v)}
		}
	}
	panic("cluster state: the plugin watches kinds that are named at run time, but does not declare Dynamic in its Needs")
}

// errTooManyKinds is the error if too many kinds are watched.
var errTooManyKinds = fmt.Errorf("%d kinds are watched already, the maximum", dynamicKindsMax)

// Watch watches a kind until Stop is called. It waits for discovery of the kind, but not
// for its objects; ctx limits the wait. If the API server does not have the kind,
// meta.IsNoMatchError is true for the error.
func (d *DynamicKinds) Watch(ctx context.Context, gvk schema.GroupVersionKind) (*DynamicKind, error) {
	all := &d.state.dynamic
	all.mu.Lock()
	defer all.mu.Unlock()
	k := all.watched[gvk]
	if k == nil {
		if len(all.watched) >= dynamicKindsMax {
			d.state.dynamicRefusals("kinds").Inc()
			return nil, fmt.Errorf("cluster state: cannot watch %s: %w", gvk, errTooManyKinds)
		}
		kind, err := d.find(ctx, gvk)
		if err != nil {
			return nil, err
		}
		if k, err = d.state.watchDynamic(kind); err != nil {
			return nil, err
		}
		if all.watched == nil {
			all.watched = make(map[schema.GroupVersionKind]*dynamicKind)
		}
		all.watched[gvk] = k
	}
	k.users++
	return &DynamicKind{store: k.store, stop: sync.OnceFunc(func() { d.state.stopDynamic(gvk) })}, nil
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
func newDynamicKind(gvk schema.GroupVersionKind, r *metav1.APIResource) *Kind {
	k := DefineJSON(Definition{
		Group: gvk.Group, Version: gvk.Version, Resource: r.Name, Kind: gvk.Kind, Namespaced: r.Namespaced,
	}).Kind
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

// watchDynamic starts to watch a kind.
func (s *State) watchDynamic(kind *Kind) (*dynamicKind, error) {
	client, err := s.dial(kind)
	if err != nil {
		return nil, err
	}
	store := newStore(kind, s.options.Log)
	store.client, store.bytesMax = client, dynamicBytesMax
	s.mu.Lock()
	s.addMetrics(store)
	s.mu.Unlock()
	ctx, end := context.WithCancel(context.Background())
	store.full = sync.OnceFunc(func() {
		s.dynamicRefusals("bytes").Inc()
		end()
	})
	go store.follow(ctx)
	return &dynamicKind{store: store, end: end}, nil
}

// stopDynamic ends one user's watch of a kind. The last one stops the watch and removes
// the cache.
func (s *State) stopDynamic(gvk schema.GroupVersionKind) {
	s.dynamic.mu.Lock()
	defer s.dynamic.mu.Unlock()
	k := s.dynamic.watched[gvk]
	if k.users--; k.users > 0 {
		return
	}
	k.end()
	delete(s.dynamic.watched, gvk)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeMetrics(k.store)
}

// dynamicRefusals counts kinds that are not watched because of a limit.
func (s *State) dynamicRefusals(reason string) *metrics.Counter {
	return s.options.Metrics.GetOrCreateCounter(fmt.Sprintf(`fastadmit_cluster_kind_refusals_total{reason=%q}`, reason))
}

// A DynamicKind has the objects of a kind that was named at run time, as JSON without
// managed fields and without the annotation
// kubectl.kubernetes.io/last-applied-configuration.
type DynamicKind struct {
	store *store
	stop  func()
}

// Stop ends this watch. Other watches of the kind continue.
func (k *DynamicKind) Stop() { k.stop() }

// Kind returns the watched kind.
func (k *DynamicKind) Kind() *Kind { return k.store.kind }

// Err returns nil if all objects are cached. Otherwise, it says why not: they have not
// been listed yet, or exceed the limit.
func (k *DynamicKind) Err() error {
	switch {
	case k.store.isFull():
		return fmt.Errorf("cluster state: %s: %w", k.store.kind, errFull)
	case !k.store.isSynced():
		return k.store.unsynced()
	}
	return nil
}

// IsFull reports whether the objects exceed the limit, so that they are not cached.
func (k *DynamicKind) IsFull() bool { return k.store.isFull() }

// errFull is the error if the objects of a kind exceed dynamicBytesMax.
var errFull = fmt.Errorf("the objects of the kind have more than %d bytes, the limit for a kind of parameters", dynamicBytesMax)

// Synced returns a channel that is closed when all objects are cached.
func (k *DynamicKind) Synced() <-chan struct{} { return k.store.synced }

// Subscribe does the same as Objects.Subscribe.
func (k *DynamicKind) Subscribe(changed func()) (unsubscribe func()) {
	return k.store.subscribe(changed)
}

// Get returns an object from the cache. The namespace of cluster-scoped objects is empty.
func (k *DynamicKind) Get(namespace, name string) (object *JSON, ok bool) {
	found, ok := k.store.lookup(namespace, name)
	if !ok {
		return nil, false
	}
	return found.(*JSON), true
}

// List returns the objects in a namespace, or all of them if it is empty, sorted by
// namespace and name. The caller must not change the slice.
func (k *DynamicKind) List(namespace string) []*JSON { return listed[*JSON](k.store, namespace) }

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

// sizeOf returns the length of an object's JSON, for the limit of kinds that were named
// at run time. For other kinds it returns 0.
func (s *store) sizeOf(object Object) int64 {
	if s.bytesMax == 0 {
		return 0
	}
	return int64(len(object.(*JSON).text))
}

// Fault returns the error of the last list or watch. It is nil if that succeeded, or if
// there was none yet.
func (k *DynamicKind) Fault() error {
	if fault := k.store.fault.Load(); fault != nil {
		return *fault
	}
	return nil
}
