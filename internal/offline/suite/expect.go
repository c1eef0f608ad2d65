package suite

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// Expect is the expected result of a case. Fields that are not set are not compared.
type Expect struct {
	// Decision is allowed (with or without a change), patched (allowed and changed),
	// denied or failed. It may be empty if there are Policies or a WholeObject.
	Decision string `json:"decision"`
	Plugin   string `json:"plugin,omitempty"` // the plugin that denied or failed
	Policy   string `json:"policy,omitempty"` // the policy that denied
	Code     *int32 `json:"code,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Message is the message of a denial or failure.
	Message *Text `json:"message,omitempty"`
	// Warnings are all warnings, in any order. An empty list expects no warnings.
	Warnings *[]Text `json:"warnings,omitempty"`
	// AuditAnnotations are expected audit annotations, without the name of the webhook.
	// There may be others.
	AuditAnnotations map[string]Text `json:"auditAnnotations,omitempty"`
	// Patch is the JSON Patch (RFC 6902).
	Patch *[]json.RawMessage `json:"patch,omitempty"`
	// Object is a part of the object as it would be stored. The object may have other
	// fields. Lists must be equal. A field that is null must not exist.
	Object json.RawMessage `json:"object,omitempty"`
	// WholeObject is the object as it would be stored, or a file with objects, of which the one with
	// the same kind, namespace and name is compared. Nulls and empty maps and lists do not matter.
	WholeObject Given `json:"wholeObject"`
	// Policies are expected outcomes of single policies, whatever the decision is.
	Policies []PolicyExpect `json:"policies,omitempty"`
}

// compare returns the differences between a result, with its Created, and the expected
// result.
func (e *Expect) compare(root *report.Result) (differences []string) {
	differ := func(what string, got, want any) {
		differences = append(differences, fmt.Sprintf("%s:\n- want %v\n+ got  %v", what, want, got))
	}
	decisive, warnings := root, []string(nil)
	root.Walk(func(r *report.Result, _ int) {
		if isAllowed(decisive) {
			decisive = r
		}
		for _, w := range r.Warnings {
			warnings = append(warnings, w.Message)
		}
	})
	if isAllowed(decisive) {
		decisive = root
	}
	isWanted := e.Decision == "" || e.Decision == string(report.Allowed) && isAllowed(decisive)
	if got := string(decisive.Decision); got != e.Decision && !isWanted {
		shown := got
		if text := decisive.Said(); text != got {
			shown = text
		}
		differ("decision", shown, e.Decision)
		return differences // the rest would only repeat it
	}
	for _, field := range [...]struct{ name, got, want string }{
		{"plugin", decisive.Plugin, e.Plugin}, {"policy", decisive.Policy, e.Policy}, {"reason", decisive.Reason, e.Reason},
	} {
		if field.want != "" && field.got != field.want {
			differ(field.name, fmt.Sprintf("%q", field.got), fmt.Sprintf("%q", field.want))
		}
	}
	if e.Code != nil && *e.Code != decisive.Code {
		differ("code", decisive.Code, *e.Code)
	}
	if e.Message != nil && !e.Message.is(decisive.Message) {
		differ("message", fmt.Sprintf("%q", decisive.Message), e.Message)
	}
	if e.Warnings != nil {
		differences = append(differences, compareWarnings(warnings, *e.Warnings)...)
	}
	for i := range e.Policies {
		differences = append(differences, e.Policies[i].compare(root)...)
	}
	differences = append(differences, e.compareAnnotations(root)...)
	return append(differences, e.compareObject(root)...)
}

func isAllowed(r *report.Result) bool {
	return r.Decision == report.Allowed || r.Decision == report.Patched
}

// compareWarnings gives each expected text a warning of its own, in whatever order they are.
func compareWarnings(got []string, want []Text) (differences []string) {
	const nobody = -1
	takers := slices.Repeat([]int{nobody}, len(got)) // indexes of want
	// take finds a warning for an expected text. The one who has it takes another one, if that
	// is possible.
	var take func(i int, tried []bool) bool
	take = func(i int, tried []bool) bool {
		for at, warning := range got {
			if tried[at] || !want[i].is(warning) {
				continue
			}
			tried[at] = true
			if takers[at] == nobody || take(takers[at], tried) {
				takers[at] = i
				return true
			}
		}
		return false
	}
	for i := range want {
		if !take(i, make([]bool, len(got))) {
			differences = append(differences, fmt.Sprintf("warnings:\n- want %s\n+ got  %q", &want[i], got))
		}
	}
	for at, warning := range got {
		if takers[at] == nobody {
			differences = append(differences, fmt.Sprintf("warnings:\n- want no other\n+ got  %q", warning))
		}
	}
	return differences
}

func (e *Expect) compareAnnotations(r *report.Result) (differences []string) {
	if e.AuditAnnotations == nil {
		return nil
	}
	var review struct {
		Response struct {
			AuditAnnotations map[string]string `json:"auditAnnotations"`
		} `json:"response"`
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(r.Response, &review) // we wrote it; nothing means no annotations
	got := review.Response.AuditAnnotations
	for _, key := range slices.Sorted(maps.Keys(e.AuditAnnotations)) {
		want := e.AuditAnnotations[key]
		if value, ok := got[key]; !ok {
			differences = append(differences, fmt.Sprintf("auditAnnotations: %s:\n- want %s\n+ got  none of that key, but %q", key, &want,
				slices.Sorted(maps.Keys(got))))
		} else if !want.is(value) {
			differences = append(differences, fmt.Sprintf("auditAnnotations: %s:\n- want %s\n+ got  %q", key, &want, value))
		}
	}
	return differences
}

func (e *Expect) compareObject(r *report.Result) (differences []string) {
	if e.Patch != nil {
		var got []json.RawMessage
		if r.Patch != nil {
			_ = kjson.UnmarshalCaseSensitivePreserveInts(r.Patch, &got) // we wrote it
		}
		if !reflect.DeepEqual(values(got), values(*e.Patch)) {
			differences = append(differences, "patch:\n"+unified(asYAML(*e.Patch), asYAML(got)))
		}
	}
	if e.Object != nil {
		var want, got any
		_ = kjson.UnmarshalCaseSensitivePreserveInts(e.Object, &want) // it was decoded with the suite
		_ = kjson.UnmarshalCaseSensitivePreserveInts(r.After, &got)   // we wrote it
		if expected := overlaid(want, got); !reflect.DeepEqual(expected, got) {
			differences = append(differences, "object:\n"+unified(asYAML(expected), asYAML(got)))
		}
	}
	return differences
}

// overlaid returns got with the fields of want in place of its own. Fields that want does
// not have stay.
func overlaid(want, got any) any {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		if !ok {
			fields = nil
		}
		all := maps.Clone(fields)
		if all == nil {
			all = make(map[string]any)
		}
		for name, value := range want {
			if value == nil {
				delete(all, name)
				continue
			}
			all[name] = overlaid(value, fields[name])
		}
		return all
	case []any:
		elements, _ := got.([]any)
		all := make([]any, len(want))
		for i := range want {
			var element any
			if i < len(elements) {
				element = elements[i]
			}
			all[i] = overlaid(want[i], element)
		}
		return all
	}
	return want
}

func values(texts []json.RawMessage) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		_ = kjson.UnmarshalCaseSensitivePreserveInts(text, &all[i]) // they were decoded before
	}
	return all
}

func asYAML(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

func unified(want, got string) string {
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: slices.Collect(strings.Lines(want)), FromFile: "want", B: slices.Collect(strings.Lines(got)), ToFile: "got", Context: 3,
	})
	if err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(text, "\n")
}
