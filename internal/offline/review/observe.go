package review

import (
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// observe notes what a plugin did.
func (r *reviewer) observe(name string, run admission.Run) {
	switch run.Outcome {
	case admission.OutcomePatched:
		if !slices.Contains(r.result.PatchedBy, name) {
			r.result.PatchedBy = append(r.result.PatchedBy, name)
		}
	case admission.OutcomeDenied:
		r.result.Plugin = name
	case admission.OutcomeErrored, admission.OutcomePanicked:
		r.result.Ignored = append(r.result.Ignored, report.Finding{Plugin: name, Message: strings.Clone(run.Err.Error())})
	case admission.OutcomeAudited:
		r.result.Audits = append(r.result.Audits, report.Finding{Plugin: name})
	}
	switch run.Unchecked {
	case "":
		r.checked = true
		if !slices.Contains(r.result.CheckedBy, name) {
			r.result.CheckedBy = append(r.result.CheckedBy, name)
		}
	case admission.NotSelected:
	default:
		r.leaveOut(report.Finding{Plugin: name, Message: run.Unchecked})
	}
	r.noteWarnings(name)
}

// leaveOut notes that a plugin did not check the object, and why.
func (r *reviewer) leaveOut(f report.Finding) {
	if !slices.ContainsFunc(r.result.LeftOut, func(known report.Finding) bool { return known.Key() == f.Key() }) {
		r.result.LeftOut = append(r.result.LeftOut, f)
	}
}

// noteWarnings attributes the warnings that came since the last call.
func (r *reviewer) noteWarnings(plugin string) {
	warnings := r.current.Response.Warnings()
	for r.told = min(r.told, len(warnings)); r.told < len(warnings); r.told++ {
		name, text := plugin, strings.Clone(warnings[r.told])
		for _, known := range r.names {
			if message, ok := strings.CutPrefix(text, known+": "); ok { // a denial that is enforced as a warning
				name, text = known, message
			}
		}
		r.result.Warnings = append(r.result.Warnings, newFinding(name, text))
	}
}

// newFinding returns a message of a plugin, with the policy that it names.
func newFinding(plugin, message string) report.Finding {
	f := report.Finding{Plugin: plugin, Message: message}
	f.Policy, f.Binding = report.Blame(plugin, message)
	return f
}
