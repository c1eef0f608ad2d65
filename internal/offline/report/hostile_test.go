package report

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// hostile is a text with a special meaning for terminals, for GitHub, in YAML and in a diff.
const hostile = "x\n::error ::a\n  ::warning ::b\r::error ::c\r\n##[add-mask]d\x1b]0;e\x07\x1b[2J\u009b31m\u202ef\u2028---\ngoogle: h\n" +
	"--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n<&>]]>\u0085\x7f\U000e0041" +
	"\u200b\u200d\u2060\ufeff\u00ad\u2066\u061c\u3164\uffa0\u115f\u034f\ufe0f\u180b\U000e0100\u00a0\u2003"

// hostileResults have the text in each field that an untrusted user can set.
func hostileResults(t *testing.T) []*Result {
	t.Helper()
	object := func(value any) []byte {
		text, err := json.Marshal(map[string]any{"kind": hostile, "metadata": map[string]any{"name": hostile, hostile: value}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	of := func(decision Decision) *Result {
		texts := []string{hostile, hostile}
		finding := []Finding{
			{Plugin: hostile, Policy: hostile, Binding: hostile, Rule: hostile, Paths: texts, Defaulted: texts, Message: hostile},
			{Message: hostile, Line: 2},
		}
		r := &Result{
			File: hostile, Line: 1, Operation: hostile, APIVersion: hostile, Kind: hostile, Resource: hostile, SubResource: hostile,
			Namespace: hostile,
			Name:      hostile, UID: hostile, User: hostile, Decision: decision,
			Change: hostile, Policy: hostile, Binding: hostile, Reviews: 2, Plugin: hostile, Code: 403, Reason: hostile, Message: hostile,
			PatchedBy: []string{"A"}, FurtherDenials: finding, Warnings: finding, Audits: finding, Ignored: finding,
			Before: object(1), Response: object(3),
		}
		r.Rule, r.Paths, r.Defaulted = hostile, texts, texts
		r.Recorded, r.Notes, r.Explanation = hostile, []string{hostile}, hostileExplanation()
		if decision == Allowed || decision == Patched {
			r.After, r.Plugin, r.Message = object(2), "", ""
		}
		if decision == Patched {
			r.Patch = []byte(`[` + string(object(4)) + `]`)
		}
		return r
	}
	all := []*Result{of(Allowed), of(Patched), of(Denied), of(Failed), of(Broken), of(Skipped), of(Differs)}
	all[0].Created = []*Result{of(Denied), of(Patched)}
	all = append(all, &Result{Decision: Broken, Message: hostile}, &Result{Kind: "::error ::x", Decision: Allowed})
	return all
}

// hostileExplanation has the text in each field of an explanation.
func hostileExplanation() []*admission.Explanation {
	x := admission.Explanation{
		Plugin: hostile, Phase: hostile, Round: 2, Asked: true, Why: hostile, Outcome: hostile, Message: "m" + hostile, Undone: true,
		MorePolicies: 1, Changes: []admission.Change{
			{Operation: hostile, Path: hostile, Old: hostile, New: hostile, Policy: hostile}, {Old: hostile},
			{New: hostile, Webhook: hostile},
		},
		MoreWebhooks: 1, Webhooks: []*admission.WebhookExplanation{
			{Webhook: hostile, Configuration: hostile, Pass: 2, Asked: true, Why: hostile, Outcome: hostile, Message: hostile},
			{Webhook: hostile, Configuration: hostile, Why: hostile, Expressions: []admission.ExpressionExplanation{{Value: hostile}}},
		},
		Standards: []admission.StandardExplanation{
			{Mode: hostile, Standard: hostile, From: hostile, Asked: true, Outcome: hostile, FailedChecks: []string{hostile}},
			{Mode: hostile, Standard: hostile, From: hostile, Why: hostile},
		},
		Policies: []admission.PolicyExplanation{
			{
				Policy: hostile, Binding: hostile, Param: hostile, Pass: 2, Asked: true, Why: hostile, Outcome: hostile, Message: hostile,
				Expressions: []admission.ExpressionExplanation{{
					Field: hostile, Expression: hostile, Value: hostile, MoreValues: 1,
					Values: []admission.SubExpression{{Depth: 1, Expression: hostile, Value: hostile, Of: hostile}},
				}},
			},
			{Policy: hostile, Why: hostile},
		},
	}
	return []*admission.Explanation{&x, {Plugin: hostile, Phase: hostile, Why: hostile}}
}

// checkHarmless fails unless a text can be printed.
func checkHarmless(t *testing.T, format, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.ContainsFunc(line, func(r rune) bool { return !codec.IsPrintable(r) && r != '\t' }) {
			t.Errorf("%s: got characters that are not printable in %q", format, line)
		}
		ours := format == "github" && (strings.HasPrefix(line, "::error file=") || strings.HasPrefix(line, "::warning file=") ||
			strings.HasPrefix(line, "::notice file=") || strings.HasPrefix(line, "::error title=cannot review::"))
		if strings.HasPrefix(strings.TrimSpace(line), "::") && !ours || strings.Contains(line, "##[") {
			t.Errorf("%s: got a workflow command in %q", format, line)
		}
	}
}

func TestHostile(t *testing.T) {
	results := hostileResults(t)
	full := Options{
		Tool: "fastadmit review", Rules: map[string]string{hostile: "about"}, Policies: map[string]string{hostile + "/" + hostile: hostile},
	}
	for _, format := range Formats() {
		for _, options := range []Options{{}, full} {
			text := write(t, format, options, results)
			checkHarmless(t, format, text)
			checkMeaning(t, format, text, results)
		}
		var notes strings.Builder
		w, err := New(format, &notes, full)
		if err == nil {
			err = w.Close(&Summary{PolicyNotes: []PolicyNote{{File: hostile, Line: 1, Message: hostile}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		checkHarmless(t, format, notes.String())
	}
}

// checkMeaning reads the output in a format with other programs' parsers.
func checkMeaning(t *testing.T, format, text string, results []*Result) {
	t.Helper()
	want, err := json.Marshal(results)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Results json.RawMessage }
	switch format {
	case "yaml":
		asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
		if err != nil {
			t.Fatalf("yaml: %v in\n%s", err, text)
		}
		checkMeaning(t, "json", string(asJSON), results)
	case "json":
		if err := json.Unmarshal([]byte(text), &got); err != nil || !sameJSON(t, got.Results, want) {
			t.Errorf("%s: got %v, and other results than %s:\n%s", format, err, want, text)
		}
	case "sarif":
		if !json.Valid([]byte(text)) {
			t.Errorf("sarif: got no JSON: %s", text)
		}
	case "response":
		if lines := strings.Count(text, "\n"); lines != 7 || !sameJSON(t, []byte(strings.SplitN(text, "\n", 2)[0]), results[0].Response) {
			t.Errorf("response: got %d lines, want 7:\n%s", lines, text)
		}
	case "junit":
		decoder := xml.NewDecoder(strings.NewReader(text))
		for {
			if _, err := decoder.Token(); err == io.EOF { //nolint:errorlint // as Token returns it
				break
			} else if err != nil {
				t.Fatalf("junit: %v in\n%s", err, text)
			}
		}
	case "object":
		checkObjects(t, text, results)
	case "diff":
		if from, to := lines(text, "--- "), lines(text, "+++ "); from != 2 || to != 2 || lines(text, "@@ ") != 2 {
			t.Errorf("diff: got %d and %d names of files, want 2 of 2 patches:\n%s", from, to, text)
		}
	}
}

// lines returns how many lines begin with a prefix.
func lines(text, prefix string) (n int) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// checkObjects reads the output of -o object. It expects the objects that would be stored, and
// nothing else.
func checkObjects(t *testing.T, text string, results []*Result) {
	t.Helper()
	var objects [][]byte
	for _, document := range strings.Split(text, "---\n") {
		asJSON, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			t.Errorf("object: %v in\n%s", err, document)
		} else if string(asJSON) != "null" {
			objects = append(objects, asJSON)
		}
	}
	if len(objects) != 2 || !sameJSON(t, objects[0], results[0].After) || !sameJSON(t, objects[1], results[1].After) {
		t.Errorf("object: got %d objects, want 2:\n%s", len(objects), text)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Error(err)
	}
	return reflect.DeepEqual(x, y)
}

func TestHostileTests(t *testing.T) {
	var b strings.Builder
	err := WriteJUnit(&b, "fastadmit test", []TestSuite{{Name: hostile, File: hostile, Output: hostile, Cases: []TestCase{
		{Name: hostile, Took: time.Second, Failure: hostile}, {Name: hostile, Error: hostile},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	checkHarmless(t, "junit", b.String())
	checkMeaning(t, "junit", b.String(), nil)
}
