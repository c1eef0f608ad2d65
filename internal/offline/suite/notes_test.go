package suite

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// noted runs suites, and returns an error text unless it gets all notes.
func noted(t *testing.T, r *Runner, names []string, want ...string) {
	t.Helper()
	var files []File
	for _, name := range names {
		files = append(files, File{Name: name})
	}
	outcomes, notes := r.Run(t.Context(), files)
	var got []string
	for _, note := range notes {
		got = append(got, note.Suite+" "+note.Text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s\nof %+v", strings.Join(got, "\n"), strings.Join(want, "\n"), outcomes)
	}
}

// TestFieldNotes has fields that kinds do not have in all places of objects.
func TestFieldNotes(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{
		"pods.yaml": "# two\n" + pod("a") + "spec:\n  hostNetwrok: true\n---\n" + pod("b") +
			"spec:\n  containers:\n  - name: b\n    securityContext: {priviledged: true}\n",
		"wrong.yaml": pod("c") + "spec:\n  hostNetwork: yes please\n",
		"state.yaml": "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  lables: {a: b}\n",
		"other.yaml": "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a, nothing: b}\nspc: {}\n",
		"list.yaml":  "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodNam: a}}\n",
		"1.yaml": head + `cluster: [state.yaml, other.yaml]
cases:
- {name: a, object: pods.yaml, expect: {decision: allowed, wholeObject: pods.yaml}}
- name: b
  object: &pod
    apiVersion: v1
    kind: Pod
    spec:
      hostPDI: true
  oldObject: pods.yaml
  expect: {decision: allowed, warnings: []}
- {name: c, object: *pod, cluster: [{apiVersion: v1, kind: Secret, dta: {}}], expect: {decision: allowed}}
- {name: d, object: wrong.yaml, expect: {decision: allowed}}
- {name: e, object: list.yaml, expect: {decision: allowed}}
`,
		"2.yaml": head + "cases: [{name: a, object: pods.yaml, expect: {decision: allowed}}]\n",
	})
	const (
		one = "pods.yaml:6: unknown field \"spec.hostNetwrok\", did you mean hostNetwork?"
		two = "pods.yaml:14: unknown field \"spec.containers[0].securityContext.priviledged\", did you mean privileged?"

		state  = "1.yaml state.yaml:5: unknown field \"metadata.lables\", did you mean labels?"
		inline = "1.yaml 1.yaml:11: unknown field \"spec.hostPDI\", did you mean hostPID?"
		secret = "1.yaml 1.yaml:14: unknown field \"dta\", did you mean data?"
		wrong  = "1.yaml wrong.yaml:5: kube-apiserver cannot decode the object: spec.hostNetwork: got a string, want true or false"
		list   = "1.yaml list.yaml:4: unknown field \"spec.nodNam\", did you mean nodeName?"
	)
	allowed := func(context.Context, *Setup) ([]*report.Result, []string, error) {
		return []*report.Result{{Decision: report.Allowed}}, nil, nil
	}
	noted(t, &Runner{Review: allowed}, []string{"1.yaml", "2.yaml"},
		state, "1.yaml "+one, "1.yaml "+two, inline, secret, wrong, list, "2.yaml "+one, "2.yaml "+two)
	// Only cases that run have notes.
	noted(t, &Runner{Review: allowed, Select: regexp.MustCompile("/d$")}, []string{"1.yaml", "2.yaml"}, state, wrong)
	broken := func(context.Context, *Setup) ([]*report.Result, []string, error) { return nil, nil, errors.New("no") }
	noted(t, &Runner{Review: broken, Select: regexp.MustCompile("/d$")}, []string{"1.yaml"}, state, wrong)
	noted(t, &Runner{Review: allowed, Select: regexp.MustCompile("nothing")}, []string{"1.yaml", "2.yaml"})
}

// TestPolicyNotes has policies that cases evaluate, and others.
func TestPolicyNotes(t *testing.T) {
	t.Chdir(t.TempDir())
	policy := func(kind string, names ...string) (all string) {
		for _, name := range names {
			all += "---\napiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: " + name + "}\n"
		}
		return all
	}
	const validating, mutating = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
	write(t, map[string]string{
		"a.yaml": policy(validating, "a") + policy(validating+"Binding", "ab"),
		"all.yaml": policy(validating, "c", "a") +
			strings.ReplaceAll(policy(mutating, "b"), "admissionregistration.k8s.io", "policies.fastadmit.io"),
		"1.yaml": head + "policies: [a.yaml]\ncases: [{name: a, object: pod.yaml, expect: {decision: allowed}}]\n",
		"2.yaml": head + "policies: [all.yaml]\ncases: [{name: a, object: pod.yaml, expect: {decision: allowed}}]\n",
		"3.yaml": head + "cases:\n- {name: a, object: pod.yaml, policies: [a.yaml], expect: {decision: allowed}}\n" +
			"- {name: b, object: pod.yaml, policies: [all.yaml], expect: {decision: allowed}}\n",
		"4.yaml": head + "policies: [{apiVersion: admissionregistration.k8s.io/v1, kind: " + validating + ", metadata: {name: a}}, " +
			"{apiVersion: admissionregistration.k8s.io/v1, kind: " + mutating + ", metadata: {name: a}}]\n" +
			"cases: [{name: a, object: pod.yaml, expect: {decision: allowed}}]\n",
		"pod.yaml": pod("a"),
	})
	var asked bool
	result := func(plugin string, all ...admission.PolicyExplanation) *Runner {
		return &Runner{Review: func(_ context.Context, s *Setup) ([]*report.Result, []string, error) {
			asked = s.Explain
			clear(s.Policies)                                                         // a Review may use them up
			r := &report.Result{Decision: report.Allowed, Created: []*report.Result{{ // a policy of Pods is one of workloads
				Decision: report.Allowed, Explanation: []*admission.Explanation{{Plugin: plugin, Policies: all}},
			}}}
			return []*report.Result{r}, nil, nil
		}}
	}
	with := func(name, outcome string) admission.PolicyExplanation {
		return admission.PolicyExplanation{Policy: name, Outcome: outcome, Why: "x"}
	}
	const no = "1.yaml 1.yaml: policy a is evaluated in no case, so nothing tests it (a.yaml:2)"
	noted(t, result(validating, with("a", "allowed")), []string{"1.yaml"})
	if !asked {
		t.Error("the case was not asked to explain which policies it evaluates")
	}
	for _, outcome := range []string{"denied", "warned", "audited", "errored"} {
		noted(t, result(validating, with("a", ""), with("a", outcome)), []string{"1.yaml"})
	}
	noted(t, result(validating, with("a", "")), []string{"1.yaml"}, no) // its match conditions are false, or nothing selects it
	noted(t, result(mutating, with("a", "patched")), []string{"1.yaml"}, no)
	noted(t, result(validating), []string{"1.yaml"}, no)
	noted(t, result(validating, with("c", "allowed")), []string{"2.yaml"},
		"2.yaml 2.yaml: 2 policies are evaluated in no case, so nothing tests them: a, b")
	noted(t, result(mutating), []string{"2.yaml"}, "2.yaml 2.yaml: 3 policies are evaluated in no case, so nothing tests them: c, a, b")
	noted(t, result(validating, with("a", "allowed")), []string{"4.yaml"},
		"4.yaml 4.yaml: policy a is evaluated in no case, so nothing tests it (4.yaml:3)")
	// Policies of a case with the same name are others.
	first := result(validating, with("a", "allowed"))
	review := first.Review
	first.Review = func(ctx context.Context, s *Setup) ([]*report.Result, []string, error) {
		if len(s.Policies) > 2 {
			return []*report.Result{{Decision: report.Allowed}}, nil, nil
		}
		return review(ctx, s)
	}
	noted(t, first, []string{"3.yaml"},
		"3.yaml 3.yaml: 3 policies are evaluated in no case, so nothing tests them: c, a, b")
	// Another case may evaluate a policy, if not all of them ran.
	first.Select = regexp.MustCompile("/a")
	noted(t, first, []string{"3.yaml"})
	broken := &Runner{Review: func(context.Context, *Setup) ([]*report.Result, []string, error) { return nil, nil, errors.New("no") }}
	noted(t, broken, []string{"1.yaml"})
	// What was evaluated needs no more explanations.
	var uses policyUses
	items := readItems(t, "a.yaml")
	if !uses.begin(items) {
		t.Error("got no need to explain a new policy")
	}
	results, _, _ := review(t.Context(), &Setup{})
	if uses.end(items, results); uses.begin(items) {
		t.Error("got a need to explain a policy that was evaluated")
	}
	if uses.begin(readItems(t, "pod.yaml")) {
		t.Error("got a need to explain a case without policies")
	}
}

// TestNotesJUnit has notes in the suite that they are about.
func TestNotesJUnit(t *testing.T) {
	outcomes := []Outcome{{Suite: "one", File: "1.yaml", Case: "a"}, {Suite: "two", File: "2.yaml", Case: "a"}}
	var b strings.Builder
	if err := Write(&b, "junit", "fastadmit test", false, outcomes, []Note{{"2.yaml", "first"}, {"2.yaml", "::second\n]]>"}}); err != nil {
		t.Fatal(err)
	}
	_, two, _ := strings.Cut(b.String(), `<testsuite name="two"`)
	if strings.Count(b.String(), "<system-out>") != 1 || !strings.Contains(two, "</testcase>\n    <system-out>first&#xA;") ||
		!strings.Contains(two, "]]&gt;") {
		t.Errorf("got\n%s", &b)
	}
}

func readItems(t *testing.T, name string) []manifest.Item {
	t.Helper()
	items := manifest.Read([]string{name}, nil, files.Everywhere)
	if len(items) == 0 || items[0].Fault != nil {
		t.Fatalf("got %+v in %s", items, name)
	}
	return items
}

func TestNoPlugin(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{
		"1.yaml": head + "cases: [{name: a, object: {apiVersion: v1, kind: Pod}, expect: {decision: allowed}}]\n",
		"2.yaml": head + "policies: []\ncases: [{name: a, object: {apiVersion: v1, kind: Pod}, expect: {decision: allowed}}]\n",
	})
	r := Runner{Review: func(context.Context, *Setup) ([]*report.Result, []string, error) { return nil, nil, ErrNoPlugin }}
	const want = ": policies: no admission plugin is enabled: name files with policies here, or plugins in enableAdmissionPlugins; " +
		"fastadmit plugins lists all"
	outcomes, _ := r.Run(t.Context(), []File{{Name: "1.yaml"}, {Name: "2.yaml"}})
	for i, at := range []string{"1.yaml:1", "2.yaml:3"} {
		if err := outcomes[i].Broken; err == nil || err.Error() != at+want {
			t.Errorf("got %v, want %s", err, at+want)
		}
	}
}

// TestMissingFiles has files that suites name in all fields, and that do not exist.
func TestMissingFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{"folder/1.yaml": head + `config: a.yaml
admissionControlConfigFile: b.yaml
policies: [c.yaml]
cases:
- {name: a, object: d.yaml, cluster: [e.yaml], expect: {decision: allowed}}
`})
	_, err := Read(File{Name: "folder/1.yaml", Tree: "folder"})
	for _, want := range []string{
		"folder/1.yaml:3: config: ", "folder/1.yaml:4: admissionControlConfigFile: ", "folder/1.yaml:5: policies[0]: ",
		"folder/1.yaml:7: cases[0].object: ", "folder/1.yaml:7: cases[0].cluster[0]: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "no such file") != 5 {
			t.Errorf("got %v, want five missing files and %s", err, want)
		}
	}
}
