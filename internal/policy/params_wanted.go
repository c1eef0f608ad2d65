package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A paramRef is the paramRef of a binding, with its selector compiled.
type paramRef struct {
	*admissionregistrationv1.ParamRef
	selector labels.Selector // nil if there is none, or err is set
	err      error           // why the selector is invalid
}

// newParamRef returns nil for nil.
func newParamRef(ref *admissionregistrationv1.ParamRef) *paramRef {
	if ref == nil {
		return nil
	}
	p := &paramRef{ParamRef: ref}
	if ref.Selector != nil {
		var selector labels.Selector
		if selector, p.err = metav1.LabelSelectorAsSelector(ref.Selector); p.err == nil {
			p.selector = printed{selector, selector.String()}
		}
	}
	return p
}

// printed is a selector whose text is made once.
type printed struct {
	labels.Selector
	text string
}

// String implements labels.Selector.
func (p printed) String() string { return p.text }

// wanted are the parameters of a kind that bindings can name. Other objects of the kind are not
// cached, so that users who may write them cannot fill the memory.
type wanted map[reference]struct{}

// wantedKinds are the wanted parameters by their kind.
type wantedKinds map[schema.GroupVersionKind]wanted

// add adds the references of bindings to parameters of a kind.
func (k wantedKinds) add(kind schema.GroupVersionKind, bindings []*Binding) {
	w := k[kind]
	if w == nil {
		w = make(wanted)
		k[kind] = w
	}
	w.add(bindings)
}

// addRead adds the objects that a translated policy reads: all of a namespace, or one by its name. Both may be
// empty.
func (k wantedKinds) addRead(kind schema.GroupVersionKind, namespace, name string) {
	w := k[kind]
	if w == nil {
		w = make(wanted)
		k[kind] = w
	}
	w[reference{namespace: namespace, name: name}] = struct{}{}
	w[reference{namespace: anyNamespace, name: name}] = struct{}{}
}

// A reference is a paramRef: it names an object, or selects some by their labels. Without a
// namespace, it is of the namespace of the request, which can be any.
type reference struct{ namespace, name, selector string }

// anyNamespace is the namespace of a copy of each reference. Objects without a namespace are found by
// it, so that wanted need not know whether the kind is namespaced.
const anyNamespace = "*"

// add adds the references of bindings.
func (w wanted) add(bindings []*Binding) {
	for _, b := range bindings {
		ref := b.paramRef
		if ref == nil || ref.err != nil || (ref.Name == "") == (ref.selector == nil) {
			continue // there is none, or it is invalid, so that its binding fails
		}
		r := reference{namespace: ref.Namespace, name: ref.Name}
		if ref.selector != nil {
			r.selector = ref.selector.String()
		}
		w[r] = struct{}{}
		r.namespace = anyNamespace
		w[r] = struct{}{}
	}
}

// has reports whether r is wanted: by itself, by a reference to all objects, or by one of these for any
// namespace.
func (w wanted) has(r reference) bool {
	if r.namespace == "" {
		r.namespace = anyNamespace
	}
	for _, namespace := range [...]string{r.namespace, ""} {
		r.namespace = namespace
		if _, ok := w[r]; ok {
			return true
		}
		if _, ok := w[reference{namespace: namespace}]; ok {
			return true
		}
	}
	return false
}

// names reports whether an object is wanted by its name.
func (w wanted) names(namespace, name string) bool {
	return w.has(reference{namespace: namespace, name: name})
}

// selects reports whether the objects of a namespace that the selector selects are wanted.
func (w wanted) selects(namespace string, selector labels.Selector) bool {
	return w.has(reference{namespace: namespace, selector: selector.String()})
}

// keeps returns the function that reports whether an object is wanted.
func (w wanted) keeps() func(object metav1.Object) bool {
	selectors := make(map[string][]labels.Selector) // by namespace
	for r := range w {
		if r.name == "" {
			selector, _ := labels.Parse(r.selector) // it was made of a valid one
			selectors[r.namespace] = append(selectors[r.namespace], selector)
		}
	}
	selected := func(namespace string, object metav1.Object) bool {
		for _, selector := range selectors[namespace] {
			if selector.Matches(labels.Set(object.GetLabels())) {
				return true
			}
		}
		return false
	}
	return func(object metav1.Object) bool {
		namespace := object.GetNamespace()
		if w.names(namespace, object.GetName()) {
			return true
		}
		if namespace == "" {
			namespace = anyNamespace
		}
		return selected(namespace, object) || selected("", object)
	}
}
