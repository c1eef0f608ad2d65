package cluster

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// A Kind is a kind of objects that may be asked for.
type Kind struct {
	version    schema.GroupVersion
	name       string // as in the field "kind"
	resource   string // as in a path of the API
	namespaced bool

	object, list runtime.Object // empty ones

	// trim returns an object with the fields that are kept. The object that it
	// is given may become part of it.
	trim cache.TransformFunc

	// setDefaults adds what kube-apiserver adds to an object that it is sent, so
	// that a file may hold what one would send.
	setDefaults func(runtime.Object)
}

// Kinds returns all kinds there are.
func Kinds() []*Kind { return []*Kind{Namespace} }

// String returns the resource and its group, as in "namespaces" or
// "storageclasses.storage.k8s.io".
func (k *Kind) String() string { return k.Resource().String() }

// Resource returns what the kind is called in paths of the API.
func (k *Kind) Resource() schema.GroupResource {
	return k.version.WithResource(k.resource).GroupResource()
}

// Rules returns what the process must be allowed to do to know about kinds:
// the rules of a ClusterRole, one for each kind, in the order given.
func Rules(kinds ...*Kind) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, kind := range kinds {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{kind.version.Group},
			Resources: []string{kind.resource},
			Verbs:     []string{"get", "list", "watch"},
		})
	}
	return rules
}

// newScheme returns a scheme that knows kinds, their lists, and lists of
// anything.
func newScheme(kinds []*Kind) *runtime.Scheme {
	scheme := runtime.NewScheme()
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, core)
	scheme.AddKnownTypes(core, &metav1.List{})
	for _, kind := range kinds {
		metav1.AddToGroupVersion(scheme, kind.version)
		scheme.AddKnownTypes(kind.version, kind.object, kind.list)
	}
	return scheme
}

// trimming makes a Kind's trim of a function for its type.
func trimming[T runtime.Object](trim func(T) T) cache.TransformFunc {
	return func(got any) (any, error) {
		object, ok := got.(T)
		if !ok {
			return nil, fmt.Errorf("got a %T, want a %T", got, object)
		}
		return trim(object), nil
	}
}

// lastApplied is kubectl's copy of the whole object, which no plugin reads
// (k8s.io/api/core/v1 LastAppliedConfigAnnotation).
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// trimMeta returns the metadata that is kept of every kind.
func trimMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	delete(meta.Annotations, lastApplied)
	return metav1.ObjectMeta{
		Name:              meta.Name,
		Namespace:         meta.Namespace,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		DeletionTimestamp: meta.DeletionTimestamp,
		Labels:            meta.Labels,
		Annotations:       meta.Annotations,
	}
}
