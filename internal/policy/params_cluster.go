package policy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

const (
	// paramsWait is how long a call waits for the first list of a kind of parameters, as
	// upstream (generic/policy_dispatcher.go CollectParams). A command that reviews objects
	// waits until it is there, because it has no deadline, and nobody tries again.
	paramsWait = time.Second
	// faultPause is how often it is looked at whether listing has failed.
	faultPause = 20 * time.Millisecond
)

// clusterParams are objects of the cluster. The kinds that policies name are watched
// while they name them.
type clusterParams struct {
	kinds *cluster.DynamicKinds

	mu      sync.Mutex // for those who change watched
	watched atomic.Pointer[map[schema.GroupVersionKind]*watchedKind]
}

// watchedKind is a kind that policies name. If objects is nil, err says why it is not
// watched.
type watchedKind struct {
	objects *cluster.DynamicKind
	err     error
}

func newClusterParams(kinds *cluster.DynamicKinds) *clusterParams {
	p := &clusterParams{kinds: kinds}
	p.watched.Store(new(map[schema.GroupVersionKind]*watchedKind))
	return p
}

// use watches these kinds and no others. It returns why some of them are not watched.
// Ctx bounds how long the API server is asked for each.
func (p *clusterParams) use(ctx context.Context, kinds map[schema.GroupVersionKind]bool) map[schema.GroupVersionKind]error {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, now := *p.watched.Load(), make(map[schema.GroupVersionKind]*watchedKind)
	failed := make(map[schema.GroupVersionKind]error)
	for gvk := range kinds {
		if known := before[gvk]; known != nil && known.err == nil {
			now[gvk] = known
			continue
		}
		objects, err := p.kinds.Watch(ctx, gvk)
		if err != nil {
			err = fmt.Errorf("failed to find resource referenced by paramKind: '%v'%w", gvk, because(err))
			failed[gvk] = err
		}
		now[gvk] = &watchedKind{objects, err}
	}
	p.watched.Store(&now)
	for gvk, k := range before {
		if now[gvk] == nil && k.objects != nil {
			k.objects.Stop()
		}
	}
	return failed
}

// because is what is said behind upstream's words of a kind that is not watched;
// nothing for one that the API server does not have, as there.
func because(err error) error {
	if meta.IsNoMatchError(err) {
		return errors.New("")
	}
	return fmt.Errorf(": %w", err)
}

// of returns how a kind is called in paths; watched is false if no policy uses it.
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

// unready returns why the objects of a kind cannot be read now. Waiting says that
// they are being listed.
func (p *clusterParams) unready(gvk schema.GroupVersionKind) (err error, waiting bool) {
	k := (*p.watched.Load())[gvk]
	switch {
	case k == nil:
		return nil, false
	case k.err != nil:
		return k.err, false
	}
	err = k.objects.Err()
	return err, err != nil && k.objects.Fault() == nil && !k.objects.IsFull()
}

// OfKind implements Params.
func (p *clusterParams) OfKind(ctx context.Context, kind admissionregistrationv1.ParamKind) (objects ParamObjects, known bool, err error) {
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	k := (*p.watched.Load())[gvk]
	if k == nil || k.err != nil {
		return nil, false, nil
	}
	if _, isCall := ctx.Deadline(); isCall {
		waiting, cancel := context.WithTimeout(ctx, paramsWait)
		defer cancel()
		ctx = waiting
	}
	awaitList(ctx, k.objects)
	if err := k.objects.Err(); err != nil {
		return nil, true, fmt.Errorf("paramKind kind `%v` not yet synced to use for admission: %w", kind.String(), err)
	}
	return paramObjects{k.objects}, true, nil
}

// awaitList waits for the first list of a kind, until it fails or ctx ends.
func awaitList(ctx context.Context, objects *cluster.DynamicKind) {
	for objects.Err() != nil && objects.Fault() == nil && !objects.IsFull() {
		select {
		case <-objects.Synced():
		case <-time.After(faultPause):
		case <-ctx.Done():
			return
		}
	}
}

type paramObjects struct{ *cluster.DynamicKind }

// Namespaced implements ParamObjects.
func (o paramObjects) Namespaced() bool { return o.Kind().IsNamespaced() }

// Get implements ParamObjects.
func (o paramObjects) Get(_ context.Context, namespace, name string) (*Param, error) {
	object, ok := o.DynamicKind.Get(namespace, name)
	if !ok {
		return nil, apierrors.NewNotFound(o.Kind().Resource(), name)
	}
	return newParam(object), nil
}

// List implements ParamObjects.
func (o paramObjects) List(ctx context.Context, namespace string, selector labels.Selector) (params []*Param, err error) {
	for _, object := range o.DynamicKind.List(namespace) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if selector.Matches(labels.Set(object.GetLabels())) {
			params = append(params, newParam(object))
		}
	}
	return params, nil
}

// newParam returns the object for one review: who reads it notes in it where things
// are.
func newParam(object *cluster.JSON) *Param {
	return &Param{
		Namespace: object.GetNamespace(), Name: object.GetName(), Value: view.ValueOf(object.Read(new(codec.Object))),
	}
}
