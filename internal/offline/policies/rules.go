package policies

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// resourceRule is the part of a rule of a policy that names resources.
type resourceRule struct {
	APIGroups   []string `json:"apiGroups"`
	APIVersions []string `json:"apiVersions"`
	Resources   []string `json:"resources"`
}

// ruleNotes notes groups and resources of a policy's rules that Kubernetes does not have: most likely they are misspelt, and
// kube-apiserver accepts them. A group that is not Kubernetes' own may have any resource. builtIn are the resources of its groups.
// It also notes a messageExpression that YAML takes for a tag.
func (d *document) ruleNotes(positions *manifest.Positions, builtIn map[string][]string) (notes []Note) {
	var policy struct {
		Spec struct {
			MatchConstraints struct {
				ResourceRules []resourceRule `json:"resourceRules"`
			} `json:"matchConstraints"`
			Validations []struct {
				MessageExpression string `json:"messageExpression"`
			} `json:"validations"`
		} `json:"spec"`
	}
	if d.isBinding() || decode(d.text, &policy) != nil {
		return nil
	}
	for i := range policy.Spec.MatchConstraints.ResourceRules {
		for _, w := range policy.Spec.MatchConstraints.ResourceRules[i].wrong(builtIn) {
			field := fmt.Sprintf("spec.matchConstraints.resourceRules[%d].%s", i, w.field)
			notes = append(notes, d.note(positions, field, w.message))
		}
	}
	for i, v := range policy.Spec.Validations {
		if v.MessageExpression == "" { // the plugin reports other expressions that are missing
			field := fmt.Sprintf("spec.validations[%d].messageExpression", i)
			if tag := positions.TagOf(&d.item.Object, field); tag != "" {
				notes = append(notes, d.note(positions, field, "got nothing but the YAML tag "+tag+strictyaml.QuotesHint("text: "+tag)))
			}
		}
	}
	return notes
}

// A wrongName is a name in a rule that Kubernetes does not have.
type wrongName struct{ field, message string }

// wrong returns what Kubernetes does not have.
func (r *resourceRule) wrong(builtIn map[string][]string) (all []wrongName) {
	var known []string // the resources of the rule's groups
	for i, group := range r.APIGroups {
		if resources, ok := builtIn[group]; ok {
			known = append(known, resources...)
			continue
		}
		if hint := groupHint(group, builtIn); hint != "" {
			all = append(all, wrongName{fmt.Sprintf("apiGroups[%d]", i), fmt.Sprintf("Kubernetes has no group %q%s", group, hint)})
		}
		return all // it may have any resource
	}
	for i, resource := range r.Resources {
		name, _, _ := strings.Cut(resource, "/")
		if name == "*" || len(r.APIGroups) == 0 || slices.Contains(known, name) {
			continue
		}
		hint := alike.Hint(strings.ToLower(name), known)
		for _, group := range slices.Sorted(maps.Keys(builtIn)) {
			if slices.Contains(builtIn[group], name) {
				hint = fmt.Sprintf("; the group %q has it", group)
				break
			}
		}
		message := fmt.Sprintf("the group %s has no resource %q%s", strings.Join(quoted(r.APIGroups), " or "), name, hint)
		all = append(all, wrongName{fmt.Sprintf("resources[%d]", i), message})
	}
	if len(all) == 0 && len(r.APIGroups) > 0 && len(r.APIVersions) > 0 && !r.canBeServed(known) {
		all = append(all, wrongName{"apiVersions", fmt.Sprintf(
			"got %s, but no release of Kubernetes from 1.33 on serves %s of the group %s in this version, so the rule selects nothing",
			strings.Join(quoted(r.APIVersions), " or "), strings.Join(r.Resources, " or "), strings.Join(quoted(r.APIGroups), " or "))})
	}
	return all
}

// canBeServed reports whether a resource of the rule may be served in one of its versions. known are the resources of its groups.
func (r *resourceRule) canBeServed(known []string) bool {
	var names []string
	for _, resource := range r.Resources {
		name, _, _ := strings.Cut(resource, "/")
		if name == "*" {
			names = append(names, known...)
		} else {
			names = append(names, name)
		}
	}
	for _, group := range r.APIGroups {
		for _, version := range r.APIVersions {
			for _, name := range names {
				if version == "*" || discovery.CanServe(schema.GroupVersionResource{Group: group, Version: version, Resource: name}) {
					return true
				}
			}
		}
	}
	return false
}

// groupHint returns a suggestion for a group that Kubernetes does not have, "" if it may be one of custom resources.
func groupHint(group string, builtIn map[string][]string) string {
	switch group {
	case "core", "v1":
		return `; that of Pods and Services is ""`
	case "extensions":
		return " since 1.22; what it had is in apps, networking.k8s.io and policy"
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
