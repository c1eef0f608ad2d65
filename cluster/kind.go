package cluster

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Kind is a kind of objects that plugins can read. Define and DefineJSON create one.
// Two plugins may define the same kind with different fields: each Kind has its own
// watch and cache.
type Kind struct {
	version    schema.GroupVersion
	name       string // as in the field "kind"
	listName   string // the kind of lists
	resource   string // as in a path of the API
	namespaced bool
	optional   bool   // the API server may lack the resource
	group      *Group // of which this is the need, nil for a kind
	protobuf   bool   // object and list can be read from protobuf

	// object and list are empty values of the Go types. list is nil for objects that
	// are not stored, such as reviews.
	object, list runtime.Object

	// whole is a kind of the same objects with all fields, nil if this one has them.
	whole *Kind

	// mask has the fields of an object that are decoded when it arrives.
	mask *mask

	// trim returns an object with the fields that the cache keeps. The result may
	// share memory with the argument.
	trim func(runtime.Object) (runtime.Object, error)

	// setDefaults sets the defaults that kube-apiserver sets in new objects, so files
	// need not contain them. It may be nil.
	setDefaults func(runtime.Object)
}

// KindOf is the Kind of the objects of type T.
type KindOf[T Object] struct{ *Kind }

// GroupVersionKind returns group, version and kind, as objects contain them.
func (k *Kind) GroupVersionKind() schema.GroupVersionKind { return k.version.WithKind(k.name) }

// String returns the resource and its group, as in "namespaces" or
// "storageclasses.storage.k8s.io".
func (k *Kind) String() string { return k.Resource().String() }

// Resource returns the group and the resource, as in paths of the API.
func (k *Kind) Resource() schema.GroupResource { return k.GroupVersionResource().GroupResource() }

// GroupVersionResource returns Resource with the version that is requested.
func (k *Kind) GroupVersionResource() schema.GroupVersionResource {
	return k.version.WithResource(k.resource)
}

// IsNamespaced reports whether objects of the kind are in namespaces.
func (k *Kind) IsNamespaced() bool { return k.namespaced }

// Watched is the need to have all objects of the kind in the cache. They are watched
// from the time when the plugin is enabled.
func (k *Kind) Watched() Need {
	return Need{Kind: k, Verbs: []string{"get", "list", "watch"}}
}

// Called is the need to send requests to the API server, with the verbs get, list,
// create or delete.
func (k *Kind) Called(verbs ...string) Need { return Need{Kind: k, Verbs: verbs} }

// CalledStatus is Called for the subresource status.
func (k *Kind) CalledStatus(verbs ...string) Need {
	return Need{Kind: k, SubResource: "status", Verbs: verbs}
}

// A Need is a permission that a plugin needs for the objects of a kind. The methods of
// Kind create Needs.
type Need struct {
	*Kind
	SubResource string
	Verbs       []string // of RBAC

	plugin string // the name of the plugin with the need, for messages

	background, aside bool
}

// Aside returns the need without the verbs that write, for a plugin with a View of ReadOnly. Ready and Wait of the
// State do not wait for its objects, unless somebody else needs them, too.
func (n Need) Aside() Need {
	n.background, n.aside = false, true
	writes := n.Writes()
	n.Verbs = slices.DeleteFunc(slices.Clone(n.Verbs), func(verb string) bool { return slices.Contains(writes, verb) })
	return n
}

// InBackground returns the need for requests that no review causes. A plugin that
// writes because of reviews runs only if callers are authenticated; this does not apply
// to needs in the background.
func (n Need) InBackground() Need {
	n.background = true
	return n
}

// By returns the need with the name of the plugin that has it, for messages.
func (n Need) By(plugin string) Need {
	n.plugin = plugin
	return n
}

// KindsOf returns the kinds of the needs, for Options.Kinds.
func KindsOf(needs ...Need) []*Kind {
	var kinds []*Kind
	for _, need := range needs {
		if !slices.Contains(kinds, need.Kind) {
			kinds = append(kinds, need.Kind)
		}
	}
	return kinds
}

// Writes returns the verbs with which the plugin changes stored objects because of a
// review. Creating a SubjectAccessReview is not one of them, because it stores nothing.
func (n *Need) Writes() (verbs []string) {
	if n.list == nil || n.background {
		return nil
	}
	for _, verb := range n.Verbs {
		if verb != "get" && verb != "list" && verb != "watch" {
			verbs = append(verbs, verb)
		}
	}
	return verbs
}

func (n *Need) isWatched() bool { return n.SubResource == "" && slices.Contains(n.Verbs, "watch") }

// Rules returns the permissions that the process needs, as rules of a ClusterRole: one
// for each resource, in the order of the needs.
func Rules(needs ...Need) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, need := range needs {
		if need.Kind == dynamic || len(need.Verbs) == 0 {
			continue
		}
		if need.group != nil {
			for _, resource := range need.group.resources {
				rules = addRule(rules, need.version.Group, resource, need.Verbs)
			}
			continue
		}
		if need.Kind == discovered {
			urls := discoveryURLs
			if need.SubResource == schemas {
				urls = schemaURLs
			}
			if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Equal(r.NonResourceURLs, urls) }) {
				rules = append(rules, rbacv1.PolicyRule{NonResourceURLs: urls, Verbs: need.Verbs})
			}
			continue
		}
		resource := need.resource
		if need.SubResource != "" {
			resource += "/" + need.SubResource
		}
		rules = addRule(rules, need.version.Group, resource, need.Verbs)
	}
	return rules
}

// addRule adds verbs to the rule for a resource. There may be none yet.
func addRule(rules []rbacv1.PolicyRule, group, resource string, verbs []string) []rbacv1.PolicyRule {
	i := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool {
		return r.NonResourceURLs == nil && r.APIGroups[0] == group && r.Resources[0] == resource
	})
	if i < 0 {
		i = len(rules)
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}})
	}
	for _, verb := range verbs {
		if !slices.Contains(rules[i].Verbs, verb) {
			rules[i].Verbs = append(rules[i].Verbs, verb)
		}
	}
	return rules
}
