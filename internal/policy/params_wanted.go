package policy

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// wanted are the parameters of a kind that bindings can name, sorted. Other objects of the
// kind are not kept: whoever may write some must not fill the memory for all.
type wanted []reference

// A reference is a paramRef: it names an object, or selects some by their labels. Without a
// namespace, it is of the namespace of the request, which can be any.
type reference struct{ namespace, name, selector string }

// with returns w with the references of bindings.
func (w wanted) with(bindings []*Binding) wanted {
	for _, b := range bindings {
		r, ok := referenceOf(b.paramRef)
		if !ok {
			continue
		}
		at, found := slices.BinarySearchFunc(w, r, reference.compare)
		if !found {
			w = slices.Insert(w, at, r)
		}
	}
	return w
}

// referenceOf returns the reference of a paramRef. ok is false if there is none, or if it is
// invalid, so that its binding fails.
func referenceOf(ref *admissionregistrationv1.ParamRef) (r reference, ok bool) {
	if ref == nil || (ref.Name == "") == (ref.Selector == nil) {
		return r, false
	}
	r = reference{namespace: ref.Namespace, name: ref.Name}
	if ref.Selector == nil {
		return r, true
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err == nil {
		r.selector = selector.String()
	}
	return r, err == nil
}

func (r reference) compare(other reference) int {
	return cmp.Or(cmp.Compare(r.namespace, other.namespace), cmp.Compare(r.name, other.name), cmp.Compare(r.selector, other.selector))
}

func (r reference) isIn(namespace string) bool {
	return r.namespace == "" || namespace == "" || r.namespace == namespace
}

// isAll reports whether the reference selects all objects.
func (r reference) isAll() bool { return r.name == "" && r.selector == "" }

// keeps returns the function that reports whether an object is wanted.
func (w wanted) keeps() func(object metav1.Object) bool {
	selectors := make([]labels.Selector, len(w))
	for i, r := range w {
		if r.name == "" {
			selectors[i], _ = labels.Parse(r.selector) // it was made of a valid one
		}
	}
	return func(object metav1.Object) bool {
		for i, r := range w {
			if !r.isIn(object.GetNamespace()) {
				continue
			}
			if r.name != "" && r.name == object.GetName() ||
				selectors[i] != nil && selectors[i].Matches(labels.Set(object.GetLabels())) {
				return true
			}
		}
		return false
	}
}

// names reports whether an object is wanted by its name.
func (w wanted) names(namespace, name string) bool {
	return slices.ContainsFunc(w, func(r reference) bool { return r.isIn(namespace) && (r.name == name || r.isAll()) })
}

// selects reports whether the objects of a namespace that the selector selects are wanted.
func (w wanted) selects(namespace string, selector labels.Selector) bool {
	text := selector.String()
	return slices.ContainsFunc(w, func(r reference) bool { return r.isIn(namespace) && r.name == "" && (r.selector == text || r.isAll()) })
}
