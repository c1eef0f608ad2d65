package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/discovery"
)

// resourceRule is the part of a rule of a policy that names resources.
type resourceRule struct {
	APIGroups []string `json:"apiGroups"`
	Resources []string `json:"resources"`
}

// noteRules notes groups and resources of a policy's rules that Kubernetes does not have: most likely they are misspelt, and
// kube-apiserver accepts them. A group that is not Kubernetes' own may have any resource.
func (s *Set) noteRules(d *document) {
	var policy struct {
		Spec struct {
			MatchConstraints struct {
				ResourceRules []resourceRule `json:"resourceRules"`
			} `json:"matchConstraints"`
		} `json:"spec"`
	}
	if d.isBinding() || decode(d.text, &policy) != nil {
		return
	}
	builtIn := discovery.BuiltIn()
	for i := range policy.Spec.MatchConstraints.ResourceRules {
		rule := &policy.Spec.MatchConstraints.ResourceRules[i]
		for _, wrong := range rule.wrong(builtIn) {
			s.notes = append(s.notes, fmt.Sprintf("%s: spec.matchConstraints.resourceRules[%d].%s", d, i, wrong))
		}
	}
}

// wrong returns what Kubernetes does not have.
func (r *resourceRule) wrong(builtIn map[string][]string) (all []string) {
	var known []string // the resources of the rule's groups
	for i, group := range r.APIGroups {
		if resources, ok := builtIn[group]; ok {
			known = append(known, resources...)
			continue
		}
		if hint := groupHint(group, builtIn); hint != "" {
			all = append(all, fmt.Sprintf("apiGroups[%d]: Kubernetes has no group %q%s", i, group, hint))
		}
		return all // it may have any resource
	}
	for i, resource := range r.Resources {
		name, _, _ := strings.Cut(resource, "/")
		if name == "*" || len(r.APIGroups) == 0 || slices.Contains(known, name) {
			continue
		}
		all = append(all, fmt.Sprintf("resources[%d]: the group %s has no resource %q%s", i, strings.Join(quoted(r.APIGroups), " or "), name,
			alike.Hint(strings.ToLower(name), known)))
	}
	return all
}

// groupHint returns a suggestion for a group that Kubernetes does not have, "" if it may be one of custom resources.
func groupHint(group string, builtIn map[string][]string) string {
	if group == "core" || group == "v1" {
		return `; that of Pods and Services is ""`
	}
	if strings.Contains(group, ".") {
		return ""
	}
	groups := slices.DeleteFunc(slices.Sorted(maps.Keys(builtIn)), func(known string) bool { return known == "" })
	return alike.Hint(group, groups)
}

func quoted(names []string) []string {
	all := make([]string, len(names))
	for i := range names {
		all[i] = fmt.Sprintf("%q", names[i])
	}
	return all
}
