package review

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/defaults"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// written is the object of a review as somebody wrote it, and with its defaults. For a Pod that a controller creates, it is the
// template. Both are nil for other objects that a controller creates, and if there are no defaults.
type written struct {
	kind                schema.GroupVersionKind
	given, withDefaults []byte

	object *manifest.Object // with the place in its file
	below  string           // the path of the template in the object, with a dot at the end
}

// pod returns the template of Pods at a path. It has no texts if there is none.
func (w written) pod(path string) written {
	if path == "" || w.given == nil {
		return written{}
	}
	pod := written{kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, object: w.object, below: path + "."}
	for _, part := range [...]struct {
		of   []byte
		into *[]byte
	}{{w.given, &pod.given}, {w.withDefaults, &pod.withDefaults}} {
		var object codec.Object
		object.Reset(part.of)
		if template := object.Get(strings.Split(path, ".")...); template.Exists() {
			*part.into = template.AppendJSON(nil)
		}
	}
	return pod
}

// fieldIn finds the field at the beginning of a message, as k8s.io/apimachinery pkg/util/validation/field writes it. Before
// it there may be the object, whose name the user chose: it is quoted, so it cannot pretend to be a field.
var fieldIn = regexp.MustCompile(`^(?:\S+ "(?:[^"\\]|\\.)*" is (?:forbidden|invalid): )?` +
	`\[?([A-Za-z][\w$-]*(?:\.[A-Za-z][\w$-]*|\[[^\]\s]*\])*): ` +
	`(?:Invalid value|Required value|Unsupported value|Duplicate value|Not found|Forbidden|Too long|Too many|Internal error)\b`)

// lineOf returns the last line in the file of the object that has one of its fields, 0 if none has. A policy that looks for
// containers in the places of several kinds finds one of them. That it asks for the kind does not mean that this is wrong.
func (r *reviewer) lineOf(paths []string) (line int) {
	if r.written.object == nil {
		return 0
	}
	for _, path := range paths {
		if path == "kind" || path == "apiVersion" {
			continue
		}
		line = max(line, r.positions.KeyLineOf(r.written.object, r.written.below+path))
	}
	return line
}

// explainCauses fills in the rules, paths, lines and defaulted fields of what plugins said.
func (r *reviewer) explainCauses(review *codec.Review, result *report.Result) {
	var changes *defaults.Changes // as soon as they are needed, once for all findings
	defaulted := func(paths []string) []string {
		if r.written.given == nil || len(paths) == 0 {
			return nil
		}
		if changes == nil {
			changes = defaults.NewChanges(r.written.kind, r.written.given, r.written.withDefaults, review.Object.Root().AppendJSON(nil))
		}
		return changes.Added(paths)
	}
	if result.Decision == report.Denied {
		f := report.Finding{Plugin: result.Plugin, Policy: result.Policy, Binding: result.Binding, Message: result.Message}
		r.blame(&f)
		r.explainCause(&f)
		if causes := review.Response.Status.Details.Causes; len(f.Paths) == 0 && f.Policy == "" {
			for i := range causes {
				if field := causes[i].Field; field != "" && !slices.Contains(f.Paths, field) {
					f.Paths = append(f.Paths, strings.Clone(field))
				}
			}
		}
		result.Policy, result.Binding = f.Policy, f.Binding
		result.Rule, result.Paths, result.Defaulted = f.Rule, f.Paths, defaulted(f.Paths)
		result.FieldLine = r.lineOf(f.Paths)
		r.noteFurtherDenials(result)
	}
	for _, findings := range [...][]report.Finding{result.FurtherDenials, result.Warnings, result.Audits} {
		for i := range findings {
			r.explainCause(&findings[i])
			if f := &findings[i]; len(f.Paths) > 0 {
				f.Defaulted, f.Line = defaulted(f.Paths), cmp.Or(f.Line, r.lineOf(f.Paths))
			}
		}
	}
}

// noteFurtherDenials fills in the denials that the answer does not name.
func (r *reviewer) noteFurtherDenials(result *report.Result) {
	if result.Plugin != policyPlugin {
		return
	}
	named, noted := oneLine(result.Message), make(map[report.FindingKey]bool)
	for i := range r.violations.all {
		v := &r.violations.all[i]
		f := report.Finding{Plugin: policyPlugin, Policy: v.Policy, Binding: v.Binding}
		f.Message = fmt.Sprintf("%s '%s' with binding '%s' denied request: %s", policyPlugin, v.Policy, v.Binding, v.Message)
		if v.Denies && v.Plugin == policyPlugin && !strings.HasSuffix(named, f.Message) && !noted[f.Key()] {
			noted[f.Key()] = true
			result.FurtherDenials = append(result.FurtherDenials, f)
		}
	}
}

// blame fills in the policy of a denial whose message names none, as that of a mutation that makes the object invalid.
func (r *reviewer) blame(f *report.Finding) {
	if f.Policy != "" {
		return
	}
	said := oneLine(f.Message)
	for i := range r.violations.all {
		if v := &r.violations.all[i]; v.Plugin == f.Plugin && v.Denies && v.Message == said {
			f.Policy, f.Binding, f.Rule = v.Policy, v.Binding, v.Rule
			return
		}
	}
}

// explainCause fills in the rule and the paths of a finding.
func (r *reviewer) explainCause(f *report.Finding) {
	if f.Policy == "" {
		if match := fieldIn.FindStringSubmatch(f.Message); match != nil {
			f.Paths = []string{match[1]}
		} else if f.Plugin == podSecurityPlugin {
			f.Paths = r.podSecurityPaths(f.Message)
		}
		return
	}
	said := oneLine(f.Message)
	for _, i := range r.violations.of[policyBinding{f.Policy, f.Binding}] {
		v := &r.violations.all[i]
		if before, ok := strings.CutSuffix(said, v.Message); !ok || !strings.HasSuffix(before, ": ") {
			continue
		}
		if f.Rule != "" && f.Rule != v.Rule { // two rules have the same message
			f.Rule, f.Paths = "", nil
			return
		}
		f.Rule, f.Paths = v.Rule, v.Paths
	}
}

// oneLine returns a message as a warning has it (codec.Response.Warn).
func oneLine(message string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, message))
}

// noteFields adds kube-apiserver's warnings of fields that the kind of an object does not have. It returns false if
// kube-apiserver cannot decode the object, and refuses it before it asks plugins. The object is text, and in its file it is
// at a place in another one.
func (r *reviewer) noteFields(kind schema.GroupVersionKind, text []byte, at written, result *report.Result) bool {
	fields, path, err := r.defaults.Check(kind, text)
	if err != nil {
		result.Decision, result.Message = report.Broken, "kube-apiserver cannot decode the object: "+err.Error()
		result.APIVersion, result.Kind = kind.GroupVersion().String(), kind.Kind
		result.Line = r.positions.LineOf(at.object, at.below+path)
		return false
	}
	for _, unknown := range fields {
		f := report.Finding{
			Paths: []string{unknown.Path}, Message: fmt.Sprintf("unknown field %q%s", unknown.Path, unknown.Hint()),
		}
		if line := r.positions.LineOf(at.object, at.below+unknown.Path); line != at.object.Line {
			f.Line = line
		}
		result.Warnings = append(result.Warnings, f)
	}
	return true
}

// refusesPatch reports whether kube-apiserver cannot decode the object that plugins have patched, and says so in the result. It refuses
// the request then, whatever the failurePolicy of the webhook. kind is empty for an AdmissionReview.
func (r *reviewer) refusesPatch(kind schema.GroupVersionKind, review *codec.Review, result *report.Result) bool {
	if kind.Empty() {
		return false
	}
	_, _, err := r.defaults.Check(kind, review.Object.Root().AppendJSON(nil))
	if err == nil {
		return false
	}
	result.Plugin, result.PatchedBy = strings.Join(result.PatchedBy, ", "), nil
	result.Decision = report.Failed
	result.Message = fmt.Sprintf("kube-apiserver cannot decode the object that %s patched: %v", result.Plugin, err)
	return true
}

// refuses reports whether kube-apiserver refuses the object of a review because of a CustomResourceDefinition, and says so in the
// result. As kube-apiserver, it looks at the object that mutating plugins left, and before others validate it.
func (r *reviewer) refuses(kind schema.GroupVersionKind, review *codec.Review, result *report.Result) bool {
	if !r.UnknownFields || !r.defaults.Defines(kind) || review.Operation() == codec.Delete {
		return false
	}
	var old []byte
	if review.Operation() == codec.Update && len(r.Old) > 0 { // otherwise, it is the object itself
		old = review.OldObject.Root().AppendJSON(nil)
	}
	refusal := r.defaults.Validate(kind, review.Object.Root().AppendJSON(nil), old)
	if refusal == nil {
		return false
	}
	result.Decision, result.Message = report.Broken, "kube-apiserver refuses the object: "+refusal.Message
	if r.source != nil {
		result.Line = r.positions.LineOf(r.source, refusal.Path)
	}
	return true
}

// noteViolation is for admission.WithViolations.
func (r *reviewer) noteViolation(v admission.Violation) {
	v.Message = oneLine(v.Message)
	if v.Ignored {
		f := report.Finding{Plugin: v.Plugin, Policy: v.Policy, Binding: v.Binding, Rule: v.Rule, Paths: v.Paths, Line: r.lineOf(v.Paths)}
		with := ""
		if v.Binding != "" {
			with = fmt.Sprintf(" with binding '%s'", v.Binding)
		}
		f.Message = fmt.Sprintf("%s '%s'%s cannot be evaluated, and its failurePolicy is Ignore: %s", v.Plugin, v.Policy, with, v.Message)
		if v.Policy == "" {
			f.Message = "allowed without an answer, as its configuration says: " + v.Message
		}
		if r.ignored == nil {
			r.ignored = make(map[report.FindingKey]bool)
		}
		if !r.ignored[f.Key()] { // not for another parameter
			r.ignored[f.Key()] = true
			r.result.Ignored = append(r.result.Ignored, f)
		}
		return
	}
	r.violations.add(v)
}

// noteAudits fills in the messages of denials that are audit annotations only.
func noteAudits(response *codec.Response, result *report.Result) {
	for i := range result.Audits {
		f := &result.Audits[i]
		*f = newFinding(f.Plugin, strings.TrimPrefix(strings.Clone(response.Annotation(f.Plugin)), "audited: "))
	}
	text := response.Annotation(violationsKey)
	if text == "" {
		return
	}
	var violations []struct {
		Message           string   `json:"message"`
		Policy            string   `json:"policy"`
		Binding           string   `json:"binding"`
		ValidationActions []string `json:"validationActions"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &violations); err != nil {
		result.Audits = append(result.Audits, report.Finding{Plugin: policyPlugin, Message: "the audit annotation is too long to be read: " + err.Error()})
		return
	}
	for _, v := range violations {
		if len(v.ValidationActions) > 1 {
			continue // Warn or Deny has said it
		}
		// The message is that of a warning.
		message := fmt.Sprintf("Validation failed for %s '%s' with binding '%s': %s", policyPlugin, v.Policy, v.Binding, v.Message)
		result.Audits = append(result.Audits, report.Finding{Plugin: policyPlugin, Policy: v.Policy, Binding: v.Binding, Message: message})
	}
}

// violationsKey is the audit annotation of policyPlugin with the violations of bindings that have the action Audit.
const (
	policyPlugin  = "ValidatingAdmissionPolicy"
	violationsKey = "validation_failure"
)

// violations are those of an object, in the order in which they were found.
type violations struct {
	all []admission.Violation
	of  map[policyBinding][]int // indexes of all
}

type policyBinding struct{ policy, binding string }

func (v *violations) add(one admission.Violation) {
	if v.of == nil {
		v.of = make(map[policyBinding][]int)
	}
	key := policyBinding{one.Policy, one.Binding}
	v.of[key] = append(v.of[key], len(v.all))
	v.all = append(v.all, one)
}
