package cluster

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fastadmit/fastadmit/internal/protobuf"
)

// A Definition has the names of a kind in the API. The kind can be one of Kubernetes, of
// a CustomResourceDefinition or of an aggregated API server.
type Definition struct {
	Group    string // empty for the core group
	Version  string // the version to request, such as "v1"; the API server must serve it
	Resource string // as in paths of the API: the plural in lower case, such as "configmaps"
	Kind     string // as in the field "kind", such as "ConfigMap"
	ListKind string // the kind of lists; if empty, Kind followed by "List"

	// Namespaced is true if each object is in a namespace.
	Namespaced bool

	// Optional is true if the API server may lack the resource; the kind then has no
	// objects. Otherwise, a plugin that watches the kind is not ready until the API
	// server has the resource. In both cases the package asks the API server again
	// every ten seconds, and watches the objects as soon as it has the resource.
	Optional bool

	// NotStored is true if the API server answers the creation of an object without
	// storing it, such as a SubjectAccessReview.
	NotStored bool
}

// A Type describes how objects of a kind are decoded into a Go type.
type Type[T Object] struct {
	// List is an empty list of the objects, such as &corev1.NodeList{}. It may be nil
	// for your own types. If the type has the methods Reset and Unmarshal, as
	// Kubernetes' types have, objects are decoded from protobuf, which costs less than
	// JSON. Unmarshal must read name, namespace, resourceVersion and the annotation
	// k8s.io/initial-events-end, which marks the end of the existing objects in a watch.
	List runtime.Object

	// Whole is a kind of the same objects with all fields, if the type has only some
	// of them. Fields in files that Whole does not have are errors.
	Whole *Kind

	// Fields are the fields that Keep reads, as paths of JSON with dots, such as
	// "spec.limits". When an object arrives, only these are decoded, and those that
	// identify it. Below a map, all is decoded. If Fields is empty, all fields are
	// decoded except the managed fields.
	Fields []string

	// Keep returns an object with the fields that the cache keeps. It may change and
	// return its argument. Called with its own result, it must return an equal object.
	// If Keep is nil, the cache keeps all fields except the managed fields and the
	// annotation kubectl.kubernetes.io/last-applied-configuration.
	Keep func(T) T

	// SetDefaults sets the defaults that the API server sets in new objects. It is
	// called for objects in files, so these need not contain defaults. It may be nil.
	SetDefaults func(T)
}

// Define defines a kind whose objects are decoded into the Go type that T points to. It
// panics if the definition is invalid; call it to initialize a package variable.
func Define[T Object](d Definition, t Type[T]) KindOf[T] {
	k := newKind(d)
	pointed := reflect.TypeFor[T]()
	if pointed.Kind() != reflect.Pointer {
		panic(fmt.Sprintf("cluster: kind %s: got the type %s, want a pointer to a struct", d.Kind, pointed))
	}
	k.object = reflect.New(pointed.Elem()).Interface().(T)
	if k.list = t.List; k.list == nil && !d.NotStored {
		k.list = new(listOf[T])
	}
	k.whole = t.Whole
	k.protobuf = isProtobuf(k.object) && (k.list == nil || isProtobuf(k.list))
	if k.list != nil {
		k.mask = newMask(d.Kind, k.object, t.Fields)
	}
	keep := t.Keep
	if keep == nil {
		keep = keepWhole[T]
	}
	k.trim = func(got runtime.Object) (runtime.Object, error) {
		object, ok := got.(T)
		if !ok {
			return nil, fmt.Errorf("got a %T, want a %T", got, object)
		}
		return keep(object), nil
	}
	if t.SetDefaults != nil {
		k.setDefaults = func(object runtime.Object) { t.SetDefaults(object.(T)) }
	}
	return KindOf[T]{k}
}

// DefineJSON defines a kind whose objects are kept as JSON and read with package codec.
// It needs no Go type, so it suits custom resources as well as ConfigMaps.
//
// keep lists the fields that the cache keeps, as paths with dots, such as "spec.quota". A
// path continues in each object of a list. Everything below such a field is kept. The cache always keeps apiVersion, kind, name,
// namespace, uid, resourceVersion, creationTimestamp and deletionTimestamp. It keeps
// labels and annotations only if they are listed. Without a list, it keeps all fields
// except the managed fields and the annotation
// kubectl.kubernetes.io/last-applied-configuration.
//
// It panics if the definition is invalid; call it to initialize a package variable.
func DefineJSON(d Definition, keep ...string) KindOf[*JSON] {
	k := newKind(d)
	k.object = new(JSON)
	if !d.NotStored {
		k.list = new(listOf[*JSON])
	}
	k.mask = newMask(d.Kind, k.object, keep)
	trim := keepFields(d.Kind, keep)
	k.trim = func(got runtime.Object) (runtime.Object, error) {
		object, ok := got.(*JSON)
		if !ok {
			return nil, fmt.Errorf("got a %T, want a %T", got, object)
		}
		return trim(object)
	}
	return KindOf[*JSON]{k}
}

func newKind(d Definition) *Kind {
	for _, part := range []struct {
		field, got string
		faults     []string
	}{
		{"Group", d.Group, validation.IsDNS1123Subdomain(d.Group)},
		{"Version", d.Version, validation.IsDNS1035Label(d.Version)},
		{"Resource", d.Resource, validation.IsDNS1035Label(d.Resource)},
		{"Kind", d.Kind, validation.IsDNS1035Label(strings.ToLower(d.Kind))},
	} {
		if len(part.faults) > 0 && (part.field != "Group" || d.Group != "") {
			panic(fmt.Sprintf("cluster: the definition of a kind: %s: got %q: %s", part.field, part.got, strings.Join(part.faults, "; ")))
		}
	}
	if d.ListKind == "" {
		d.ListKind = d.Kind + "List"
	}
	return &Kind{
		version:    schema.GroupVersion{Group: d.Group, Version: d.Version},
		name:       d.Kind,
		listName:   d.ListKind,
		resource:   d.Resource,
		namespaced: d.Namespaced,
		optional:   d.Optional,
	}
}

// keepWhole drops the fields that only tell how the object was created and changed.
func keepWhole[T Object](object T) T {
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations[lastApplied] != "" {
		delete(annotations, lastApplied)
		object.SetAnnotations(annotations)
	}
	return object
}

// isProtobuf reports whether an object has the methods that k8s.io/apimachinery
// pkg/runtime/serializer/protobuf needs to decode it.
func isProtobuf(object runtime.Object) bool {
	_, ok := object.(protobufReader)
	return ok
}

type protobufReader interface {
	Reset()
	Unmarshal(wire []byte) error
}

// listOf is a list of objects, for kinds without a Go type for lists.
type listOf[T Object] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []T `json:"items"`
}

// Reset empties the list. Together with Unmarshal it makes a list decodable from protobuf.
func (l *listOf[T]) Reset() { *l = listOf[T]{} }

// Unmarshal reads a list from protobuf: all lists of the API have the metadata as field
// 1 and the objects as field 2 (such as k8s.io/api core/v1 PodList).
func (l *listOf[T]) Unmarshal(wire []byte) error {
	return protobuf.Fields(wire, func(number protobuf.Number, field []byte) error {
		switch number {
		case 1:
			return l.ListMeta.Unmarshal(field)
		case 2:
			item := reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T)
			l.Items = append(l.Items, item)
			return any(item).(protobufReader).Unmarshal(field)
		}
		return nil
	})
}

// DeepCopyObject implements runtime.Object.
func (l *listOf[T]) DeepCopyObject() runtime.Object {
	list := &listOf[T]{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for _, item := range l.Items {
		list.Items = append(list.Items, item.DeepCopyObject().(T))
	}
	return list
}

// codecs returns the codecs of the objects of the kind, their lists, and v1.List. Each
// Kind has its own codecs: two Kinds may decode the same objects into different types.
func (k *Kind) codecs(options ...serializer.CodecFactoryOptionsMutator) serializer.CodecFactory {
	return serializer.NewCodecFactory(newScheme(k), options...)
}

// newScheme returns a scheme with the kinds, their lists, and v1.List.
func newScheme(kinds ...*Kind) *runtime.Scheme {
	scheme := runtime.NewScheme()
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, core)
	scheme.AddKnownTypes(core, &metav1.List{})
	for _, kind := range kinds {
		metav1.AddToGroupVersion(scheme, kind.version)
		if kind.object != nil { // nil for discovery
			scheme.AddKnownTypeWithName(kind.version.WithKind(kind.name), kind.object)
		}
		if kind.list != nil {
			scheme.AddKnownTypeWithName(kind.version.WithKind(kind.listName), kind.list)
		}
	}
	return scheme
}
