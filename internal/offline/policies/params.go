package policies

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

// UseParams lets the policies use the items as parameters. The kind of a parameter must be
// a built-in one or have a CustomResourceDefinition in the items. namespace is the
// namespace of objects without one. If two objects have the same name, the last one is
// used.
func (s *Set) UseParams(items []manifest.Item, namespace string) {
	table := discovery.NewTable(nil)
	for i := range items {
		if item := &items[i]; item.Fault == nil && discovery.IsCRD(item.GroupVersionKind()) {
			_ = table.AddCRD(item.JSON) // what is wrong with it is said where it is reviewed
		}
	}
	for i := range s.documents {
		kind, ok := s.documents[i].paramKind()
		if !ok || slices.ContainsFunc(s.params, func(p admission.ParamKind) bool { return p.APIVersion == kind.APIVersion && p.Kind == kind.Kind }) {
			continue
		}
		gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		resource, err := table.Find(gvk)
		if err != nil {
			continue // the policy says that it does not know the kind
		}
		kind.Namespaced = resource.Namespaced
		for j := range items {
			if item := &items[j]; item.Fault == nil && item.GroupVersionKind() == gvk {
				kind.Objects = addParam(kind.Objects, item, kind.Namespaced, namespace)
			}
		}
		s.params = append(s.params, kind)
	}
}

func addParam(objects []admission.ParamObject, item *manifest.Item, namespaced bool, namespace string) []admission.ParamObject {
	var labeled struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	_ = decode(item.JSON, &labeled) // labels that cannot be read select nothing
	object := admission.ParamObject{Name: item.Metadata.Name, Labels: labeled.Metadata.Labels, JSON: item.JSON}
	if namespaced {
		object.Namespace = cmp.Or(item.Metadata.Namespace, namespace)
	}
	objects = slices.DeleteFunc(objects, func(o admission.ParamObject) bool {
		return o.Namespace == object.Namespace && o.Name == object.Name
	})
	return append(objects, object)
}

// paramKind returns the kind of the parameters of a policy.
func (d *document) paramKind() (kind admission.ParamKind, ok bool) {
	var policy struct {
		Spec struct {
			ParamKind *struct {
				APIVersion string `json:"apiVersion"`
				Kind       string `json:"kind"`
			} `json:"paramKind"`
		} `json:"spec"`
	}
	if d.isBinding() || decode(d.text, &policy) != nil || policy.Spec.ParamKind == nil {
		return kind, false
	}
	return admission.ParamKind{APIVersion: policy.Spec.ParamKind.APIVersion, Kind: policy.Spec.ParamKind.Kind}, true
}
