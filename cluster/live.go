package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// getLive asks the API server for an object. One that has been created while it
// was asked is found. It does not ask for a name that no object can have. The names
// may be views of a request: what is shared or returned has copies.
func (s *store) getLive(ctx context.Context, namespace, name string) (runtime.Object, error) {
	if err := s.kind.impossible(namespace, name); err != nil {
		return nil, err
	}
	namespace, name = strings.Clone(namespace), strings.Clone(name)
	if s.client == nil {
		return s.files.get(namespace, name)
	}
	if p, ok := s.pinnedBy(cache.NewObjectName(namespace, name)); ok {
		return p.whole, nil
	}
	what := s.named(namespace, name)
	return s.share(ctx, "get "+what, what, func(ctx context.Context) (runtime.Object, error) {
		object := s.kind.object.DeepCopyObject()
		err := s.client.Get().NamespaceIfScoped(namespace, s.kind.namespaced).Resource(s.kind.resource).Name(name).Do(ctx).Into(object)
		return object, s.counted(verbGet, what, err)
	})
}

// listLive asks the API server for the objects of a namespace, or for all. There
// are none in a namespace that no object can be in. The namespace may be a view of
// a request.
func (s *store) listLive(ctx context.Context, namespace string) (runtime.Object, error) {
	if namespace != "" {
		switch err := s.kind.impossible(namespace, namespace); {
		case apierrors.IsNotFound(err):
			return s.kind.list.DeepCopyObject(), nil
		case err != nil:
			return nil, err
		}
	}
	if s.client == nil {
		return s.files.list(namespace)
	}
	namespace = strings.Clone(namespace) // for the shared request
	what := s.kind.String()
	if namespace != "" {
		what += fmt.Sprintf(" in %q", namespace)
	}
	got, err := s.share(ctx, "list "+what, what, func(ctx context.Context) (runtime.Object, error) {
		list := s.kind.list.DeepCopyObject()
		err := s.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(s.kind.resource).Do(ctx).Into(list)
		return list, s.counted(verbList, what, err)
	})
	if err != nil || !s.hasPinned() {
		return got, err
	}
	items, err := meta.ExtractList(got)
	if err != nil {
		return nil, err
	}
	list := s.kind.list.DeepCopyObject()
	return list, meta.SetList(list, s.withPinned(namespace, items))
}

// share makes a request of the API server once for all that wait for it at the
// same time on behalf of the same caller: it waits in the line of that caller,
// which may be longer than that of another one. Each waits as long as its own
// context allows.
//
// The request outlives the caller that started it: client-go builds its URL after
// waiting for the rate limiter, and again for each retry. So neither key nor ask
// may hold a view of a caller's review.
func (s *store) share(ctx context.Context, key, what string, ask func(ctx context.Context) (runtime.Object, error)) (runtime.Object, error) {
	who := callerOf(ctx)
	key += "\x00" + strings.Join(who[:], "\x00")
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("cluster state: cannot ask for %s: %w", what, err)
		}
		own := false
		flight := s.flights.DoChan(key, func() (any, error) {
			own = true
			asking, cancel := context.WithTimeout(s.logging(context.WithValue(context.Background(), callerContextKey{}, who)), s.timing.live)
			defer cancel()
			return ask(asking)
		})
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cluster state: no answer for %s in time: %w", what, ctx.Err())
		case answer := <-flight:
			if apierrors.IsNotFound(answer.Err) && !own && attempt == 0 {
				// The API server may have looked before this call began, and the
				// object may be new. Whatever is under way now is younger.
				continue
			}
			if answer.Err != nil {
				return nil, answer.Err
			}
			return answer.Val.(runtime.Object), nil
		}
	}
}

// logging returns ctx with the State's log, for what client-go has to say of a
// request: it would write that to stderr, with names that users chose.
func (s *store) logging(ctx context.Context) context.Context {
	return klog.NewContext(ctx, logr.FromSlogHandler(s.log.Handler()))
}

// create creates an object.
func (s *store) create(ctx context.Context, object Object) (runtime.Object, error) {
	if s.client == nil {
		return s.files.create(ctx, object)
	}
	ctx, cancel := context.WithTimeout(s.logging(ctx), s.timing.live)
	defer cancel()
	created := s.kind.object.DeepCopyObject()
	err := s.client.Post().NamespaceIfScoped(object.GetNamespace(), s.kind.namespaced).Resource(s.kind.resource).Body(object).Do(ctx).Into(created)
	return created, s.counted(verbCreate, s.named(object.GetNamespace(), object.GetName()), err)
}

// updateStatus replaces the status of an object.
func (s *store) updateStatus(ctx context.Context, object Object) (runtime.Object, error) {
	if s.client == nil {
		return s.files.updateStatus(object)
	}
	ctx, cancel := context.WithTimeout(s.logging(ctx), s.timing.live)
	defer cancel()
	updated := s.kind.object.DeepCopyObject()
	err := s.client.Put().NamespaceIfScoped(object.GetNamespace(), s.kind.namespaced).Resource(s.kind.resource).
		Name(object.GetName()).SubResource("status").Body(object).Do(ctx).Into(updated)
	return updated, s.counted(verbUpdate, s.named(object.GetNamespace(), object.GetName()), err)
}

// remove deletes an object.
func (s *store) remove(ctx context.Context, namespace, name string) error {
	if s.client == nil {
		return s.files.remove(namespace, name)
	}
	ctx, cancel := context.WithTimeout(s.logging(ctx), s.timing.live)
	defer cancel()
	err := s.client.Delete().NamespaceIfScoped(namespace, s.kind.namespaced).Resource(s.kind.resource).Name(name).Do(ctx).Error()
	return s.counted(verbDelete, s.named(namespace, name), err)
}

// named is how errors call an object.
func (s *store) named(namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s %q", s.kind, name)
}

// counted counts a request. It returns the error with what it was about, unless
// that is in the API server's own.
func (s *store) counted(verb int, what string, err error) error {
	if apierrors.IsUnexpectedServerError(err) {
		err = errors.New(err.Error()) // a page of some proxy: its 404 says nothing about the object
	}
	result := failed
	switch {
	case err == nil:
		result = done
	case apierrors.IsNotFound(err):
		result = notFound
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		result = conflict
	default:
		err = fmt.Errorf("cluster state: cannot %s %s: %w", verbs[verb], what, err)
	}
	s.live[verb][result].Inc()
	return err
}
