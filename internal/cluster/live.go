package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// get returns an object from the cache, or else from the API server. The
// namespace is empty for objects that have none.
func (s *store) get(ctx context.Context, namespace, name string) (runtime.Object, error) {
	key := cache.NewObjectName(namespace, name).String()
	object, ok, err := s.GetByKey(key)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return object.(runtime.Object), nil
	case s.client == nil:
		return nil, apierrors.NewNotFound(s.kind.Resource(), name)
	}
	return s.getLive(ctx, key, namespace, name)
}

// getLive asks the API server, once for all callers that wait at the same time.
// Each waits as long as its own context allows; the request goes on without the
// one that began it.
func (s *store) getLive(ctx context.Context, key, namespace, name string) (runtime.Object, error) {
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("cluster state: cannot ask for %s %q: %w", s.kind, key, err)
		}
		own := false
		flight := s.flights.DoChan(key, func() (any, error) {
			own = true
			asking, cancel := context.WithTimeout(context.Background(), s.timing.live)
			defer cancel()
			return s.ask(asking, namespace, name)
		})
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cluster state: no answer for %s %q in time: %w", s.kind, key, ctx.Err())
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

// ask makes one request for an object, and counts it.
func (s *store) ask(ctx context.Context, namespace, name string) (any, error) {
	object := s.kind.object.DeepCopyObject()
	err := s.client.Get().NamespaceIfScoped(namespace, s.kind.namespaced).Resource(s.kind.resource).Name(name).Do(ctx).Into(object)
	if apierrors.IsUnexpectedServerError(err) {
		err = errors.New(err.Error()) // a page of some proxy: its 404 says nothing about the object
	}
	switch {
	case err == nil:
		s.live[found].Inc()
		return s.kind.trim(object)
	case apierrors.IsNotFound(err):
		s.live[notFound].Inc()
		return nil, err
	default:
		s.live[failed].Inc()
		return nil, fmt.Errorf("cluster state: cannot get %s %q: %w", s.kind, name, err)
	}
}
