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

	"github.com/fastadmit/fastadmit/handlers/internal/protobuf"
)

// A Definition says what the objects of a kind are called in the API: Kubernetes'
// own, or those of a CustomResourceDefinition or an aggregated API server.
type Definition struct {
	Group    string // empty for the core group
	Version  string // the served version that is asked for, such as "v1"
	Resource string // as in paths of the API: the plural in lower case, such as "configmaps"
	Kind     string // as in the field "kind", such as "ConfigMap"
	ListKind string // the kind of lists; if empty, Kind with "List" behind it

	// Namespaced says that each object is in a namespace.
	Namespaced bool

	// Optional says that the API server need not have the resource: then there are
	// no objects. Without it, a plugin that watches the kind is not ready until the
	// API server has the resource. Either way the API server is asked again every
	// ten seconds, and the objects are followed from when it has it.
	Optional bool

	// NotStored says that the API server answers when an object is created, and
	// stores none, as with a SubjectAccessReview.
	NotStored bool
}

// A Type says how a kind is read into a Go type.
type Type[T Object] struct {
	// List is an empty list of them, such as &corev1.NodeList{}. A type of one's own
	// needs none. If it has the methods Reset and Unmarshal, as Kubernetes' own types
	// do, objects are read from protobuf, which costs less than JSON. Unmarshal must
	// read the name, namespace and resourceVersion, and the annotation
	// k8s.io/initial-events-end, by which the watch knows that it has seen all.
	List runtime.Object

	// Whole is the kind with all fields of the same objects, if the type has only some
	// of them. Fields in files that Whole does not have are errors.
	Whole *Kind

	// Keep returns an object with the fields that the cache keeps. The object that
	// it is given may become part of it. It is called again on what it returned,
	// and must return the same then. Without it, the cache keeps all but the
	// managed fields and the annotation kubectl.kubernetes.io/last-applied-configuration.
	Keep func(T) T

	// SetDefaults adds what the API server adds to an object that it is sent, so
	// that files may hold objects as one would send them. Nil for nothing.
	SetDefaults func(T)
}

// Define declares a kind whose objects are read into the Go type that T points to.
// It is meant for a variable of the package: it panics if the definition is wrong.
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

// DefineJSON declares a kind whose objects are kept as JSON and read with codec. It
// needs no Go type, so it is for ConfigMaps as well as for custom resources. Keep
// names the fields that the cache keeps, with dots between the names of a path, as in
// "spec.quota": the path goes through objects, and what is below it is kept whole.
// apiVersion, kind and what tells which object it is (name, namespace, uid,
// resourceVersion, creationTimestamp, deletionTimestamp) are always kept, labels and
// annotations only if they are named. Without names, the cache keeps all but the
// managed fields and the annotation kubectl.kubernetes.io/last-applied-configuration.
//
// It is meant for a variable of the package: it panics if the definition is wrong.
func DefineJSON(d Definition, keep ...string) KindOf[*JSON] {
	k := newKind(d)
	k.object = new(JSON)
	if !d.NotStored {
		k.list = new(listOf[*JSON])
	}
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

// keepWhole drops what only says how an object came to be.
func keepWhole[T Object](object T) T {
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations[lastApplied] != "" {
		delete(annotations, lastApplied)
		object.SetAnnotations(annotations)
	}
	return object
}

// isProtobuf reports whether an object can be read from protobuf, as
// k8s.io/apimachinery pkg/runtime/serializer/protobuf wants it.
func isProtobuf(object runtime.Object) bool {
	_, ok := object.(protobufReader)
	return ok
}

type protobufReader interface {
	Reset()
	Unmarshal(wire []byte) error
}

// listOf is a list of objects of which there is no Go type for lists.
type listOf[T Object] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []T `json:"items"`
}

// Reset makes the list one that can be read from protobuf, if its objects can.
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

// codecs returns the codecs of the objects of the kind, their lists, and lists of
// anything. Each kind has its own: two may have the same objects and read them into
// different types.
func (k *Kind) codecs(options ...serializer.CodecFactoryOptionsMutator) serializer.CodecFactory {
	return serializer.NewCodecFactory(newScheme(k), options...)
}

// newScheme returns a scheme that knows kinds, their lists, and lists of
// anything.
func newScheme(kinds ...*Kind) *runtime.Scheme {
	scheme := runtime.NewScheme()
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, core)
	scheme.AddKnownTypes(core, &metav1.List{})
	for _, kind := range kinds {
		metav1.AddToGroupVersion(scheme, kind.version)
		if kind.object != nil { // there are none of discovery
			scheme.AddKnownTypeWithName(kind.version.WithKind(kind.name), kind.object)
		}
		if kind.list != nil {
			scheme.AddKnownTypeWithName(kind.version.WithKind(kind.listName), kind.list)
		}
	}
	return scheme
}
