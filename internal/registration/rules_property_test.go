package registration_test

import (
	"math/rand/v2"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/registration"
)

// TestRulesMatchTheSame compares the rules of random plugins with what the plugins handle,
// for all attributes of universe: the rules match exactly these. No rule contains another
// one, and kube-apiserver accepts them.
func TestRulesMatchTheSame(t *testing.T) {
	const rounds = 1000
	r := rand.New(rand.NewPCG(1, 2))
	registered := 0
	for range rounds {
		var plugins []registration.Plugin
		for range 1 + r.IntN(3) {
			p := plugin("P", "v", randomRules(r)...)
			if r.IntN(2) == 0 {
				for _, rule := range randomRules(r) {
					p.Criteria.Rules = append(p.Criteria.Rules, rule.WithOperations())
				}
			}
			plugins = append(plugins, p)
		}
		made, err := registration.New(plugins, new(registration.Options), nil)
		if err != nil {
			if gets := anything(plugins); gets != nil {
				t.Fatalf("%+v: got %v, but plugins get %+v", plugins, err, *gets)
			}
			continue
		}
		registered++
		rules := made.Validating.Webhooks[0].Rules
		if _, err := match.New(&match.Criteria{Rules: rules}, nil); err != nil {
			t.Fatalf("%+v: %v", rules, err)
		}
		for i := range universe {
			if got, want := anyMatches(rules, &universe[i]), anyGets(plugins, &universe[i]); got != want {
				t.Fatalf("rules %+v for %+v: got %v, want %v of\n%+v", shown(rules), universe[i], got, want, plugins)
			}
		}
		checkMinimal(t, rules)
	}
	if registered < rounds/2 {
		t.Errorf("got %d of %d registered, want half at least", registered, rounds)
	}
}

// universe has all attributes: those in the random rules, and another value for each part.
var universe = func() (all []admission.Attributes) {
	for _, operation := range []codec.Operation{"CREATE", "UPDATE", "DELETE"} {
		for _, group := range []string{"", "apps", "other"} {
			for _, version := range []string{"v1", "v2", "other"} {
				for _, resource := range []string{"pods", "services", "other"} {
					for _, sub := range []string{"", "exec", "other"} {
						for _, namespace := range []string{"", "default"} {
							all = append(all, admission.Attributes{
								Operation:   operation,
								Resource:    codec.GroupVersionResource{Group: group, Version: version, Resource: resource},
								SubResource: sub, Namespace: namespace,
							})
						}
					}
				}
			}
		}
	}
	return all
}()

// randomRules returns random rules that kube-apiserver accepts.
func randomRules(r *rand.Rand) (rules []admission.Rule) {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	for n := 1 + r.IntN(3); len(rules) < n; {
		rule := rule(pick("CREATE", "UPDATE", "CREATE,UPDATE", "*"), pick("", "apps", ",apps", "*"), pick("v1", "v2", "v1,v2", "*"),
			pick("pods", "services", "pods,services", "pods/exec", "pods/*", "*", "*/exec", "*/*", "*,pods/exec", "services,*/exec"))
		rule.Scope = admissionregistrationv1.ScopeType(pick("", "*", "Cluster", "Namespaced"))
		rules = append(rules, rule)
	}
	return rules
}

func anything(plugins []registration.Plugin) *admission.Attributes {
	for i := range universe {
		if anyGets(plugins, &universe[i]) {
			return &universe[i]
		}
	}
	return nil
}

// anyGets reports whether fastadmit calls any of the plugins for a request.
func anyGets(plugins []registration.Plugin, a *admission.Attributes) bool {
	for _, p := range plugins {
		handles := false
		for i := range p.Rules {
			handles = handles || p.Rules[i].Matches(a)
		}
		if handles && (p.Criteria.Rules == nil || anyMatches(p.Criteria.Rules, a)) {
			return true
		}
	}
	return false
}

func anyMatches(rules []admissionregistrationv1.RuleWithOperations, a *admission.Attributes) bool {
	for i := range rules {
		if asHandled(&rules[i]).Matches(a) {
			return true
		}
	}
	return false
}

func asHandled(r *admissionregistrationv1.RuleWithOperations) *admission.Rule {
	h := &admission.Rule{Groups: r.APIGroups, Versions: r.APIVersions, Resources: r.Resources, Scope: *r.Scope}
	for _, o := range r.Operations {
		h.Operations = append(h.Operations, codec.Operation(o))
	}
	return h
}

// checkMinimal checks that no rule contains another one.
func checkMinimal(t *testing.T, rules []admissionregistrationv1.RuleWithOperations) {
	t.Helper()
	for i := range rules {
		for j := range rules {
			if i != j && contains(&rules[i], &rules[j]) {
				t.Fatalf("%s contains %s", show(&rules[i]), show(&rules[j]))
			}
		}
	}
}

func contains(a, b *admissionregistrationv1.RuleWithOperations) bool {
	for i := range universe {
		if asHandled(b).Matches(&universe[i]) && !asHandled(a).Matches(&universe[i]) {
			return false
		}
	}
	return true
}

func shown(rules []admissionregistrationv1.RuleWithOperations) (all []string) {
	for i := range rules {
		all = append(all, show(&rules[i]))
	}
	return all
}
