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

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/httpbound"
)

// getLive gets an object from the API server. It finds an object that was created before
// the call, also if it shares a request that was sent earlier. It sends no request for a
// name that no object can have. The names may be views of a review; getLive copies them.
func (s *store) getLive(ctx context.Context, namespace, name string) (runtime.Object, error) {
	if err := s.kind.checkName(namespace, name); err != nil {
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
	loan := codec.NewLoan(ctx)
	got, err := s.share(ctx, "get "+what, what, func(ctx context.Context) (runtime.Object, error) {
		defer loan.Return()
		object := s.kind.object.DeepCopyObject()
		err := s.client.Get().NamespaceIfScoped(namespace, s.kind.namespaced).Resource(s.kind.resource).Name(name).
			Do(httpbound.With(ctx, loan)).Into(object)
		return object, s.counted(verbGet, what, err)
	})
	if err != nil {
		return nil, err
	}
	return got, keepAnswer(ctx, memoryOf(got.(Object)))
}

// listLive gets the objects of a namespace, or all objects, from the API server. The list
// is empty if no object can be in the namespace. The namespace may be a view of a review.
func (s *store) listLive(ctx context.Context, namespace string) ([]runtime.Object, error) {
	if namespace != "" {
		switch err := s.kind.checkName(namespace, namespace); {
		case apierrors.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, err
		}
	}
	if s.client == nil {
		list, err := s.files.list(namespace)
		if err != nil {
			return nil, err
		}
		return meta.ExtractList(list)
	}
	namespace = strings.Clone(namespace) // for the shared request
	what := s.kind.String()
	if namespace != "" {
		what += fmt.Sprintf(" in %q", namespace)
	}
	loan := codec.NewLoan(ctx)
	got, err := s.share(ctx, "list "+what, what, func(ctx context.Context) (runtime.Object, error) {
		defer loan.Return()
		list, err := s.askLive(ctx, namespace, loan)
		return list, s.counted(verbList, what, err)
	})
	if err != nil {
		return nil, err
	}
	list := got.(*liveList)
	if err := keepAnswer(ctx, list.bytes); err != nil || !s.hasPinned() {
		return list.items, err
	}
	return s.withPinned(namespace, list.items), nil
}

// share sends a request to the API server once for all equal calls of the same caller at
// the same time. Calls of different callers do not share one, because each caller has its
// own line in the fairLimiter. Each call waits as long as its own context allows.
//
// The request outlives the caller that started it: client-go builds its URL after
// waiting for the rate limiter, and again for each retry. So neither key nor ask
// may hold a view of a caller's review.
func (s *store) share(ctx context.Context, key, what string,
	ask func(ctx context.Context) (runtime.Object, error)) (runtime.Object, error) {
	who := callerOf(ctx)
	key += "\x00" + strings.Join(who[:], "\x00")
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("cluster state: cannot ask for %s: %w", what, err)
		}
		own := false
		flight := s.flights.DoChan(key, func() (any, error) {
			own = true
			asking := s.logging(context.WithValue(context.Background(), callerContextKey{}, who))
			asking, cancel := context.WithTimeout(asking, s.timing.live)
			defer cancel()
			return ask(asking)
		})
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cluster state: no answer for %s in time: %w", what, ctx.Err())
		case answer := <-flight:
			if apierrors.IsNotFound(answer.Err) && !own && attempt == 0 {
				// The shared request may have been answered before this call began, and
				// the object may have been created since. The next request is newer.
				continue
			}
			if errors.Is(answer.Err, codec.ErrNoMemory) && !own {
				continue // the review that started the request had no memory for the answer; this one may have
			}
			if answer.Err != nil {
				return nil, answer.Err
			}
			return answer.Val.(runtime.Object), nil
		}
	}
}

// logging returns ctx with the State's log, for client-go. Without it, client-go logs to
// stderr, with names that users chose.
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
	err := s.client.Post().NamespaceIfScoped(object.GetNamespace(), s.kind.namespaced).Resource(s.kind.resource).
		Body(object).Do(ctx).Into(created)
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

// named returns the resource and the name of an object, for errors.
func (s *store) named(namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%s %q", s.kind, name)
}

// counted counts a request and returns its error. It adds the verb and the object to the
// error, unless the message of the API server contains them.
func (s *store) counted(verb int, what string, err error) error {
	if apierrors.IsUnexpectedServerError(err) {
		err = errors.New(err.Error()) // it came from a proxy, whose 404 does not mean that the object is missing
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
