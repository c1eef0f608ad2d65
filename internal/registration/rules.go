package registration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// An atom is a rule with a single element in each list. It matches attributes that equal all
// of its parts; "*" equals everything.
type atom [parts]string

// The parts of an atom. The subresource of the resource itself is empty.
const (
	operation = iota
	group
	version
	resource
	subresource
	scope
	parts
)

const all = "*"

// explode returns atoms that together match the same as the rule.
func explode(r *admissionregistrationv1.RuleWithOperations) (atoms []atom) {
	for _, o := range r.Operations {
		for _, g := range r.APIGroups {
			for _, v := range r.APIVersions {
				for _, pattern := range r.Resources {
					name, sub, _ := strings.Cut(pattern, "/")
					a := atom{string(o), g, v, name, sub, all}
					if r.Scope != nil {
						a[scope] = string(*r.Scope)
					}
					atoms = append(atoms, a)
				}
			}
		}
	}
	return atoms
}

// and returns the atom that matches what both a and b match; ok is false if there is
// nothing.
func (a atom) and(b atom) (atom, bool) {
	for i := range a {
		switch {
		case a[i] == all:
			a[i] = b[i]
		case b[i] != all && b[i] != a[i]:
			return a, false
		}
	}
	return a, true
}

// atoms returns atoms for the attributes that the plugin handles and its criteria select.
func (p *Plugin) atoms() (atoms []atom) {
	var selected []atom
	for i := range p.Criteria.Rules {
		selected = append(selected, explode(&p.Criteria.Rules[i])...)
	}
	for i := range p.Rules {
		rule := p.Rules[i].WithOperations()
		handled := explode(&rule)
		if p.Criteria.Rules == nil {
			atoms = append(atoms, handled...)
			continue
		}
		for _, h := range handled {
			for _, s := range selected {
				if a, ok := h.and(s); ok {
					atoms = append(atoms, a)
				}
			}
		}
	}
	return atoms
}

// workloads returns atoms for the workloads whose Pods the plugin checks. own are those of the plugin. There are none if
// it does not get the creation of Pods.
func (p *Plugin) workloads(own []atom) (atoms []atom) {
	pod := atom{operation: string(codec.Create), version: "v1", resource: "pods", scope: string(admissionregistrationv1.NamespacedScope)}
	creates := func(a atom) bool { _, ok := a.and(pod); return ok }
	if !p.ChecksWorkloads || !slices.ContainsFunc(own, creates) {
		return nil
	}
	add := func(groupName, versionName, name string) {
		for _, o := range [...]codec.Operation{codec.Create, codec.Update} {
			atoms = append(atoms, atom{
				operation: string(o), group: groupName, version: versionName, resource: name, scope: string(admissionregistrationv1.AllScopes),
			})
		}
	}
	for i := range workload.BuiltIns {
		b := &workload.BuiltIns[i]
		add(b.Kind.Group, b.Version, b.Resource)
	}
	for name := range p.PodTemplatePaths {
		resource := schema.ParseGroupResource(name)
		add(resource.Group, all, resource.Resource)
	}
	return atoms
}

// rules returns rules that match exactly the attributes that at least one plugin handles. No
// rule contains another one. The rules and their lists are sorted.
func rules(plugins []Plugin, phase admission.Phase) []admissionregistrationv1.RuleWithOperations {
	set := make(map[atom]bool)
	for i := range plugins {
		own := plugins[i].atoms()
		if phase == admission.Validate {
			own = append(own, plugins[i].workloads(own)...)
		}
		for _, a := range own {
			set[a] = true
		}
	}
	for a := range set {
		if a[scope] != string(admissionregistrationv1.ClusterScope) {
			continue
		}
		a[scope] = string(admissionregistrationv1.NamespacedScope)
		if set[a] { // both scopes are all scopes
			a[scope] = all
			set[a] = true
		}
	}
	var boxes []box
	for a := range set {
		if !isContained(a, set) {
			boxes = append(boxes, newBox(a))
		}
	}
	var merged []admissionregistrationv1.RuleWithOperations
	for _, b := range merge(boxes) {
		merged = append(merged, b.rule())
	}
	return merged
}

// isContained reports whether another atom of the set matches everything that a matches: a
// with "*" in place of some parts.
func isContained(a atom, set map[atom]bool) bool {
	for wild := 1; wild < 1<<parts; wild++ {
		wider := a
		for i := range wider {
			if wild&(1<<i) != 0 {
				wider[i] = all
			}
		}
		if wider != a && set[wider] {
			return true
		}
	}
	return false
}

// A box is a rule with sorted lists.
type box [sides][]string

// The sides of a box, in the order of merging before the scope. Operations come first, so
// that one rule has all operations of a resource.
const (
	operations = iota
	resources
	versions
	groups
	boxScope
	sides
)

func newBox(a atom) box {
	pattern := a[resource]
	if a[subresource] != "" {
		pattern += "/" + a[subresource]
	}
	return box{
		operations: {a[operation]}, resources: {pattern}, versions: {a[version]}, groups: {a[group]}, boxScope: {a[scope]},
	}
}

// key returns a key that is equal for boxes that differ only in the given side.
func (b *box) key(side int) string {
	var key strings.Builder
	for i, list := range b {
		if i != side {
			fmt.Fprintf(&key, "%q", list)
		}
	}
	return key.String()
}

// merge merges boxes that differ only in one side. The result matches the same. One round is
// enough: after merging a side, no two boxes have all other sides equal, and merging later
// sides does not create such boxes.
func merge(boxes []box) []box {
	for side := range boxScope {
		byKey := make(map[string]box)
		for _, b := range boxes {
			key := b.key(side)
			if same, ok := byKey[key]; ok {
				b[side] = slices.Concat(same[side], b[side])
				slices.Sort(b[side])
			}
			byKey[key] = b
		}
		boxes = slices.SortedFunc(maps.Values(byKey), compareBoxes)
	}
	return boxes
}

// compareBoxes sorts by groups and resources first, for readers.
func compareBoxes(a, b box) int {
	return cmp.Or(
		slices.Compare(a[groups], b[groups]), slices.Compare(a[resources], b[resources]),
		slices.Compare(a[versions], b[versions]), slices.Compare(a[operations], b[operations]),
		slices.Compare(a[boxScope], b[boxScope]),
	)
}

func (b *box) rule() admissionregistrationv1.RuleWithOperations {
	r := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
		APIGroups: b[groups], APIVersions: b[versions], Resources: b[resources],
		Scope: new(admissionregistrationv1.ScopeType(b[boxScope][0])),
	}}
	for _, o := range b[operations] {
		r.Operations = append(r.Operations, admissionregistrationv1.OperationType(o))
	}
	return r
}
