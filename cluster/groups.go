package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/wake"
)

const (
	// groupKindsMax is how many kinds of a group are watched. A watch costs a goroutine here and
	// a stream in the API server. Gatekeeper's library of policies has 49 kinds.
	groupKindsMax = 256

	// groupAnswersMax is how many answers in a row must lack a kind before its objects are
	// dropped. Of several API servers, only some may have a resource, or have it again after
	// they started.
	groupAnswersMax = 2
)

// groupFields are the fields that are kept of the objects of a group.
var groupFields = []string{"metadata.labels", "metadata.annotations", "metadata.generation", "spec"}

// anyResource stands for all resources of a group.
const anyResource = "*"

// A Group is an API group of others whose kinds are watched where the API server has them.
// Their CustomResourceDefinitions may come and go, and have any version. Define one with
// DefineGroup.
type Group struct {
	name      string
	resources []string
	kind      *Kind // of the need
}

// DefineGroup defines a group. resources are those that are watched, "*" for all of the group.
func DefineGroup(name string, resources ...string) *Group {
	g := &Group{name: name, resources: resources}
	g.kind = &Kind{version: schema.GroupVersion{Group: name, Version: "v1"}, name: "Group", resource: "group", group: g}
	return g
}

// Watched is the need to watch the group. It includes Discovered.
func (g *Group) Watched() Need { return g.kind.Watched() }

// has reports whether a resource is watched.
func (g *Group) has(r *metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "watch") && slices.Contains(r.Verbs, "list") &&
		(slices.Contains(g.resources, anyResource) || slices.Contains(g.resources, r.Name))
}

// In returns the objects of the group. It panics if the group is not among the needs of the View.
func (g *Group) In(v *View) *GroupObjects {
	for i := range v.needs {
		if v.needs[i].Kind == g.kind {
			if o := v.state.group(g); o != nil {
				return o
			}
		}
	}
	panic(fmt.Sprintf("cluster state: the plugin reads %s, but does not declare them in its Needs", g.name))
}

// GroupObjects are the objects of a Group in a State, as JSON with the metadata that identifies
// them, labels, annotations, generation and spec. Several goroutines may use it at the same
// time.
type GroupObjects struct {
	of        *Group
	state     *State
	discovery *Discovery // nil without an API server
	synced    chan struct{}
	sync      sync.Once
	required  atomic.Bool // a need is not Aside
	events    wake.Signal // after changes of objects, for follow

	subscribers subscribers

	mu      sync.Mutex
	kinds   map[string]*groupKind // by resource
	refused []string              // resources above groupKindsMax
	fault   error                 // of the last discovery
}

// A groupKind is a watched kind of a group.
type groupKind struct {
	gvk    schema.GroupVersionKind
	now    *DynamicKind
	next   *DynamicKind // of another version, until it is listed; nil for none
	absent int          // answers without it in a row
}

func newGroupObjects(g *Group, s *State, discovery *Discovery) *GroupObjects {
	return &GroupObjects{
		of: g, state: s, discovery: discovery, synced: make(chan struct{}), events: wake.NewSignal(),
		kinds: make(map[string]*groupKind),
	}
}

// group returns the objects of a group, nil if it is not needed.
func (s *State) group(g *Group) *GroupObjects {
	for _, o := range *s.groups.Load() {
		if o.of == g {
			return o
		}
	}
	return nil
}

// followGroup watches a group until ctx ends. The caller holds s.mu.
func (s *State) followGroup(ctx context.Context, need *Need) error {
	if o := s.group(need.group); o != nil {
		o.require(need)
		return nil
	}
	var discovery *Discovery
	if s.dial != nil {
		if err := s.add(discovered); err != nil {
			return err
		}
		discovery = &Discovery{s.find(discovered), need.plugin}
		discovery.store.addLiveMetrics(s.options.Metrics, []string{"get"})
	}
	o := newGroupObjects(need.group, s, discovery)
	o.require(need)
	all := append(slices.Clip(*s.groups.Load()), o)
	s.groups.Store(&all)
	if discovery == nil { // files have no objects of others' kinds
		o.setSynced()
		return nil
	}
	go o.follow(ctx)
	return nil
}

func (o *GroupObjects) require(need *Need) {
	if !need.aside {
		o.required.Store(true)
	}
}

// follow asks the API server for the kinds of the group, again and again until ctx ends.
func (o *GroupObjects) follow(ctx context.Context) {
	defer o.stop()
	for {
		err := o.discover(ctx)
		o.mu.Lock()
		first := err != nil && o.fault == nil
		o.fault = err
		o.mu.Unlock()
		if first && ctx.Err() == nil {
			o.state.options.Log.Warn("cannot find out which kinds a group has, continuing with those that are known", "group", o.of.name, "error", err.Error())
		}
		pause := o.discovery.store.timing.absent
		if err != nil && !isClosed(o.synced) {
			pause = o.discovery.store.timing.backoff.Duration
		}
		for again := time.Now().Add(pause); ; {
			if o.settle() && err == nil {
				o.setSynced()
			}
			left := time.Until(again)
			if left <= 0 {
				break
			}
			if !o.events.Wait(ctx, left, 0) {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (o *GroupObjects) setSynced() {
	o.sync.Do(func() { close(o.synced) })
}

// stop ends all watches.
func (o *GroupObjects) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range o.kinds {
		k.stop()
	}
}

func (k *groupKind) stop() {
	k.now.Stop()
	if k.next != nil {
		k.next.Stop()
	}
}

// discover watches the kinds that the API server has, and no longer those that it has not. If
// it returns an error, nothing changed.
func (o *GroupObjects) discover(ctx context.Context) error {
	served, err := o.served(ctx)
	if err != nil {
		return err
	}
	watched, refused := bounded(slices.Sorted(maps.Keys(served)))
	if o.use(served, watched, refused) {
		o.changed()
	}
	return nil
}

// bounded divides names of resources into those that are watched and the others.
func bounded(names []string) (watched, refused []string) {
	if len(names) <= groupKindsMax {
		return names, nil
	}
	return names[:groupKindsMax], names[groupKindsMax:]
}

// use watches the kinds with these names, and reports whether it changed anything.
func (o *GroupObjects) use(served map[string]*servedKind, names, refused []string) (changed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(refused) > 0 && !slices.Equal(refused, o.refused) {
		o.state.dynamicRefusals("kinds").Inc()
		changed = true
	}
	o.refused = refused
	for _, name := range names {
		changed = o.watch(served[name]) || changed
	}
	for name, k := range o.kinds {
		if served[name] != nil {
			k.absent = 0
			continue
		}
		if k.absent++; k.absent >= groupAnswersMax {
			k.stop()
			delete(o.kinds, name)
			changed = true
		}
	}
	return changed
}

// A servedKind is a kind that the API server has.
type servedKind struct {
	gvk      schema.GroupVersionKind
	resource *metav1.APIResource
}

// served returns the kinds that the API server has, by resource, each in the first version of
// the group that has it.
func (o *GroupObjects) served(ctx context.Context) (map[string]*servedKind, error) {
	versions, err := o.discovery.Versions(ctx, o.of.name)
	if err != nil {
		return nil, err
	}
	served := make(map[string]*servedKind)
	for _, version := range versions {
		gv := schema.GroupVersion{Group: o.of.name, Version: version}
		list, err := o.discovery.Resources(ctx, gv)
		if err != nil {
			return nil, err
		}
		for i := 0; list != nil && i < len(list.APIResources); i++ {
			if r := &list.APIResources[i]; o.of.has(r) && served[r.Name] == nil {
				served[r.Name] = &servedKind{gv.WithKind(r.Kind), r}
			}
		}
	}
	return served, nil
}

// watch watches a kind, unless it is watched already. The caller holds o.mu.
func (o *GroupObjects) watch(found *servedKind) (changed bool) {
	known := o.kinds[found.resource.Name]
	if known != nil && known.gvk == found.gvk {
		return false
	}
	kind := newDynamicKind(found.gvk, found.resource, groupFields...)
	watched, err := o.state.watchDynamic(kind, nil, func() {})
	if err != nil {
		o.state.options.Log.Warn("cannot watch the cluster", "resource", kind.String(), "error", err.Error())
		return false
	}
	watched.Subscribe(o.changed)
	if known == nil {
		o.kinds[found.resource.Name] = &groupKind{gvk: found.gvk, now: watched}
		return true
	}
	if known.next != nil {
		known.next.Stop()
	}
	known.gvk, known.next = found.gvk, watched
	return true
}

// settle replaces kinds by those of another version that are listed by now. It reports whether
// all kinds are listed.
func (o *GroupObjects) settle() (all bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all = true
	for _, k := range o.kinds {
		if k.next != nil && k.next.Err() == nil {
			k.now.Stop()
			k.now, k.next = k.next, nil
		}
		all = all && k.now.Err() == nil
	}
	return all
}

// changed calls the subscribers, and has follow settle what is listed.
func (o *GroupObjects) changed() {
	o.settle()
	o.events.Send()
	o.subscribers.notify()
}

// Synced returns a channel that is closed when the kinds are known and their objects are listed.
func (o *GroupObjects) Synced() <-chan struct{} { return o.synced }

// Err returns nil if Synced is closed, and otherwise says why it is not.
func (o *GroupObjects) Err() error {
	if isClosed(o.synced) {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	errs := []error{o.fault}
	for _, name := range slices.Sorted(maps.Keys(o.kinds)) {
		errs = append(errs, o.kinds[name].now.Err())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return fmt.Errorf("cluster state: the kinds of %s are not known yet: waiting for the API server", o.of.name)
}

// Subscribe calls changed each time after objects or kinds have changed, until the returned
// function is called. changed must not block.
func (o *GroupObjects) Subscribe(changed func()) (unsubscribe func()) {
	return o.subscribers.subscribe(changed)
}

// List returns the cached objects, sorted by resource, namespace and name, and says which
// objects of the group are missing among them. Objects that are missing in one namespace do not
// matter to the others.
func (o *GroupObjects) List() (objects []*JSON, missing []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fault != nil {
		missing = append(missing, fmt.Errorf("cluster state: the kinds of %s may be outdated: %w", o.of.name, o.fault))
	}
	for _, name := range o.refused {
		missing = append(missing, fmt.Errorf("cluster state: cannot watch %s.%s: %w", name, o.of.name, errTooManyGroupKinds))
	}
	for _, name := range slices.Sorted(maps.Keys(o.kinds)) {
		k := o.kinds[name].now
		if err := k.Err(); err != nil {
			missing = append(missing, err)
			continue
		}
		found, left := k.store.listKept()
		objects, missing = append(objects, found...), append(missing, left...)
	}
	return objects, missing
}

// errTooManyGroupKinds is the error of a kind that is not watched.
var errTooManyGroupKinds = fmt.Errorf("%d kinds of the group are watched already, the maximum", groupKindsMax)

// listKept returns the objects of the cache by namespace and name, and a TooLargeError for each
// namespace that lacks some.
func (s *store) listKept() (objects []*JSON, left []error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	lacking := s.now.leftOut()
	for _, namespace := range slices.Sorted(maps.Keys(s.now.buckets)) {
		b := s.now.buckets[namespace]
		if name, ok := lacking[namespace]; ok {
			left = append(left, s.tooLarge(namespace, name.Name, b.left))
		}
		for _, name := range slices.Sorted(maps.Keys(b.objects)) {
			if object := b.objects[name].object; object != nil {
				objects = append(objects, object.(*JSON))
			}
		}
	}
	return objects, left
}
