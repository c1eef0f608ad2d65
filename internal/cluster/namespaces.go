package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// Namespace is the kind of namespaces. Of each are kept its name, UID, resource
// version, labels, annotations, phase and the time of its deletion.
var Namespace = &Kind{
	version:  corev1.SchemeGroupVersion,
	name:     "Namespace",
	resource: "namespaces",
	object:   &corev1.Namespace{},
	list:     &corev1.NamespaceList{},
	trim: trimming(func(n *corev1.Namespace) *corev1.Namespace {
		return &corev1.Namespace{
			ObjectMeta: trimMeta(&n.ObjectMeta),
			Status:     corev1.NamespaceStatus{Phase: n.Status.Phase},
		}
	}),
	setDefaults: setDefaultsNamespace,
}

// setDefaultsNamespace does as k8s.io/kubernetes pkg/apis/core/v1
// SetDefaults_Namespace and SetDefaults_NamespaceStatus.
func setDefaultsNamespace(object runtime.Object) {
	n := object.(*corev1.Namespace)
	if n.Labels == nil {
		n.Labels = make(map[string]string)
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
	if n.Status.Phase == "" {
		n.Status.Phase = corev1.NamespaceActive
	}
}

// Namespaces are the namespaces of a State.
type Namespaces struct {
	// Lister knows those that the cache has.
	Lister corev1listers.NamespaceLister

	store *store
}

// Namespaces returns the namespaces. The error says that Namespace was not
// among the kinds of the Options.
func (s *State) Namespaces() (*Namespaces, error) {
	store, err := s.store(Namespace)
	if err != nil {
		return nil, err
	}
	return &Namespaces{Lister: corev1listers.NewNamespaceLister(store), store: store}, nil
}

// Get returns a namespace from the cache, or else from the API server, before
// ctx ends. The error satisfies apierrors.IsNotFound if neither has it, and
// only then.
func (n *Namespaces) Get(ctx context.Context, name string) (*corev1.Namespace, error) {
	object, err := n.store.get(ctx, "", name)
	if err != nil {
		return nil, err
	}
	return object.(*corev1.Namespace), nil
}

// Labels returns the labels of a namespace, as Get does the namespace. It is
// what upstream's namespaceSelector asks (k8s.io/apiserver
// pkg/admission/plugin/webhook/predicates/namespace). What the cache has is
// returned without allocating.
func (n *Namespaces) Labels(ctx context.Context, name string) (labels.Set, error) {
	namespace, err := n.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return namespace.Labels, nil
}
