package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/protobuf"
)

// smallBytesMax is the largest buffer that a watch keeps for its next event. Most
// objects are smaller.
const smallBytesMax = 64 << 10

// An arrived is an object that a list or a watch of the API server brought, or a bookmark.
// The reflector needs only its identity.
type arrived struct {
	metav1.ObjectMeta        // only what identifies it, or what a bookmark has
	object            Object // as the cache keeps it; nil if it is too large
	bytes             int64  // that object takes, or the length of one that was not decoded
	shelved           bool   // the object is on the shelf of a list
	unwanted          bool   // see store.wants
}

// GetObjectKind implements runtime.Object.
func (a *arrived) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody changes an object.
func (a *arrived) DeepCopyObject() runtime.Object {
	c := *a
	return &c
}

func (a *arrived) objectName() cache.ObjectName { return cache.NewObjectName(a.Namespace, a.Name) }

// arrivedFrom returns the arrived of the reflector, or one of an object from elsewhere.
func (s *store) arrivedFrom(object any) (*arrived, error) {
	switch object := object.(type) {
	case *arrived:
		return object, nil
	case Object:
		return s.arrive(object)
	}
	return nil, fmt.Errorf("got a %T, want an object of %s", object, s.kind)
}

// arrive trims an object. If the cache has an equal one, it takes that. So a second list of
// the same objects, as after a restart of the API server, takes little memory.
func (s *store) arrive(object runtime.Object) (*arrived, error) {
	reduced, err := s.kind.trim(object)
	if err != nil {
		return nil, err
	}
	trimmed := reduced.(Object)
	a := &arrived{object: trimmed, bytes: memoryOf(trimmed)}
	a.Name, a.Namespace, a.ResourceVersion = trimmed.GetName(), trimmed.GetNamespace(), trimmed.GetResourceVersion()
	before, ok := s.lookup(a.Namespace, a.Name)
	if ok && before.GetResourceVersion() == a.ResourceVersion && reflect.DeepEqual(before, trimmed) {
		a.object = before
	}
	return a, nil
}

// messagePrefix is before each object in protobuf (k8s.io/apimachinery
// pkg/runtime/serializer/protobuf).
var messagePrefix = []byte("k8s\x00")

// unwrap returns the message of an object in protobuf, or JSON as it is.
func unwrap(raw []byte) (object []byte, isMessage bool, err error) {
	wrapped, isMessage := bytes.CutPrefix(raw, messagePrefix)
	if !isMessage {
		return raw, false, nil
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(wrapped); err != nil {
		return nil, true, err
	}
	return unknown.Raw, true, nil
}

// decode decodes the fields of an object that the cache keeps. An object that is too large
// for that, or not wanted, gets only its identity.
func (s *store) decode(raw []byte, isMessage bool) (*arrived, error) {
	if s.wants != nil {
		identity, err := decodeMeta(raw, isMessage, labelsMask)
		if err != nil {
			return nil, err
		}
		if !s.wants(identity) {
			identity.unwanted, identity.Labels = true, nil
			return identity, nil
		}
	}
	masked, err := s.kind.mask.apply(raw, isMessage, s.kind.wireMax())
	if errors.Is(err, protobuf.ErrTooLong) || err == nil && len(masked) > s.kind.wireMax() {
		identity, err := decodeMeta(raw, isMessage, identityMask)
		if err == nil {
			identity.bytes = max(int64(len(masked)), objectBytesMax+1)
		}
		return identity, err
	}
	if err != nil {
		return nil, err
	}
	object := s.kind.object.DeepCopyObject()
	if err := unmarshal(masked, isMessage, object); err != nil {
		return nil, err
	}
	return s.arrive(object)
}

// wireMax returns how long the kept fields of an object may be.
func (k *Kind) wireMax() int {
	if _, isJSON := k.object.(*JSON); isJSON {
		return objectBytesMax
	}
	return wireBytesMax
}

// decodeMeta decodes metadata.
func decodeMeta(raw []byte, isMessage bool, m *mask) (*arrived, error) {
	masked, err := m.apply(raw, isMessage, len(raw))
	if err != nil {
		return nil, err
	}
	var partial metav1.PartialObjectMetadata
	if err := unmarshal(masked, isMessage, &partial); err != nil {
		return nil, err
	}
	return &arrived{ObjectMeta: partial.ObjectMeta}, nil
}

func unmarshal(raw []byte, isMessage bool, into any) error {
	if !isMessage {
		return json.UnmarshalCaseSensitivePreserveInts(raw, into)
	}
	message, ok := into.(protobufReader)
	if !ok {
		return errors.New("got protobuf, want JSON")
	}
	return message.Unmarshal(raw)
}
