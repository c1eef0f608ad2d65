package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"
)

// fileAPI replaces the API server if the objects come from files. It has the objects of a
// store with all their fields, and answers requests and writes like an API server.
type fileAPI struct {
	store   *store
	assumed func(name string) bool // reports whether an object exists that is in no file; nil for none

	authorize func(ctx context.Context, review *authorizationv1.SubjectAccessReview) // see Options.Authorize

	mu      sync.Mutex
	objects map[cache.ObjectName]Object
	version int // resourceVersion of the last write
}

func newFileAPI(s *store) *fileAPI {
	return &fileAPI{store: s, objects: make(map[cache.ObjectName]Object)}
}

// errNoAPIServer is the error of a request that files cannot answer.
var errNoAPIServer = errors.New("there is no API server to ask")

// write stores an object without changes, except that it sets a missing resourceVersion.
func (s *fileAPI) write(object Object) error {
	own := object.DeepCopyObject().(Object)
	if given, err := strconv.Atoi(own.GetResourceVersion()); err == nil {
		s.version = max(s.version, given)
	} else {
		s.version++
		own.SetResourceVersion(strconv.Itoa(s.version))
	}
	s.objects[cache.MetaObjectToName(own)] = own
	return s.store.Add(own.DeepCopyObject())
}

func (s *fileAPI) get(namespace, name string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object := s.objects[cache.NewObjectName(namespace, name)]; object != nil {
		return object, nil
	}
	if s.assumed == nil || !s.assumed(name) {
		return nil, apierrors.NewNotFound(s.store.kind.Resource(), name)
	}
	object := s.store.kind.object.DeepCopyObject().(Object)
	object.SetNamespace(namespace)
	object.SetName(name)
	if s.store.kind.setDefaults != nil {
		s.store.kind.setDefaults(object)
	}
	return object, nil
}

func (s *fileAPI) list(namespace string) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []runtime.Object
	for name, object := range s.objects {
		if namespace == "" || name.Namespace == namespace {
			objects = append(objects, object)
		}
	}
	list := s.store.kind.list.DeepCopyObject()
	return list, meta.SetList(list, objects)
}

func (s *fileAPI) create(ctx context.Context, object Object) (runtime.Object, error) {
	kind := s.store.kind
	object, err := s.received(object)
	if err != nil {
		return nil, err
	}
	if review, ok := object.(*authorizationv1.SubjectAccessReview); ok && s.authorize != nil {
		s.authorize(ctx, review)
		return review, nil
	}
	if kind.list == nil {
		return nil, fmt.Errorf("cluster state: cannot create %s: %w", kind, errNoAPIServer)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := cache.MetaObjectToName(object)
	if s.objects[name] != nil {
		return nil, apierrors.NewAlreadyExists(kind.Resource(), name.Name)
	}
	return s.replace(object)
}

func (s *fileAPI) updateStatus(object Object) (runtime.Object, error) {
	kind := s.store.kind
	object, err := s.received(object)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := cache.MetaObjectToName(object)
	switch now := s.objects[name]; {
	case now == nil:
		return nil, apierrors.NewNotFound(kind.Resource(), name.Name)
	case object.GetResourceVersion() != "" && object.GetResourceVersion() != now.GetResourceVersion():
		return nil, apierrors.NewConflict(kind.Resource(), name.Name, errors.New("the object has been modified"))
	}
	return s.replace(object)
}

func (s *fileAPI) remove(namespace, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[cache.NewObjectName(namespace, name)]
	if object == nil {
		return apierrors.NewNotFound(s.store.kind.Resource(), name)
	}
	delete(s.objects, cache.NewObjectName(namespace, name))
	return s.store.Delete(object)
}

// received encodes and decodes an object, as a request to an API server does. DeepCopy
// would not do: strings in the object may be views of a review.
func (s *fileAPI) received(object Object) (Object, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("cluster state: cannot encode %s: %w", s.store.kind, err)
	}
	own := s.store.kind.object.DeepCopyObject().(Object)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, own); err != nil {
		return nil, fmt.Errorf("cluster state: cannot decode %s: %w", s.store.kind, err)
	}
	return own, nil
}

// replace stores an object as a new version. The caller must not use the object
// afterwards.
func (s *fileAPI) replace(object Object) (runtime.Object, error) {
	object.SetResourceVersion("")
	if s.store.kind.setDefaults != nil {
		s.store.kind.setDefaults(object)
	}
	if err := s.write(object); err != nil {
		return nil, err
	}
	return s.objects[cache.MetaObjectToName(object)], nil
}
