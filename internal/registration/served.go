package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
)

// A Discovery says what an API server serves. *cluster.Discovery is one.
type Discovery interface {
	// Versions returns the versions of a group, nil for none.
	Versions(ctx context.Context, group string) ([]string, error)
	// Resources returns the resources of a group version, nil for none.
	Resources(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error)
}

// An Unserved is a plugin that does not get some of its reviews, because the API server does not
// serve the resources that its rules name.
type Unserved struct {
	Plugin string
	About  string // why, for the operator
	// Passes is true if the plugin's requests pass without it: the API server serves the resource
	// in versions that no rule names. Otherwise it serves none of the plugin's resources.
	Passes bool
}

// FindUnserved returns the plugins whose rules name resources that the API server does not serve.
// Rules with "*" as group or resource match all that it serves.
func FindUnserved(ctx context.Context, d Discovery, plugins []*admission.Plugin) ([]Unserved, error) {
	f := served{discovery: d, versions: make(map[schema.GroupResource][]string), known: make(map[string]bool)}
	var all []Unserved
	for _, plugin := range plugins {
		found, err := f.find(ctx, plugin)
		if err != nil {
			return nil, fmt.Errorf("cannot find out which resources of plugin %s are served: %w", plugin.Name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// served is a cache of the versions and resources that an API server serves.
type served struct {
	discovery Discovery
	versions  map[schema.GroupResource][]string // the versions of each resource and subresource
	known     map[string]bool                   // the groups whose resources are in versions
}

func (s *served) find(ctx context.Context, plugin *admission.Plugin) (found []Unserved, err error) {
	var names []string // of resources that are not served
	matched := false
	for i := range plugin.Rules {
		rule := &plugin.Rules[i]
		for _, group := range rule.Groups {
			if group == "*" {
				return nil, nil
			}
			if err := s.ask(ctx, group); err != nil {
				return nil, err
			}
			for _, pattern := range rule.Resources {
				if strings.Contains(pattern, "*") {
					return nil, nil
				}
				resource := schema.GroupResource{Group: group, Resource: pattern}
				versions := s.versions[resource]
				switch {
				case namesOneOf(rule.Versions, versions):
					matched = true
				case len(versions) > 0:
					matched = true // so that only this resource is reported
					found = append(found, Unserved{plugin.Name, fmt.Sprintf(
						"requests for %s pass without it, because the API server serves version %s and its rules name %s",
						resource, strings.Join(versions, ", "), strings.Join(rule.Versions, ", ")), true})
				case !slices.Contains(names, resource.String()):
					names = append(names, resource.String())
				}
			}
		}
	}
	if !matched && len(names) > 0 {
		found = append(found, Unserved{plugin.Name, "it has nothing to do, because the API server does not serve " + strings.Join(names, ", "), false})
	}
	return found, nil
}

// ask asks for the resources of a group, once.
func (s *served) ask(ctx context.Context, group string) error {
	if s.known[group] {
		return nil
	}
	versions, err := s.discovery.Versions(ctx, group)
	if err != nil {
		return err
	}
	for _, version := range versions {
		list, err := s.discovery.Resources(ctx, schema.GroupVersion{Group: group, Version: version})
		if err != nil {
			return err
		}
		if list == nil {
			continue
		}
		for i := range list.APIResources {
			resource := schema.GroupResource{Group: group, Resource: list.APIResources[i].Name}
			s.versions[resource] = append(s.versions[resource], version)
		}
	}
	s.known[group] = true
	return nil
}

// namesOneOf reports whether names, the versions of a rule, select one of the served versions.
// With matchPolicy Equivalent, the API server converts objects of the others to it.
func namesOneOf(names, served []string) bool {
	return slices.ContainsFunc(served, func(v string) bool { return slices.Contains(names, v) || slices.Contains(names, "*") })
}
