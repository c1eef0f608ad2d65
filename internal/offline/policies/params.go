package policies

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

// Replaced returns an error for each object of the input that has the name of another object
// among given: what policies depend on must not come from what they check. Objects that are
// equal are no error. namespace is the namespace of objects without one.
func Replaced(given, input []manifest.Item, namespace string) (errs []error) {
	type identity struct {
		schema.GroupResource
		namespace, name string
	}
	table := tableOf(slices.Concat(given, input))
	identify := func(item *manifest.Item) (id identity, ok bool) {
		resource, err := table.Find(item.GroupVersionKind())
		if item.Fault != nil || item.Metadata.Name == "" || err != nil {
			return id, false // an object whose kind is unknown is neither a parameter nor part of the cluster
		}
		id = identity{GroupResource: resource.GroupResource(), name: item.Metadata.Name}
		if resource.Namespaced {
			id.namespace = cmp.Or(item.Metadata.Namespace, namespace)
		}
		return id, true
	}
	known := make(map[identity]*manifest.Item)
	for i := range given {
		if id, ok := identify(&given[i]); ok {
			known[id] = &given[i]
		}
	}
	for i := range input {
		item := &input[i]
		id, ok := identify(item)
		if first := known[id]; ok && first != nil && !isEqual(first.JSON, item.JSON) {
			errs = append(errs, fmt.Errorf("%s: %s %q would replace that of %s", item.Source, item.Kind, item.Metadata.Name, first.Source))
		}
	}
	return errs
}

func isEqual(a, b []byte) bool {
	var x, y any
	return decode(a, &x) == nil && decode(b, &y) == nil && reflect.DeepEqual(x, y)
}

// tableOf returns a table of the built-in kinds and of the kinds that items define.
func tableOf(items []manifest.Item) *discovery.Table {
	table := discovery.NewTable(nil)
	for i := range items {
		if item := &items[i]; item.Fault == nil && discovery.IsCRD(item.GroupVersionKind()) {
			_ = table.AddCRD(item.JSON) // the review of the object reports errors
		}
	}
	return table
}

// UseParams lets the policies use the items as parameters. The kind of a parameter must be
// a built-in one or have a CustomResourceDefinition in the items. namespace is the
// namespace of objects without one. If two objects have the same name, the last one is
// used.
func (s *Set) UseParams(items []manifest.Item, namespace string) {
	table := tableOf(items)
	for i := range s.documents {
		kind, ok := s.documents[i].paramKind()
		if !ok || slices.ContainsFunc(s.params, func(p admission.ParamKind) bool { return p.APIVersion == kind.APIVersion && p.Kind == kind.Kind }) {
			continue
		}
		gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		resource, err := table.Find(gvk)
		if err != nil {
			continue // the plugin reports that the kind is unknown
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
