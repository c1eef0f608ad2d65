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
		s.kinds = append(s.kinds, "request.kind.group in "+literals(groups))
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

// condition returns the exact selection, as an expression.
func (s *kindSelection) condition() string {
	if s.all || len(s.kinds) == 0 {
		return "true"
	}
	return strings.TrimSpace(joined(s.kinds, " || "))
}
