package audit

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// A resource is a resource whose objects are reviewed.
type resource struct {
	discovery.Resource
	kind string
}

// path returns the API path of the objects in a namespace, or of all if namespace is
// empty.
func (r *resource) path(namespace string) string {
	base := path.Join("/apis", r.Group, r.Version)
	if r.Group == "" {
		base = "/api/" + r.Version
	}
	if namespace != "" {
		base = path.Join(base, "namespaces", namespace)
	}
	return path.Join(base, r.GroupVersionResource.Resource)
}

func (r *resource) gvk() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.kind) }

// resources returns the resources that can be listed and that a webhook selects. Each has
// the version that the API server prefers among those that the webhooks name. faults are about
// the group versions whose resources could not be read.
func (a *audit) resources(ctx context.Context) (all []*resource, faults []*report.Result, err error) {
	versions, err := a.versions(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot ask the API server which resources it has: %w", err)
	}
	known := make(map[schema.GroupResource]bool)
	for _, version := range versions {
		if !a.mayMatch(version) {
			continue
		}
		var list metav1.APIResourceList
		base := path.Join("/apis", version.Group, version.Version)
		if version.Group == "" {
			base = "/api/" + version.Version
		}
		if _, err := a.client.get(ctx, base, &list); err != nil {
			faults = append(faults, broken(nil, fmt.Errorf("cannot ask the API server for the resources of %s: %w", version, err)))
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			found := &resource{discovery.Resource{GroupVersionResource: version.WithResource(r.Name), Namespaced: r.Namespaced}, r.Kind}
			if known[found.GroupResource()] || strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !a.matches(found) {
				continue
			}
			known[found.GroupResource()] = true
			all = append(all, found)
		}
	}
	return all, faults, nil
}

// versions returns the group versions of the API server. Within a group, the preferred
// version comes first.
func (a *audit) versions(ctx context.Context) (all []schema.GroupVersion, err error) {
	var core metav1.APIVersions
	if _, err := a.client.get(ctx, "/api", &core); err != nil {
		return nil, err
	}
	for _, version := range core.Versions {
		all = append(all, schema.GroupVersion{Version: version})
	}
	var groups metav1.APIGroupList
	if _, err := a.client.get(ctx, "/apis", &groups); err != nil {
		return nil, err
	}
	for i := range groups.Groups {
		group := &groups.Groups[i]
		preferred := schema.GroupVersion{Group: group.Name, Version: group.PreferredVersion.Version}
		all = append(all, preferred)
		for _, version := range group.Versions {
			if other := (schema.GroupVersion{Group: group.Name, Version: version.Version}); other != preferred {
				all = append(all, other)
			}
		}
	}
	return all, nil
}

// mayMatch reports whether a rule can match resources of a group version.
func (a *audit) mayMatch(version schema.GroupVersion) bool {
	return slices.ContainsFunc(a.rules, func(r admission.Rule) bool {
		return contains(r.Groups, version.Group) && contains(r.Versions, version.Version)
	})
}

func contains(list []string, s string) bool {
	return slices.Contains(list, s) || slices.Contains(list, "*")
}

// matches reports whether a rule matches the resource.
func (a *audit) matches(r *resource) bool {
	attributes := admission.Attributes{
		Operation: a.Review.Operation,
		Resource:  codec.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.GroupVersionResource.Resource},
	}
	if r.Namespaced {
		if attributes.Namespace = "any"; len(a.Namespaces) > 0 {
			attributes.Namespace = a.Namespaces[0]
		}
	} else if len(a.Namespaces) > 0 {
		return false
	}
	return slices.ContainsFunc(a.rules, func(rule admission.Rule) bool { return rule.Matches(&attributes) })
}
