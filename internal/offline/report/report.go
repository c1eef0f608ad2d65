// Package report writes the results of reviews, as text or in the formats that pipelines,
// editors and code hosts read.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
)

// Decision is the result of reviewing an object.
type Decision string

// The decisions.
const (
	Allowed Decision = "allowed"
	Patched Decision = "patched" // allowed, and changed
	Denied  Decision = "denied"
	Failed  Decision = "failed"  // a plugin could not decide, and its failure policy is Fail
	Broken  Decision = "broken"  // the object cannot be reviewed
	Skipped Decision = "skipped" // the object was not reviewed, for example because of an option
	Differs Decision = "differs" // the answer differs from the recorded one, or from that of another configuration
)

// Result is the result of reviewing one object. The JSON names are those of -o json.
type Result struct {
	File        string `json:"file,omitempty"` // empty for an object that a controller creates
	Line        int    `json:"line,omitempty"`
	Operation   string `json:"operation,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Kind        string `json:"kind,omitempty"`
	Resource    string `json:"resource,omitempty"` // plural
	SubResource string `json:"subResource,omitempty"`
	Namespace   string `json:"namespace,omitempty"` // empty for cluster-scoped objects
	// Name is the name of the object. It ends with "*" if the API server will generate
	// it.
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"` // of an existing object of a cluster, or of the differing review
	// User is the user of the request, if it is not the one of the options.
	User string `json:"user,omitempty"`

	Decision Decision `json:"decision"`
	Plugin   string   `json:"plugin,omitempty"` // the plugin that denied or failed
	// Policy and Binding are those of the denial, if the plugin evaluates policies. Policy is also the policy that is the
	// cause if the Decision is Differs.
	Policy  string `json:"policy,omitempty"`
	Binding string `json:"binding,omitempty"`
	// Rule, Paths and Defaulted are those of the denial, see Finding.
	Rule      string   `json:"rule,omitempty"`
	Paths     []string `json:"paths,omitempty"`
	Defaulted []string `json:"defaulted,omitempty"`
	// FieldLine is the line of the denial, as Line of a Finding.
	FieldLine int    `json:"fieldLine,omitempty"`
	Code      int32  `json:"code,omitempty"`   // HTTP status of a denial
	Reason    string `json:"reason,omitempty"` // metav1.StatusReason of a denial
	Message   string `json:"message,omitempty"`

	// FurtherDenials are those of other rules. The answer to kube-apiserver does not name them, and they count for nothing
	// but their policies.
	FurtherDenials []Finding `json:"furtherDenials,omitempty"`
	// Unrendered is true if the object was skipped because a program must render it first, such as a Helm chart.
	Unrendered bool `json:"unrendered,omitempty"`
	// UnknownKind is true if the object is broken because its kind is unknown.
	UnknownKind bool `json:"-"`

	// PatchedBy are the plugins that changed the object, also if it was denied later.
	PatchedBy []string        `json:"patchedBy,omitempty"`
	Patch     json.RawMessage `json:"patch,omitempty"` // RFC 6902
	Warnings  []Finding       `json:"warnings,omitempty"`
	Audits    []Finding       `json:"audits,omitempty"`  // denials that are audit annotations only
	Ignored   []Finding       `json:"ignored,omitempty"` // failures of plugins and policies whose failure policy is Ignore
	// Unchecked is true if no enabled plugin checked the object: it is allowed because nobody looked.
	// LeftOut says why plugins did not check it, although their rules select it.
	Unchecked bool      `json:"unchecked,omitempty"`
	LeftOut   []Finding `json:"leftOut,omitempty"`
	CheckedBy []string  `json:"-"` // the plugins that checked it

	// Reviews is the number of reviews that differ in the same way, if the Decision is Differs. Change
	// says how they differ.
	Reviews int    `json:"reviews,omitempty"`
	Change  string `json:"change,omitempty"`
	// Tolerated says that the command does not fail because of the difference.
	Tolerated bool `json:"tolerated,omitempty"`

	// Recorded is the recorded answer of a review that replay --explain repeated, if it is another one. Notes say what
	// may be the reason.
	Recorded string   `json:"recorded,omitempty"`
	Notes    []string `json:"notes,omitempty"`

	// Explanation says what each plugin did with the object, and why, in the order of their calls. It is there with
	// --explain only.
	Explanation []*admission.Explanation `json:"explanation,omitempty"`

	// PodTemplate is the path of what seems to be a template of Pods, if these are not reviewed because the kind is unknown.
	PodTemplate string `json:"-"`
	// MakesPods is true if Pods are not reviewed because no path can name their template.
	MakesPods bool `json:"-"`
	// Created are the results of objects that controllers create for this object.
	Created []*Result `json:"created,omitempty"`

	// Against is the result of the same review by other plugins, to compare with. It is nil if there are
	// none.
	Against *Result `json:"-"`

	Before   []byte `json:"-"` // the object before the plugins, as JSON
	After    []byte `json:"-"` // the object as it would be stored; nil unless it was allowed
	Response []byte `json:"-"` // the AdmissionReview with the response
}

// Finding is a message of a plugin that is not the reason of the decision.
type Finding struct {
	Plugin string `json:"plugin,omitempty"` // empty if it is unknown
	// Policy and Binding are set if the plugin evaluates policies.
	Policy  string `json:"policy,omitempty"`
	Binding string `json:"binding,omitempty"`
	// Rule is the rule of the policy that the object violates, such as validations[0]. It is empty if it is unknown.
	Rule string `json:"rule,omitempty"`
	// Paths are the fields of the object that the message begins with, as Kubernetes' errors of fields do, or that the CEL
	// expression of the rule names. "[*]" stands for each element of a list or a map.
	Paths []string `json:"paths,omitempty"`
	// Defaulted are the fields in Paths that the file does not have and that have Kubernetes' default.
	Defaulted []string `json:"defaulted,omitempty"`
	// Line is the line of the last one of Paths that is in the file of the object, or of an unknown field. It is 0 if there is none.
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// A FindingKey is equal for findings with the same message of the same plugin, policy and binding.
type FindingKey struct{ plugin, policy, binding, message string }

// Key returns the key of the finding.
func (f *Finding) Key() FindingKey { return FindingKey{f.Plugin, f.Policy, f.Binding, f.Message} }

// Default says which of a finding's fields have Kubernetes' default, "" if none does.
func Default(defaulted []string) string {
	switch len(defaulted) {
	case 0:
		return ""
	case 1:
		return defaulted[0] + " is not in the manifest: it has its default value"
	}
	return strings.Join(defaulted, ", ") + " are not in the manifest: they have their default values"
}

// Object returns the kind, namespace and name of the object, for messages.
func (r *Result) Object() string {
	kind, name := r.Kind, r.Name
	if r.SubResource != "" {
		kind += " of " + r.Resource + "/" + r.SubResource
	}
	if r.Namespace != "" && r.Kind != "Namespace" {
		name = r.Namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

// Location returns the file and line of the object, such as "a.yaml:3", or "" if it is not
// from a file.
func (r *Result) Location() string {
	switch {
	case r.File == "":
		return ""
	case r.Line == 0:
		return r.File
	}
	return fmt.Sprintf("%s:%d", r.File, r.Line)
}

// Reported returns a finding for messages, with its place in the file if it has one.
func (r *Result) Reported(f *Finding) string {
	switch {
	case f.Line == 0:
		return f.String()
	case r.File == "": // of an object that a controller creates: the file is that of the workload
		return fmt.Sprintf("line %d: %s", f.Line, f)
	}
	return fmt.Sprintf("%s:%d: %s", r.File, f.Line, f)
}

// Said returns the decision with its reason, for messages.
func (r *Result) Said() string {
	switch r.Decision {
	case Differs:
		return r.Differing() + ", as here: " + r.Message
	case Denied:
		status := r.Reason
		if r.Code != 0 {
			status = strings.TrimSpace(fmt.Sprintf("%d %s", r.Code, r.Reason))
		}
		by := r.Plugin
		if !strings.Contains(r.Message, r.Policy) {
			by = titleOf(r.Plugin, r.Policy)
		}
		return fmt.Sprintf("denied by %s (%s): %s", by, status, r.Message) + r.changedBefore()
	case Patched:
		return "allowed, patched by " + strings.Join(r.PatchedBy, ", ")
	case Allowed:
		return string(Allowed)
	}
	return fmt.Sprintf("%s: %s", r.Decision, r.Message)
}

// changedBefore says which plugins changed a denied object: the denial may be about what they wrote.
func (r *Result) changedBefore() string {
	if r.Decision != Denied || len(r.PatchedBy) == 0 {
		return ""
	}
	return " (" + strings.Join(r.PatchedBy, ", ") + " changed the object before)"
}

// Differing returns a title for messages: how many reviews differ, how, and the plugin or policy that is
// the cause.
func (r *Result) Differing() string {
	text := Counted(r.Reviews, "review") + ", " + r.Change
	if r.Reviews == 1 {
		text = strings.Replace(text, "review,", "review differs,", 1)
	} else {
		text = strings.Replace(text, "reviews,", "reviews differ,", 1)
	}
	by := r.Plugin
	if r.Policy != "" {
		by = strings.TrimSpace(by + " " + r.Policy)
	}
	if by != "" {
		text += " by " + by
	}
	return text
}

// Walk calls visit for the result and, recursively, for its Created. depth is 0 for r.
func (r *Result) Walk(visit func(r *Result, depth int)) { r.walk(0, visit) }

func (r *Result) walk(depth int, visit func(r *Result, depth int)) {
	visit(r, depth)
	for _, created := range r.Created {
		created.walk(depth+1, visit)
	}
}

// IsNews reports whether the result or one of its Created has findings, must be rendered first, or has a decision other
// than Allowed, Patched and Skipped.
func (r *Result) IsNews() (news bool) {
	r.Walk(func(r *Result, _ int) {
		isAllowed := r.Decision == Allowed || r.Decision == Patched || r.Decision == Skipped
		news = news || !isAllowed || r.Unrendered || len(r.Warnings)+len(r.Audits)+len(r.Ignored) > 0
	})
	return news
}

// IsUnchecked reports whether no plugin checked the object or one of its Created.
func (r *Result) IsUnchecked() bool {
	unchecked := true
	r.Walk(func(r *Result, _ int) { unchecked = unchecked && r.Unchecked })
	return unchecked
}

// AllLeftOut returns why plugins did not check the object and its Created, each reason once. It
// returns none if one of them was checked.
func (r *Result) AllLeftOut() (all []Finding) {
	if !r.IsUnchecked() {
		return nil
	}
	noted := make(map[FindingKey]bool)
	r.Walk(func(r *Result, _ int) {
		for i := range r.LeftOut {
			if f := &r.LeftOut[i]; !noted[f.Key()] {
				noted[f.Key()] = true
				all = append(all, *f)
			}
		}
	})
	return all
}

// Counted returns a number with a noun, such as "2 reviews".
func Counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Writer writes results in a format.
type Writer interface {
	// Write writes a result and its Created.
	Write(r *Result) error
	// Close completes the output. It does not close the underlying io.Writer.
	Close(s *Summary) error
}

// Options configure formats.
type Options struct {
	Color   bool   // color the format text with ANSI escape sequences
	Quiet   bool   // the format text shows only results for which IsNews is true
	Tool    string // name of the command in SARIF and JUnit, such as "fastadmit review"
	Version string // of the tool
	// Rules are the summaries of the plugins by name, for SARIF. Policies are the texts of policies, by the
	// names of their plugin and of themselves, as in ValidatingAdmissionPolicy/replicas.example.com.
	Rules, Policies map[string]string
}

// Formats returns the names of all formats.
func Formats() []string {
	names := make([]string, len(formats))
	for i := range formats {
		names[i] = formats[i].name
	}
	return names
}

var formats = []struct {
	name string
	make func(w io.Writer, o *Options) Writer
	// exact formats get the unescaped texts and escape them themselves.
	exact bool
}{
	{"text", newText, false},
	{"json", newJSON, true},
	{"yaml", newYAML, true},
	{"junit", newJUnit, false},
	{"sarif", newSARIF, true},
	{"github", newGitHub, false},
	{"html", newHTML, false},
	{"object", newObject, false},
	{"diff", newDiff, false},
	{"response", newResponse, true},
}

// New returns a Writer that writes a format to w. It returns an error if the format is
// unknown.
func New(format string, w io.Writer, o Options) (Writer, error) {
	for i := range formats {
		if f := &formats[i]; f.name == format {
			writer := f.make(w, &o)
			if !f.exact {
				writer = cleaning{writer}
			}
			return writer, nil
		}
	}
	return nil, fmt.Errorf("got %q, want one of %s", format, strings.Join(Formats(), ", "))
}

// NeedsObjects reports whether a format shows Before and After of results.
func NeedsObjects(format string) bool { return slices.Contains([]string{"object", "diff"}, format) }

// NeedsResponse reports whether a format shows Response of results.
func NeedsResponse(format string) bool { return format == "response" }
