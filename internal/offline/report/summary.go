package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// Summary counts results.
type Summary struct {
	Objects  int `json:"objects"` // in the input, broken and skipped ones included
	Created  int `json:"created"` // that controllers create for them; the decisions include them
	Allowed  int `json:"allowed"` // patched ones included
	Patched  int `json:"patched"`
	Denied   int `json:"denied"`
	Failed   int `json:"failed"`
	Broken   int `json:"broken"`
	Skipped  int `json:"skipped"`
	Warnings int `json:"warnings"`
	Audits   int `json:"audits"`  // denials that are audit annotations only
	Ignored  int `json:"ignored"` // failures of plugins and policies whose failure policy is Ignore
	// Unrendered are those of Skipped that a program must render first.
	Unrendered int `json:"unrendered"`
	// Unchecked counts the objects of the input that no enabled plugin checked, nor what controllers
	// create for them. LeftOut counts those of them that a plugin did not check although its rules
	// select them, because of its configuration or the labels of a namespace.
	Unchecked int `json:"unchecked"`
	LeftOut   int `json:"leftOut"`
	// Idle are plugins that checked none of the objects that their rules select, with the reason for the first one.
	Idle []Finding `json:"idle,omitempty"`
	// Unused are plugins that the configuration configures, and that neither it nor a flag enables.
	Unused []string `json:"unused,omitempty"`
	// EmulatedVersion is the release of Kubernetes as which the plugins behave.
	EmulatedVersion string `json:"emulatedVersion,omitempty"`
	// Policies are the policies that denied, warned or audited.
	Policies []PolicyCount `json:"policies,omitempty"`
	// PolicyNotes say which policies are not evaluated, which of their rules select nothing, and which of their expressions read
	// fields that do not exist.
	PolicyNotes []PolicyNote `json:"policyNotes,omitempty"`
	// Exceptions are the PolicyExceptions.
	Exceptions []admission.Exception `json:"exceptions,omitempty"`
	// Replay counts the reviews of fastadmit replay, instead of objects.
	Replay *Replay `json:"replay,omitempty"`

	CheckedBy map[string]bool `json:"-"` // the plugins that checked an object
}

// A PolicyNote is a sentence about a policy in a file, or about the settings of a plugin.
type PolicyNote struct {
	File    string `json:"file"` // "" for none
	Line    int    `json:"line"` // 0 if it is not known
	Message string `json:"message"`
}

func (n *PolicyNote) String() string {
	switch {
	case n.File == "":
		return n.Message
	case n.Line == 0:
		return n.File + ": " + n.Message
	}
	return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Message)
}

// Replay counts repeated reviews.
type Replay struct {
	Reviews   int64 `json:"reviews"`   // in the input
	Same      int64 `json:"same"`      // with the same answer
	Differing int64 `json:"differing"` // with another answer
	Skipped   int64 `json:"skipped"`   // whose answer came from a plugin that is left out
	NotAsked  int64 `json:"notAsked"`  // that could not be read or repeated, or whose recorded answer is unknown
	// Worse are those of Differing that were allowed and would be denied or fail.
	Worse int64 `json:"worse"`
	// From and To are the releases of Kubernetes that upgrade-check compares.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Notes say why answers may differ from the recorded ones.
	Notes []string `json:"notes,omitempty"`
}

func (r *Replay) String() string {
	text := fmt.Sprintf("%s: %d with the same answer, %d with another", Counted(int(r.Reviews), "review"), r.Same, r.Differing)
	if r.Worse > 0 {
		text += fmt.Sprintf(", of which %d would not be allowed any more", r.Worse)
	}
	if r.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", r.Skipped)
	}
	if r.NotAsked > 0 {
		text += fmt.Sprintf(", %d not asked", r.NotAsked)
	}
	if r.From != "" {
		text += fmt.Sprintf(", from Kubernetes %s to %s", r.From, r.To)
	}
	for _, note := range r.Notes {
		text += "\nnote: " + note
	}
	return text
}

// Add counts a result and its Created.
func (s *Summary) Add(r *Result) {
	if r.IsUnchecked() {
		s.Unchecked++
		if len(r.AllLeftOut()) > 0 {
			s.LeftOut++
		}
	}
	r.Walk(func(r *Result, depth int) {
		if depth == 0 {
			s.Objects++
		} else {
			s.Created++
		}
		s.Warnings += len(r.Warnings)
		s.Audits += len(r.Audits)
		s.Ignored += len(r.Ignored)
		if r.Unrendered {
			s.Unrendered++
		}
		s.countPolicies(r)
		s.noteIdle(r)
		switch r.Decision {
		case Allowed:
			s.Allowed++
		case Patched:
			s.Allowed++
			s.Patched++
		case Denied:
			s.Denied++
		case Failed:
			s.Failed++
		case Broken:
			s.Broken++
		case Skipped:
			s.Skipped++
		}
	})
}

// noteIdle keeps Idle true.
func (s *Summary) noteIdle(r *Result) {
	for _, plugin := range r.CheckedBy {
		if s.CheckedBy == nil {
			s.CheckedBy = make(map[string]bool)
		}
		s.CheckedBy[plugin] = true
	}
	for _, f := range r.LeftOut {
		if !slices.ContainsFunc(s.Idle, func(known Finding) bool { return known.Plugin == f.Plugin }) {
			s.Idle = append(s.Idle, f)
		}
	}
	s.Idle = slices.DeleteFunc(s.Idle, func(f Finding) bool { return s.CheckedBy[f.Plugin] })
}

// Doubts returns why it may mean little that objects are allowed.
func (s *Summary) Doubts() (all []string) {
	for _, name := range s.Unused {
		all = append(all, Unused(name))
	}
	if s.NothingChecked() {
		return append(all, NothingChecked)
	}
	for _, f := range s.Idle {
		all = append(all, fmt.Sprintf("%s checked none of the objects that its rules select: %s", f.Plugin, f.Message))
	}
	return all
}

// exceptions returns a sentence for each of Exceptions.
func (s *Summary) exceptions() (all []string) {
	for i := range s.Exceptions {
		e := &s.Exceptions[i]
		end := "has no end"
		if e.ExpiresAt != "" {
			end = "ends " + e.ExpiresAt
		}
		all = append(all, fmt.Sprintf("PolicyException %s %s, lifted %d: %s", e.Name, end, e.Lifted, strings.Join(strings.Fields(e.Reason), " ")))
	}
	return all
}

// Unused is what is said of a plugin in Summary.Unused.
func Unused(plugin string) string {
	return plugin + " is configured and not enabled, so it does not run: enable it, or name it in --disable-admission-plugins"
}

// NothingChecked is what is said if Summary.NothingChecked is true.
const NothingChecked = "nothing that is enabled checks any of these objects, so none of them could be denied"

// NothingChecked reports whether no plugin checked any of the objects that could be reviewed.
func (s *Summary) NothingChecked() bool {
	return s.Unchecked > 0 && s.Unchecked == s.Objects-s.Broken-s.Skipped
}

func (s *Summary) String() string {
	if s.Replay != nil {
		return printable.Plain(s.Replay.String())
	}
	text := Counted(s.Objects, "object")
	if s.Created > 0 {
		text += fmt.Sprintf(" and %d that controllers make of them", s.Created)
	}
	text += fmt.Sprintf(": %d allowed", s.Allowed)
	if s.Patched > 0 {
		text += fmt.Sprintf(" (%d patched)", s.Patched)
	}
	text += fmt.Sprintf(", %d denied", s.Denied)
	for _, other := range []struct {
		n    int
		what string
	}{{s.Failed, "failed"}, {s.Broken, "broken"}, {s.Skipped, "skipped"}} {
		if other.n > 0 {
			text += fmt.Sprintf(", %d %s", other.n, other.what)
		}
	}
	if s.Warnings > 0 {
		text += ", " + Counted(s.Warnings, "warning")
	}
	if s.Audits > 0 {
		text += ", " + Counted(s.Audits, "audit")
	}
	if s.Ignored > 0 {
		text += ", " + Counted(s.Ignored, "ignored failure")
	}
	if s.Unchecked > 0 {
		text += fmt.Sprintf(", %d that no plugin checked", s.Unchecked)
	}
	if s.EmulatedVersion != "" {
		text += ", as Kubernetes " + s.EmulatedVersion
	}
	return text
}
