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
			Warnings: []Finding{{plugin, "a.example.com", "y", "hm"}}, Audits: []Finding{{plugin, "a.example.com", "z", "oh"}},
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
