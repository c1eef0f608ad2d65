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
// kube-apiserver accepts them. builtIn are the resources of Kubernetes' own groups, and custom those that CustomResourceDefinitions
// add to other groups. Such a group may have more of them, and one without a definition any resource.
// It also notes a messageExpression that YAML takes for a tag.
func (d *document) ruleNotes(positions *manifest.Positions, builtIn map[string][]string, custom customGroups) (notes []Note) {
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
		for _, w := range policy.Spec.MatchConstraints.ResourceRules[i].wrong(builtIn, custom) {
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
func (r *resourceRule) wrong(builtIn map[string][]string, custom customGroups) (all []wrongName) {
	var known []string // the resources of the rule's groups
	var defined []customNames
	for i, group := range r.APIGroups {
		if resources, ok := builtIn[group]; ok {
			known = append(known, resources...)
			continue
		}
		if names, ok := custom[group]; ok {
			defined = append(defined, names...)
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
		if len(defined) > 0 {
			plural := meant(name, defined)
			if plural == "" || plural == name {
				continue
			}
			hint = ", did you mean " + plural + "?"
		}
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

// customGroups are the names of custom resources, by group.
type customGroups map[string][]customNames

type customNames struct {
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular"`
	Kind       string   `json:"kind"`
	ShortNames []string `json:"shortNames"`
}

// newCustomGroups returns the names in CustomResourceDefinitions.
func newCustomGroups(definitions [][]byte) customGroups {
	groups := make(customGroups)
	for _, definition := range definitions {
		var crd struct {
			Spec struct {
				Group string      `json:"group"`
				Names customNames `json:"names"`
			} `json:"spec"`
		}
		if decode(definition, &crd) == nil && crd.Spec.Names.Plural != "" {
			groups[crd.Spec.Group] = append(groups[crd.Spec.Group], crd.Spec.Names)
		}
	}
	return groups
}

// meant returns the plural that a rule should name instead of a name, or the name itself if it is one. It is "" if another resource
// may be meant: taskruns need not be misspelt tasks.
func meant(name string, defined []customNames) (plural string) {
	for i := range defined {
		names := &defined[i]
		if names.Plural == name {
			return name
		}
		for _, other := range append([]string{names.Plural, names.Singular, names.Kind}, names.ShortNames...) {
			if other != "" && (strings.EqualFold(name, other) || other == names.Plural && isOneOff(strings.ToLower(name), other)) {
				plural = names.Plural
			}
		}
	}
	return plural
}

// isOneOff reports whether one letter is missing, wrong or too many.
func isOneOff(a, b string) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b)) <= 1
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
