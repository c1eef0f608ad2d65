package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/cluster"
)

const (
	// paramsWait is how long a call waits for the first list of a kind of parameters, as in
	// upstream (generic/policy_dispatcher.go CollectParams). A command that reviews objects
	// has no deadline and waits until the list exists.
	paramsWait = time.Second
	// faultPause is how often awaitList checks whether listing has failed.
	faultPause = 20 * time.Millisecond
)

// clusterParams are objects of the cluster. A kind is watched while policies name it.
type clusterParams struct {
	kinds *cluster.DynamicKinds

	mu      sync.Mutex // held to change watched
	watched atomic.Pointer[map[schema.GroupVersionKind]*watchedKind]
}

// watchedKind is a kind that policies name. If objects is nil, err says why it is not
// watched.
type watchedKind struct {
	objects *cluster.DynamicKind
	wanted  wanted
	err     error
	pending error // why what is wanted now is not watched yet, while what was wanted before is

	// before has what was wanted before, until the objects have been listed. It may be nil.
	before *watchedKind
}

// stop ends the watch.
func (k *watchedKind) stop() {
	if k.objects != nil {
		k.objects.Stop()
	}
	if k.before != nil {
		k.before.stop()
	}
}

// current returns k, or the watch that k replaces if only that one has the objects that a
// reference names: k is not listed yet, or the review began before the policies changed.
func (k *watchedKind) current(has func(wanted) bool) *watchedKind {
	if k.before != nil && has(k.before.wanted) && (k.objects.Err() != nil || !has(k.wanted)) {
		return k.before
	}
	return k
}

// succeeds returns k as the successor of a watch of the same kind.
func (k *watchedKind) succeeds(before *watchedKind) *watchedKind {
	if before == nil || before.objects == nil {
		return k
	}
	if before.objects.Err() == nil {
		k.before = before.alone()
	} else {
		k.before = before.before
		before.objects.Stop()
	}
	return k
}

// alone stops the watch that k replaces, if one still runs, and returns k without it.
func (k *watchedKind) alone() *watchedKind {
	if k.before != nil {
		k.before.stop()
	}
	return &watchedKind{objects: k.objects, wanted: k.wanted}
}

// settled returns k without the watch that k replaces, if k has been listed.
func (k *watchedKind) settled() *watchedKind {
	if (k.before == nil || k.objects.Err() != nil) && k.pending == nil {
		return k
	}
	return k.alone()
}

func newClusterParams(kinds *cluster.DynamicKinds) *clusterParams {
	p := &clusterParams{kinds: kinds}
	p.watched.Store(new(map[schema.GroupVersionKind]*watchedKind))
	return p
}

// use watches these kinds and no others, and keeps the objects that are wanted. It returns
// why some of them are not watched. Ctx bounds how long the API server is asked for each.
func (p *clusterParams) use(ctx context.Context, kinds wantedKinds) map[schema.GroupVersionKind]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, now := *p.watched.Load(), make(map[schema.GroupVersionKind]*watchedKind)
	failed := make(map[schema.GroupVersionKind]error)
	for gvk, wanted := range kinds {
		known := before[gvk]
		if known != nil && known.err == nil && maps.Equal(known.wanted, wanted) {
			now[gvk] = known.settled()
			continue
		}
		objects, err := p.kinds.Watch(ctx, gvk, wanted.keeps())
		if err != nil && known != nil && known.objects != nil {
			now[gvk] = &watchedKind{objects: known.objects, wanted: known.wanted, before: known.before, pending: err}
			continue
		}
		if err != nil {
			err = fmt.Errorf("failed to find resource referenced by paramKind: '%v'%w", gvk, because(err))
			failed[gvk] = err
		}
		now[gvk] = (&watchedKind{objects: objects, wanted: wanted, err: err}).succeeds(known)
	}
	p.watched.Store(&now)
	for gvk, k := range before {
		if now[gvk] == nil {
			k.stop()
		}
	}
	return failed
}

// because returns what follows upstream's message about a kind that is not watched. It is empty
// for a kind that the API server does not have, as in upstream.
func because(err error) error {
	if meta.IsNoMatchError(err) {
		return errors.New("")
	}
	return fmt.Errorf(": %w", err)
}

// of returns the name of a kind in paths; watched is false if no policy uses it.
func (p *clusterParams) of(gvk schema.GroupVersionKind) (name string, watched bool) {
	k := (*p.watched.Load())[gvk]
	switch {
	case k == nil:
		return "", false
	case k.objects == nil:
		return gvk.Kind, true
	}
	return k.objects.Kind().String(), true
}

// unready returns why the objects of a kind cannot be read now. waiting means that they are
// being listed.
func (p *clusterParams) unready(gvk schema.GroupVersionKind) (err error, waiting bool) {
	k := (*p.watched.Load())[gvk]
	switch {
	case k == nil:
		return nil, false
	case k.err != nil:
		return k.err, false
	case k.pending != nil:
		return k.pending, false
	}
	if err = k.objects.Err(); err == nil {
		return k.objects.LeftOut(), false
	}
	return err, k.objects.Fault() == nil
}

// OfKind implements Params.
func (p *clusterParams) OfKind(ctx context.Context, kind admissionregistrationv1.ParamKind) (objects ParamObjects, known bool, err error) {
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	k := (*p.watched.Load())[gvk]
	if k == nil || k.err != nil {
		return nil, false, nil
	}
	return paramObjects{k, kind}, true, nil
}

// An unsyncedError says why the objects of a kind are not known, in upstream's words for parameters.
type unsyncedError struct {
	kind admissionregistrationv1.ParamKind
	err  error
}

func (e *unsyncedError) Error() string {
	return fmt.Sprintf("paramKind kind `%v` not yet synced to use for admission: %v", e.kind.String(), e.err)
}

func (e *unsyncedError) Unwrap() error { return e.err }

var errNewReference = errors.New("the paramRef is new")

// ready returns the objects, when they have been listed.
func (o paramObjects) ready(ctx context.Context, has func(wanted) bool) (*cluster.DynamicKind, error) {
	watched := o.watched.current(has)
	if !has(watched.wanted) {
		return nil, &unsyncedError{o.kind, errNewReference}
	}
	objects := watched.objects
	if objects.Err() != nil {
		awaitList(ctx, objects)
	}
	if err := objects.Err(); err != nil {
		if apierrors.IsNotFound(err) { // of the resource: the object may exist
			err = errors.New(err.Error())
		}
		return nil, &unsyncedError{o.kind, err}
	}
	return objects, nil
}

// awaitList waits for the first list of a kind, until it fails or ctx ends. A call does not wait
// longer than paramsWait.
func awaitList(ctx context.Context, objects *cluster.DynamicKind) {
	if _, isCall := ctx.Deadline(); isCall {
		waiting, cancel := context.WithTimeout(ctx, paramsWait)
		defer cancel()
		ctx = waiting
	}
	for objects.Err() != nil && objects.Fault() == nil {
		select {
		case <-objects.Synced():
		case <-time.After(faultPause):
		case <-ctx.Done():
			return
		}
	}
}

type paramObjects struct {
	watched *watchedKind
	kind    admissionregistrationv1.ParamKind
}

// Namespaced implements ParamObjects.
func (o paramObjects) Namespaced() bool { return o.watched.objects.Kind().IsNamespaced() }

// Get implements ParamObjects.
func (o paramObjects) Get(ctx context.Context, namespace, name string) (*Param, error) {
	objects, err := o.ready(ctx, func(w wanted) bool { return w.names(namespace, name) })
	if err != nil {
		return nil, err
	}
	object, err := objects.Get(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return newParam(object), nil
}

// List implements ParamObjects.
func (o paramObjects) List(ctx context.Context, namespace string, selector labels.Selector) (params []*Param, err error) {
	objects, err := o.ready(ctx, func(w wanted) bool { return w.selects(namespace, selector) })
	if err != nil {
		return nil, err
	}
	all, err := objects.List(namespace)
	if err != nil {
		return nil, err
	}
	for _, object := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if selector.Matches(labels.Set(object.GetLabels())) {
			params = append(params, newParam(object))
		}
	}
	return params, nil
}

func newParam(object *cluster.JSON) *Param {
	return &Param{object.GetNamespace(), object.GetName(), object}
}
