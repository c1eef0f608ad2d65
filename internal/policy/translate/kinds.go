package translate

import (
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/discovery"
)

// A kindSelection translates kinds to resources, by which Kubernetes' policies select.
type kindSelection struct {
	operations []admissionregistrationv1.OperationType
	scope      *admissionregistrationv1.ScopeType
	rules      []admissionregistrationv1.NamedRuleWithOperations
	kinds      []string // expressions
	all        bool     // whether an entry selects every kind
	more       bool     // whether the rules may select more than the kinds
}

var builtIn = sync.OnceValue(func() *discovery.Table { return discovery.NewTable(nil) })

// plural returns the resource of a kind. It is a guess for kinds that are not Kubernetes' own.
func plural(group, kind string) (resource string, isKnown bool) {
	if resource := builtIn().Plural(group, kind); resource != "" {
		return resource, true
	}
	guess, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: group, Kind: kind})
	return guess.Resource, false
}

// add adds the kinds of an entry of Gatekeeper's match.kinds.
func (s *kindSelection) add(groups, kinds []string) {
	anyGroup := len(groups) == 0 || slices.Contains(groups, "*")
	if len(kinds) == 0 || slices.Contains(kinds, "*") {
		if anyGroup {
			s.all = true
			return
		}
		s.rule(groups, []string{"*"})
		s.more, s.kinds = true, append(s.kinds, "request.kind.group in "+literals(groups))
		return
	}
	expression := "request.kind.kind in " + literals(kinds)
	if anyGroup {
		groups = []string{"*"}
	} else {
		expression = "request.kind.group in " + literals(groups) + " && " + expression
	}
	s.kinds = append(s.kinds, expression)
	var resources []string
	for _, kind := range kinds {
		for _, group := range groups {
			resource, isKnown := plural(group, kind)
			if !isKnown && group != "*" && (group == "" || slices.Contains(schemaGroups, group)) {
				continue // the group has no such kind
			}
			if !isKnown {
				resource = "*"
			}
			if !slices.Contains(resources, resource) {
				resources = append(resources, resource)
			}
		}
	}
	if slices.Contains(resources, "*") {
		resources = []string{"*"}
	}
	// A known resource of a group has one kind. The same name in all groups may have others, as that of PodMetrics.
	s.more = s.more || anyGroup || len(resources) == 0 || resources[0] == "*"
	if len(resources) > 0 {
		s.rule(groups, resources)
	}
}

// schemaGroups are groups all of whose kinds are known.
var schemaGroups = []string{"apps", "batch", "autoscaling", "policy", "extensions"}

func (s *kindSelection) rule(groups, resources []string) {
	s.rules = append(s.rules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: s.operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: resources, Scope: s.scope},
	}})
}

// resources returns the selection as resource rules, which may select more kinds.
func (s *kindSelection) resources() *admissionregistrationv1.MatchResources {
	if s.all || len(s.rules) == 0 {
		s.rules = nil
		s.rule([]string{"*"}, []string{"*"})
	}
	return &admissionregistrationv1.MatchResources{ResourceRules: s.rules}
}

// condition returns the exact selection, as an expression: "true" if that is what the rules select.
func (s *kindSelection) condition() string {
	if s.all || !s.more {
		return "true"
	}
	return strings.TrimSpace(joined(s.kinds, " || "))
}
