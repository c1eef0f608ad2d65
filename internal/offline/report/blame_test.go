package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestBlame(t *testing.T) {
	f := func(plugin, message, policy, binding string) {
		t.Helper()
		if gotPolicy, gotBinding := Blame(plugin, message); gotPolicy != policy || gotBinding != binding {
			t.Errorf("%s: got %q and %q, want %q and %q", message, gotPolicy, gotBinding, policy, binding)
		}
	}
	const validating, mutating = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
	f(validating, "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no", "p", "b")
	f(validating, `deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`, "p", "b")
	f(validating, "ValidatingAdmissionPolicy 'p' denied request: no", "p", "")
	const pods = `Pods of deployments.apps "ValidatingAdmissionPolicy 'q' denied request: " would be denied: pods "web-*" is forbidden: `
	f(validating, pods+"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "p", "b")
	f(mutating, "policy 'p' with binding 'b' denied request: no", "p", "b")
	f(mutating, `policy "p" denied request: no`, "p", "")
	f(validating, "something else", "", "")
	// Users choose names of objects, and texts of other plugins.
	const pretends = `pods "x is forbidden: ValidatingAdmissionPolicy 'q' with binding 'c' denied request: \"" is forbidden: `
	f(validating, pretends+"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "p", "b")
	f(validating, pretends+"no", "", "")
	f("Other", "ValidatingAdmissionPolicy 'p' denied request: no", "", "")
}

// TestPolicies has findings of policies in all formats that name them.
func TestPolicies(t *testing.T) {
	const plugin = "ValidatingAdmissionPolicy"
	pod := func(name string) *Result {
		return &Result{
			File: "a.yaml", Line: 1, Kind: "Pod", Name: name, Decision: Denied, Plugin: plugin, Policy: "b.example.com", Binding: "x",
			Message:  "no",
			Warnings: []Finding{{Plugin: plugin, Policy: "a.example.com", Binding: "y", Message: "hm"}},
			Audits:   []Finding{{Plugin: plugin, Policy: "a.example.com", Binding: "z", Message: "oh"}},
		}
	}
	all := []*Result{pod("one"), pod("two")}
	o := Options{Policies: map[string]string{plugin + "/b.example.com": "kind: P\n```\n"}, Rules: map[string]string{plugin: "evaluates"}}
	const totals = plugin + " a.example.com: 2 warned, 2 audited\n" + plugin + " b.example.com: 2 denied\n2 objects: "
	if got := write(t, "text", o, all); !strings.Contains(got, totals) {
		t.Errorf("got\n%s\nwant\n%s", got, totals)
	}
	one := []*Result{{Kind: "Pod", Name: "one", Decision: Denied, Plugin: plugin, Policy: "b.example.com", Message: "no"}}
	if got := write(t, "text", o, one); strings.Contains(got, plugin+" b.example.com:") {
		t.Errorf("got\n%s\nwant no counts of a single policy", got)
	}
	var report struct{ Summary Summary }
	want := []PolicyCount{{plugin, "a.example.com", 0, 2, 2}, {plugin, "b.example.com", 2, 0, 0}}
	if err := json.Unmarshal([]byte(write(t, "json", o, all)), &report); err != nil || !reflect.DeepEqual(report.Summary.Policies, want) {
		t.Errorf("got %v, %+v, want %+v", err, report.Summary.Policies, want)
	}
	github := write(t, "github", o, all)
	for _, title := range []string{
		"::error file=a.yaml,line=1,title=ValidatingAdmissionPolicy b.example.com denies Pod one::no\n",
		"::warning file=a.yaml,line=1,title=ValidatingAdmissionPolicy a.example.com warns of Pod one::hm\n",
		"::notice file=a.yaml,line=1,title=ValidatingAdmissionPolicy a.example.com audits Pod one::oh\n",
	} {
		if !strings.Contains(github, title) {
			t.Errorf("got\n%s\nwant %s", github, title)
		}
	}
	sarif := write(t, "sarif", o, all)
	for _, part := range []string{
		`"ruleId": "ValidatingAdmissionPolicy/b.example.com"`, `"id": "ValidatingAdmissionPolicy/a.example.com"`,
		`"text": "kind: P\n` + "```" + `\n"`, `"markdown": "` + "```yaml\\nkind: P\\n` ` `\\n\\n```" + `\n"`,
	} {
		if !strings.Contains(sarif, part) {
			t.Errorf("got\n%s\nwant %s", sarif, part)
		}
	}
	if got := write(t, "junit", o, all); !strings.Contains(got, "audit: ValidatingAdmissionPolicy: oh") {
		t.Errorf("got\n%s", got)
	}
}

// TestIsSame has findings that two policies and two bindings make with the same message.
func TestIsSame(t *testing.T) {
	all := []Finding{
		{Plugin: "P", Message: "no"}, {Plugin: "Q", Message: "no"}, {Plugin: "P", Message: "yes"},
		{Plugin: "P", Policy: "p", Message: "no"}, {Plugin: "P", Policy: "q", Message: "no"},
		{Plugin: "P", Policy: "q", Binding: "b", Message: "no"},
	}
	for i, a := range all {
		for j, b := range all {
			b.Rule, b.Paths = "r", []string{"spec"}
			if got := (a.Key() == b.Key()); got != (i == j) {
				t.Errorf("%+v and %+v: got %v", a, b, got)
			}
		}
	}
}

// TestCauses has findings of which the rule and the fields are known, in all formats that show them.
func TestCauses(t *testing.T) {
	const one, two = "a is not in the manifest: it has its default value", "a, b are not in the manifest: they have their default values"
	of := func(n int) []string { return []string{"a", "b"}[:n] }
	all := []*Result{{
		File: "a.yaml", Line: 1, Kind: "Pod", Name: "x", Decision: Denied, Plugin: "P", Policy: "p", Binding: "b", Rule: "validations[1]",
		Paths: of(2), Defaulted: of(1), Code: 422, Message: "no",
		Warnings: []Finding{{Plugin: "Q", Paths: of(2), Defaulted: of(2), Message: "hm"}},
		Audits:   []Finding{{Plugin: "R", Rule: "r", Message: "oh"}, {Plugin: "S", Message: "ah"}},
	}}
	f := func(format string, want ...string) {
		t.Helper()
		got := write(t, format, Options{}, all)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%s: got\n%s\nwant %q", format, got, text)
			}
		}
	}
	all[0].Warnings[0].Line = 7
	f("text", "(422): no\n  default: "+one+"\n  warning: a.yaml:7: Q: hm\n    default: "+two+"\n  audit: R: oh\n")
	f("github", "denies Pod x::no ("+one+") [validations[1], a, b]\n",
		"::warning file=a.yaml,line=7,title=Q warns of Pod x::hm ("+two+")\n", "audits Pod x::oh [r]\n")
	f("junit", `type="P/p"`, "no (a is not in the manifest: it has its default value) [validations[1], a, b]</failure>",
		"warning: a.yaml:7: Q: hm (a, b are not")
	f("yaml", "  defaulted:\n  - a\n", "  rule: validations[1]\n")
	var got struct {
		Runs []struct{ Results []sarifResult }
	}
	if err := json.Unmarshal([]byte(write(t, "sarif", Options{}, all)), &got); err != nil {
		t.Fatal(err)
	}
	want := []*about{{"b", "validations[1]", of(2), of(1)}, {"", "", of(2), of(2)}, {Rule: "r"}, nil}
	for i, r := range got.Runs[0].Results {
		if !reflect.DeepEqual(r.Properties, want[i]) {
			t.Errorf("sarif: got %+v, want %+v", r.Properties, want[i])
		}
		if got, want := r.Locations[0].Physical.Region.StartLine, []int{1, 7, 1, 1}[i]; got != want {
			t.Errorf("sarif: got the line %d, want %d", got, want)
		}
	}
}
