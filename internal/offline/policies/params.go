package policies

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
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
	table := tableOf(definitionsIn(slices.Concat(given, input)))
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

// tableOf returns a table of the built-in kinds and of the kinds of CustomResourceDefinitions.
func tableOf(definitions [][]byte) *discovery.Table {
	table := discovery.NewTable(nil)
	for _, definition := range definitions {
		_ = table.AddCRD(definition) // the review of the object reports errors
	}
	return table
}

// definitionsIn returns the CustomResourceDefinitions among items.
func definitionsIn(items []manifest.Item) (all [][]byte) {
	for i := range items {
		if item := &items[i]; item.Fault == nil && discovery.IsCRD(item.GroupVersionKind()) {
			all = append(all, item.JSON)
		}
	}
	return all
}

// UseParams lets the policies use the items as parameters. The kind of a parameter must be
// a built-in one or have a CustomResourceDefinition in the items. namespace is the
// namespace of objects without one. If two objects have the same name, the last one is
// used. Translated policies read the items, too.
func (s *Set) UseParams(items []manifest.Item, namespace string) {
	s.definitions = definitionsIn(items)
	table := tableOf(s.definitions)
	s.table = table
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
		s.params = append(s.params, withObjects(kind, resource.Namespaced, items, namespace))
	}
	s.useReads(table, items, namespace)
}

// withObjects returns a kind with its objects among items.
func withObjects(kind admission.ParamKind, namespaced bool, items []manifest.Item, namespace string) admission.ParamKind {
	kind.Namespaced = namespaced
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	for j := range items {
		if item := &items[j]; item.Fault == nil && item.GroupVersionKind() == gvk {
			kind.Objects = addParam(kind.Objects, item, kind.Namespaced, namespace)
		}
	}
	return kind
}

// Reads reports whether a policy reads other objects.
func (s *Set) Reads() bool {
	return len(s.reads) > 0 || slices.ContainsFunc(s.documents, func(d document) bool { return len(d.reads()) > 0 })
}

// HasParams reports whether a policy has a kind of parameters.
func (s *Set) HasParams() bool {
	return len(s.paramKinds()) > 0
}

// Used returns the kinds of objects that policies read, as parameters or otherwise.
func (s *Set) Used() map[schema.GroupVersionKind]bool {
	used := make(map[schema.GroupVersionKind]bool)
	for _, p := range s.params {
		used[schema.FromAPIVersionAndKind(p.APIVersion, p.Kind)] = true
	}
	return used
}

// ReadKinds returns the kinds that policies read and that a folder with the state of a cluster could not have otherwise.
func (s *Set) ReadKinds() (kinds []*cluster.Kind) {
	known := cluster.Kinds()
	for _, p := range s.params {
		gvk := schema.FromAPIVersionAndKind(p.APIVersion, p.Kind)
		resource := schema.GroupResource{Group: gvk.Group, Resource: p.Resource}
		if p.Resource == "" || slices.ContainsFunc(known, func(k *cluster.Kind) bool { return k.Resource() == resource }) {
			continue
		}
		kinds = append(kinds, cluster.DefineJSON(cluster.Definition{
			Group: gvk.Group, Version: gvk.Version, Resource: p.Resource, Kind: gvk.Kind, Namespaced: p.Namespaced,
		}).Kind)
	}
	return kinds
}

// useReads lets translations read the items. A kind that the table does not have does not exist.
func (s *Set) useReads(table *discovery.Table, items []manifest.Item, namespace string) {
	wanted := slices.Clone(s.reads)
	for i := range s.documents {
		wanted = append(wanted, s.documents[i].reads()...)
	}
	for _, read := range wanted {
		version, err := schema.ParseGroupVersion(read.APIVersion)
		kind := table.KindOf(version.WithResource(read.Resource))
		if err != nil || kind == "" {
			continue
		}
		at := slices.IndexFunc(s.params, func(p admission.ParamKind) bool { return p.APIVersion == read.APIVersion && p.Kind == kind })
		if at < 0 {
			resource, err := table.Find(version.WithKind(kind))
			if err != nil {
				continue // KindOf found it
			}
			at = len(s.params)
			added := admission.ParamKind{APIVersion: read.APIVersion, Kind: kind}
			s.params = append(s.params, withObjects(added, resource.Namespaced, items, namespace))
		}
		s.params[at].Resource = read.Resource
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

// A policyName is the name of a policy, and the plugin that evaluates it.
type policyName struct{ plugin, name string }

// policyName returns the name of the policy, of a binding that of its policy.
func (d *document) policyName() policyName { return policyName{d.kind.policy, d.policy} }

// paramKinds returns the kinds of the parameters of policies that have some.
func (s *Set) paramKinds() map[policyName]admission.ParamKind {
	kinds := make(map[policyName]admission.ParamKind)
	for i := range s.documents {
		if kind, ok := s.documents[i].paramKind(); ok {
			kinds[s.documents[i].policyName()] = kind
		}
	}
	return kinds
}

// paramNotes notes kinds of parameters that Kubernetes does not have, and bindings that name no parameter of a policy that needs one:
// params is null then.
func (s *Set) paramNotes(positions *manifest.Positions) (notes []Note) {
	for i := range s.documents {
		d := &s.documents[i]
		if kind, ok := d.paramKind(); ok {
			if err := s.unknown(kind); err != nil {
				notes = append(notes, d.note(positions, "spec.paramKind.kind", err.Error()))
			}
		}
	}
	kinds := s.paramKinds()
	for i := range s.documents {
		d := &s.documents[i]
		kind, ok := kinds[d.policyName()]
		var binding selection
		if !ok || !d.isBinding() || d.added || decode(d.text, &binding) != nil || binding.Spec.ParamRef != nil {
			continue
		}
		notes = append(notes, d.note(positions, "spec.paramRef",
			fmt.Sprintf("got none, so params is null: the policy %q has a paramKind, and needs a parameter of the kind %s", d.policy, kind.Kind)))
	}
	return notes
}

// unknown returns an error if a kind of parameters does not exist, nil if a cluster may have it.
func (s *Set) unknown(kind admission.ParamKind) error {
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	if s.table == nil || strings.Contains(gvk.Group, ".") && s.table.Resources(gvk.GroupVersion()) == nil {
		return nil
	}
	_, err := s.table.Find(gvk)
	return err
}
