package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/offline/defaults"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// A Note says why the cases of a suite may show less than they seem to.
type Note struct {
	Suite string // its file
	Text  string // with file and line
}

// A fieldNote is about a field of an object that kube-apiserver drops or cannot decode.
type fieldNote struct {
	of   *Case // nil if the object is one of all cases
	at   manifest.Source
	text string
}

// noteFields notes the fields that kube-apiserver drops from objects of a case, which were read from a path of the suite.
// Policies do not see them, so a case may pass because of a misspelled field.
func (s *Suite) noteFields(of *Case, items []manifest.Item, g *Given, path string) {
	for i := range items {
		object := &items[i].Object
		note := func(field, text string) {
			at := manifest.Source{File: object.File, Line: object.Line}
			if g.object == nil {
				at.Line = s.positions.LineOf(object, field)
			} else { // for an item of a list, it is the line of the list
				at.Line = s.document.Line(strings.TrimSuffix(path+"."+field, "."))
			}
			s.fields = append(s.fields, fieldNote{of, at, text})
		}
		unknown, path, err := defaults.Check(object.GroupVersionKind(), object.JSON)
		for i := range unknown {
			note(unknown[i].Path, fmt.Sprintf("unknown field %q%s", unknown[i].Path, unknown[i].Hint()))
		}
		if err != nil {
			note(path, "kube-apiserver cannot decode the object: "+err.Error())
		}
	}
}

// A policyUse is a policy of a suite.
type policyUse struct {
	plugin, name string
	at           manifest.Source
}

// policyUses are those of a suite. The value is whether a case has evaluated the policy.
type policyUses struct {
	mu  sync.Mutex
	all map[policyUse]bool
}

// useOf returns the use of a policy. ok is false for other objects.
func useOf(item *manifest.Item) (use policyUse, ok bool) {
	plugin := policies.PluginOf(item.GroupVersionKind())
	return policyUse{plugin, item.Metadata.Name, item.Source}, plugin != ""
}

// begin adds the policies of a case. It reports whether one of them was not evaluated yet, so that the case must say which
// ones it evaluates.
func (u *policyUses) begin(items []manifest.Item) (isWanted bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.all == nil {
		u.all = make(map[policyUse]bool)
	}
	for i := range items {
		if use, ok := useOf(&items[i]); ok {
			isEvaluated := u.all[use]
			u.all[use], isWanted = isEvaluated, isWanted || !isEvaluated
		}
	}
	return isWanted
}

// end notes which policies of a case were evaluated.
func (u *policyUses) end(items []manifest.Item, results []*report.Result) {
	evaluated := make(map[[2]string]bool) // by plugin and policy
	for _, root := range results {
		root.Walk(func(r *report.Result, _ int) {
			for _, x := range r.Explanation {
				addEvaluated(evaluated, x)
			}
		})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range items {
		if use, ok := useOf(&items[i]); ok && evaluated[[2]string{use.plugin, use.name}] {
			u.all[use] = true
		}
	}
}

// addEvaluated adds the policies whose expressions decided something. Those with a match condition that is false are not
// among them.
func addEvaluated(evaluated map[[2]string]bool, x *admission.Explanation) {
	for i := range x.Policies {
		if p := &x.Policies[i]; p.Outcome != "" {
			evaluated[[2]string{x.Plugin, p.Policy}] = true
		}
	}
}

// note returns a sentence about the policies that no case evaluates, "" if there are none.
func (u *policyUses) note() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var idle []policyUse
	for use, isEvaluated := range u.all {
		if !isEvaluated {
			idle = append(idle, use)
		}
	}
	slices.SortFunc(idle, func(a, b policyUse) int {
		return cmp.Or(strings.Compare(a.at.File, b.at.File), cmp.Compare(a.at.Line, b.at.Line), strings.Compare(a.name, b.name),
			strings.Compare(a.plugin, b.plugin))
	})
	switch len(idle) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("policy %s is evaluated in no case, so nothing tests it (%s)", printable.Word(idle[0].name), idle[0].at)
	}
	var names []string
	for i := range idle {
		names = append(names, printable.Word(idle[i].name))
	}
	return fmt.Sprintf("%d policies are evaluated in no case, so nothing tests them: %s", len(idle), strings.Join(slices.Compact(names), ", "))
}

// notes returns the notes on a suite. outcomes are those of the cases that were selected.
func (s *Suite) notes(outcomes map[*Case]*Outcome) (notes []Note) {
	isComplete, some := true, false
	for i := range s.Cases {
		o := outcomes[&s.Cases[i]]
		ran := o != nil && !o.Skipped
		isComplete, some = isComplete && ran && o.Broken == nil, some || ran
	}
	said := make(map[Note]bool)
	for _, f := range s.fields {
		ran := some
		if f.of != nil {
			o := outcomes[f.of]
			ran = o != nil && !o.Skipped
		}
		if note := (Note{s.file, fmt.Sprintf("%s: %s", f.at, f.text)}); ran && !said[note] {
			said[note], notes = true, append(notes, note)
		}
	}
	if text := s.uses.note(); text != "" && isComplete { // otherwise another case may evaluate it
		notes = append(notes, Note{s.file, s.file + ": " + text})
	}
	return notes
}

// notesOn returns the notes on the suites of cases that ran, in the order of the cases.
func notesOn(outcomes []Outcome, all []work) (notes []Note) {
	var suites []*Suite
	of := make(map[*Case]*Outcome)
	for i := range all {
		if s := all[i].suite; s != nil {
			of[all[i].c] = &outcomes[i]
			if len(suites) == 0 || suites[len(suites)-1] != s {
				suites = append(suites, s)
			}
		}
	}
	for _, s := range suites {
		notes = append(notes, s.notes(of)...)
	}
	return notes
}
