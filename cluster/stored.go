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
)

// stored stands for the API server where there is none: it has the objects of a
// store with all their fields, and takes writes as an API server does.
type stored struct {
	store   *store
	assumed func(name string) bool // which names are those of objects that nobody wrote; nil for none

	authorize func(ctx context.Context, review *authorizationv1.SubjectAccessReview) // nil if nobody can

	mu      sync.Mutex
	objects map[cache.ObjectName]Object
	version int // of the object that was written last
}

func newStored(s *store) *stored {
	return &stored{store: s, objects: make(map[cache.ObjectName]Object)}
}

// errNoAPIServer is what comes of a request that no file can answer.
var errNoAPIServer = errors.New("there is no API server to ask")

// write stores an object as it is.
func (s *stored) write(object Object) error {
	kept := object.DeepCopyObject().(Object)
	if given, err := strconv.Atoi(kept.GetResourceVersion()); err == nil {
		s.version = max(s.version, given)
	} else {
		s.version++
		kept.SetResourceVersion(strconv.Itoa(s.version))
	}
	s.objects[cache.MetaObjectToName(kept)] = kept
	return s.store.Add(kept.DeepCopyObject())
}

func (s *stored) get(namespace, name string) (runtime.Object, error) {
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

func (s *stored) list(namespace string) (runtime.Object, error) {
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

func (s *stored) create(ctx context.Context, object Object) (runtime.Object, error) {
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

func (s *stored) updateStatus(object Object) (runtime.Object, error) {
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

func (s *stored) remove(namespace, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[cache.NewObjectName(namespace, name)]
	if object == nil {
		return apierrors.NewNotFound(s.store.kind.Resource(), name)
	}
	delete(s.objects, cache.NewObjectName(namespace, name))
	return s.store.Delete(object)
}

// received returns an object as an API server has it that got its encoding. The
// strings of the original may be views of a review, and DeepCopy would keep them.
func (s *stored) received(object Object) (Object, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("cluster state: cannot encode %s: %w", s.store.kind, err)
	}
	own := s.store.kind.object.DeepCopyObject().(Object)
	if err := json.Unmarshal(text, own); err != nil {
		return nil, fmt.Errorf("cluster state: cannot decode %s: %w", s.store.kind, err)
	}
	return own, nil
}

// replace stores an object as a new version. The object is not used otherwise.
func (s *stored) replace(object Object) (runtime.Object, error) {
	object.SetResourceVersion("")
	if s.store.kind.setDefaults != nil {
		s.store.kind.setDefaults(object)
	}
	if err := s.write(object); err != nil {
		return nil, err
	}
	return s.objects[cache.MetaObjectToName(object)], nil
}
