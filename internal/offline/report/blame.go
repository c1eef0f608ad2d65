package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// policyPlugins are the plugins that evaluate policies.
var policyPlugins = []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"}

// policyIn finds policy and binding at the beginning of a message of these plugins. Before them there may be the object, and the
// workload that makes it, whose names the user chose: they are quoted, so they cannot pretend to be a policy.
var policyIn = regexp.MustCompile(`^(?:Pods of \S+ "(?:[^"\\]|\\.)*" would be denied: )?` +
	`(?:\S+ "(?:[^"\\]|\\.)*" is forbidden: )?(?:Validation failed for )?` +
	`(?:(?:Validating|Mutating)AdmissionPolicy|policy) ['"]([^'"]+)['"](?: with binding '([^']+)')?(?:: | denied request: )`)

// Blame returns the policy and the binding that a message of a plugin names, "" if it names none.
func Blame(plugin, message string) (policy, binding string) {
	if !slices.Contains(policyPlugins, plugin) {
		return "", ""
	}
	match := policyIn.FindStringSubmatch(message)
	if match == nil {
		return "", ""
	}
	return match[1], match[2]
}

// PolicyCount counts what a policy decided. Objects that controllers create are objects of their own.
type PolicyCount struct {
	Plugin  string `json:"plugin"`
	Policy  string `json:"policy"`
	Denied  int    `json:"denied"`
	Warned  int    `json:"warned"`
	Audited int    `json:"audited"`
}

func (c *PolicyCount) String() string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{c.Denied, "denied"}, {c.Warned, "warned"}, {c.Audited, "audited"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return titleOf(c.Plugin, c.Policy) + ": " + strings.Join(parts, ", ")
}

// countPolicies counts the findings of a result for their policies.
func (s *Summary) countPolicies(r *Result) {
	if r.Decision == Denied && r.Policy != "" {
		s.policy(r.Plugin, r.Policy).Denied++
	}
	counted := []string{r.Policy}
	for _, f := range r.FurtherDenials {
		if !slices.Contains(counted, f.Policy) {
			s.policy(f.Plugin, f.Policy).Denied++
			counted = append(counted, f.Policy)
		}
	}
	for _, f := range r.Warnings {
		if f.Policy != "" {
			s.policy(f.Plugin, f.Policy).Warned++
		}
	}
	for _, f := range r.Audits {
		if f.Policy != "" {
			s.policy(f.Plugin, f.Policy).Audited++
		}
	}
}

// policy returns the counts of a policy. They are sorted by the names of plugin and policy.
func (s *Summary) policy(plugin, name string) *PolicyCount {
	at, known := slices.BinarySearchFunc(s.Policies, PolicyCount{Plugin: plugin, Policy: name}, func(a, b PolicyCount) int {
		return cmp.Or(cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Policy, b.Policy))
	})
	if !known {
		s.Policies = slices.Insert(s.Policies, at, PolicyCount{Plugin: plugin, Policy: name})
	}
	return &s.Policies[at]
}
