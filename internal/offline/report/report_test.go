package report

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// results has a result of each kind.
func results() []*Result {
	return []*Result{
		{File: "a b.yaml", Line: 1, Operation: "CREATE", APIVersion: "v1", Kind: "Namespace", Resource: "namespaces", Namespace: "shop",
			Name: "shop", Decision: Allowed},
		{File: "a b.yaml", Line: 5, Operation: "UPDATE", APIVersion: "apps/v1", Kind: "Deployment", Resource: "deployments",
			Namespace: "shop", Name: "web", Decision: Allowed,
			Warnings: []Finding{{Plugin: "PodSecurity", Message: "would violate: x"}, {Message: "old"}},
			Created: []*Result{{Operation: "CREATE", APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: "web-*",
				Decision: Denied,
				Plugin:   "PodSecurity", Code: 403, Reason: "Forbidden", Message: "violates: 100%,\nand more"}}},
		{File: "c.yaml", Line: 1, Operation: "CREATE", APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: "web",
			Decision:  Patched,
			PatchedBy: []string{"A", "B"}, Patch: []byte(`[{"op":"add","path":"/a","value":1},{"op":"remove","path":"/b"}]`),
			Audits: []Finding{{Plugin: "C", Message: "no"}}, Ignored: []Finding{{Plugin: "D", Message: "away"}},
			Before: []byte(`{"b":1,"c":2}`), After: []byte(`{"a":1,"c":2}`), Response: []byte(`{"r":1}`)},
		{File: "c.yaml", Line: 9, Operation: "CONNECT", APIVersion: "v1", Kind: "PodExecOptions", Resource: "pods", SubResource: "exec",
			Namespace: "shop", Name: "web",
			Decision: Failed, Plugin: "E", Message: "down <&>"},
		{File: "stdin", Line: 3, Decision: Broken, Message: "cannot be read"},
		{File: "d.yaml", Decision: Skipped, Message: "no object"},
	}
}

func write(t *testing.T, format string, o Options, results []*Result) string {
	t.Helper()
	var out strings.Builder
	w, err := New(format, &out, o)
	if err != nil {
		t.Fatal(err)
	}
	var s Summary
	for _, r := range results {
		s.Add(r)
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(&s); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

var tool = Options{Tool: "fastadmit review", Version: "v1", Rules: map[string]string{"PodSecurity": "holds pods"}}

func TestText(t *testing.T) {
	f := func(format string, o Options, want string) {
		t.Helper()
		if got := write(t, format, o, results()); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", format, got, want)
		}
	}
	const summary = "6 objects and 1 that controllers make of them: 3 allowed (1 patched), 1 denied, 1 failed, 1 broken, 1 skipped, 2 " +
		"warnings, 1 audit, 1 ignored failure\n"
	const deployment = `a b.yaml:5: UPDATE Deployment shop/web: allowed
  warning: PodSecurity: would violate: x
  warning: old
  makes Pod shop/web-*: denied by PodSecurity (403 Forbidden): violates: 100%,
      and more
`
	const exec = "c.yaml:9: CONNECT PodExecOptions of pods/exec shop/web: failed: down <&>\nstdin:3: broken: cannot be read\n"
	f("text", tool, "a b.yaml:1: Namespace shop: allowed\n"+deployment+`c.yaml:1: Pod shop/web: allowed, patched by A, B
  audit: C: no
  ignored: D: away
  {"op":"add","path":"/a","value":1}
  {"op":"remove","path":"/b"}
`+exec+"d.yaml: skipped: no object\n"+summary)
	quiet := tool
	quiet.Quiet = true
	f("github", tool, `::warning file=a b.yaml,line=5,title=PodSecurity warns of Deployment shop/web::would violate: x
::warning file=a b.yaml,line=5,title=kube-apiserver warns of Deployment shop/web::old
::error file=a b.yaml,line=5,title=PodSecurity denies Pod shop/web-*%2C made of Deployment shop/web::violates: 100%25,%0Aand more
::notice file=c.yaml,line=1,title=C audits Pod shop/web::no
::warning file=c.yaml,line=1,title=D fails and is ignored on Pod shop/web::away
::error file=c.yaml,line=9,title=E cannot decide on PodExecOptions of pods/exec shop/web::down <&>
::error file=stdin,line=3,title=cannot review::cannot be read
`+summary)
	f("object", tool, `---
# a b.yaml:1: Namespace shop: allowed
---
# a b.yaml:5: Deployment shop/web: allowed
---
a: 1
c: 2
---
# c.yaml:9: PodExecOptions of pods/exec shop/web: failed: down <&>
---
# stdin:3: broken: cannot be read
`)
	f("diff", tool, `# a b.yaml:5: Deployment shop/web makes Pod shop/web-*: denied by PodSecurity (403 Forbidden): violates: 100%,
# and more
--- c.yaml:1 Pod shop/web
+++ c.yaml:1 Pod shop/web, patched by A, B
@@ -1,2 +1,2 @@
-b: 1
+a: 1
 c: 2
# c.yaml:9: PodExecOptions of pods/exec shop/web: failed: down <&>
# stdin:3: broken: cannot be read
`)
	f("response", tool, `{"r":1}`+"\n")

	if got := write(t, "text", quiet, results()); strings.Contains(got, "Namespace") || strings.Contains(got, "d.yaml") ||
		!strings.Contains(got, deployment) || !strings.Contains(got, "c.yaml:1: Pod") {
		t.Errorf("quiet: got\n%s", got)
	}
	var many []*Result
	for range skippedMax + 2 {
		many = append(many, &Result{File: "e.yaml", Kind: "Odd", Decision: Skipped, Message: "unknown"},
			&Result{File: "chart", Decision: Skipped, Message: "render it", Unrendered: true},
			&Result{File: "f.yaml", Kind: "Odder", Decision: Broken, Message: "unknown", UnknownKind: true})
	}
	got := write(t, "text", tool, many)
	if strings.Count(got, "e.yaml: Odd: skipped: unknown\n") != skippedMax ||
		strings.Count(got, "chart: skipped: render it\n") != skippedMax ||
		!strings.Contains(got, "and 2 more skipped: Odd\nand 2 more skipped: charts or kustomizations\nand 2 more broken: Odder\n"+
			"--skip-unknown=Odder skips what has an unknown kind\n") {
		t.Errorf("got %s, want few of those that were skipped for the same reason", got)
	}
	colored := tool
	colored.Color = true
	if got := write(t, "text", colored, results()[1:2]); !strings.Contains(got, "\x1b[31mdenied\x1b[0m by") || !strings.Contains(got,
		"\x1b[32mallowed\x1b[0m\n") {
		t.Errorf("got %q", got)
	}
	if _, err := New("table", io.Discard, tool); err == nil || !strings.Contains(err.Error(), `got "table", want one of text, json`) {
		t.Errorf("got %v", err)
	}
}

// TestData reads the documents back.
func TestData(t *testing.T) {
	for format, unmarshal := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) },
	} {
		for _, want := range [][]*Result{results(), results()[:1], {}} {
			var got struct {
				APIVersion, Kind string
				Results          []*Result
				Summary          Summary
			}
			text := write(t, format, tool, want)
			if err := unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%s: %v in\n%s", format, err, text)
			}
			var summary Summary
			for _, r := range want {
				summary.Add(r)
				r.Before, r.After, r.Response = nil, nil, nil
			}
			for _, r := range append(got.Results, want...) { // whose white space may differ
				if r.Patch != nil {
					var patch any
					if err := json.Unmarshal(r.Patch, &patch); err != nil {
						t.Fatal(err)
					}
					r.Patch, _ = json.Marshal(patch)
				}
			}
			if got.APIVersion != APIVersion || got.Kind != Kind || !reflect.DeepEqual(got.Results, want) ||
				!reflect.DeepEqual(got.Summary, summary) {
				t.Errorf("%s: got %+v\n%s", format, got, text)
			}
		}
	}
}

func TestJUnit(t *testing.T) {
	text := write(t, "junit", tool, results())
	var got struct {
		Name   string       `xml:"name,attr"`
		Suites []junitSuite `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := [][5]any{{"a b.yaml", 3, 1, 0, 0}, {"c.yaml", 2, 0, 1, 0}, {"stdin", 1, 0, 1, 0}, {"d.yaml", 1, 0, 0, 1}}
	if got.Name != "fastadmit review" || len(got.Suites) != len(want) {
		t.Fatalf("got %s", text)
	}
	for i, s := range got.Suites {
		if counts := [5]any{s.Name, s.Tests, s.Failures, s.Errors, s.Skipped}; counts != want[i] || len(s.Cases) != s.Tests {
			t.Errorf("got %v, want %v", counts, want[i])
		}
	}
	denied := got.Suites[0].Cases[2]
	if denied.Name != "Pod shop/web-*, made of Deployment shop/web" || denied.Line != 5 || denied.Failure == nil ||
		denied.Failure.Type != "PodSecurity" || denied.Failure.Text != "violates: 100%,\nand more" {
		t.Errorf("got %+v", denied)
	}
	if output := got.Suites[0].Cases[1].Output; output == nil || output.Text != "warning: PodSecurity: would violate: x\nwarning: old\n" {
		t.Errorf("got %+v", output)
	}
	pods := []*Result{{Resource: "pods", Name: "a", Decision: Denied}, {Resource: "pods", Name: "b", Decision: Denied},
		{Resource: "services", Name: "c", Decision: Denied}}
	if got := write(t, "junit", tool, pods); !strings.Contains(got, `<testsuite name="pods" tests="2"`) || !strings.Contains(got,
		`<testsuite name="services" tests="1"`) {
		t.Errorf("got %s, want a suite for each resource of a cluster", got)
	}
	unchecked := []*Result{{Resource: "services", Name: "a", Decision: Allowed, Unchecked: true}}
	if got := write(t, "junit", tool, unchecked); !strings.Contains(got, `skipped="1"`) ||
		!strings.Contains(got, "no enabled plugin checks it") {
		t.Errorf("got %s for an object that no plugin checked, want a skipped case", got)
	}
	long := *pods[0]
	long.Message = strings.Repeat("m", junitBytesMax/8) // and in Said
	for n, suites := range map[int]int{4: 1, 5: 2, 8: 2} {
		if got := strings.Count(write(t, "junit", tool, slices.Repeat([]*Result{&long}, n)), "<testsuite name"); got != suites {
			t.Errorf("%d cases with long messages: got %d suites, want %d", n, got, suites)
		}
	}
	for n, suites := range map[int]int{junitCasesMax - 1: 1, junitCasesMax: 1, junitCasesMax + 1: 2} {
		if got := strings.Count(write(t, "junit", tool, slices.Repeat(pods[:1], n)), "<testsuite name"); got != suites {
			t.Errorf("got %d suites for %d cases, want %d", got, n, suites)
		}
	}
	if got := write(t, "junit", tool, nil); !strings.HasSuffix(got, "<testsuites name=\"fastadmit review\">\n</testsuites>\n") {
		t.Errorf("got %s for nothing", got)
	}
}

// TestSARIF checks the fields that code scanning shows. A test in e2e/review
// validates the output against SARIF's schema.
func TestSARIF(t *testing.T) {
	var got struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name, Version string
					Rules         []sarifRule
				}
			}
			Results []sarifResult
		}
	}
	text := write(t, "sarif", tool, results())
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	run := got.Runs[0]
	if got.Version != "2.1.0" || run.Tool.Driver.Name != "fastadmit review" || run.Tool.Driver.Version != "v1" {
		t.Errorf("got %s", text)
	}
	want := []struct {
		rule, level, uri string
		line             int
	}{
		{"PodSecurity", "warning", "a%20b.yaml", 5}, {"warning", "warning", "a%20b.yaml", 5}, {"PodSecurity", "error", "a%20b.yaml", 5},
		{"C", "note", "c.yaml", 1}, {"D", "warning", "c.yaml", 1}, {"E", "error", "c.yaml", 9}, {"input", "error", "stdin", 3},
	}
	if len(run.Results) != len(want) || len(run.Tool.Driver.Rules) != 6 || run.Tool.Driver.Rules[0].ShortDescription.Text != "holds pods" {
		t.Fatalf("got %s", text)
	}
	for _, rule := range run.Tool.Driver.Rules {
		if rule.FullDescription.Text == "" || rule.Help.Text == "" || rule.Help.Markdown == "" {
			t.Errorf("got %+v, want what GitHub requires", rule)
		}
	}
	for i, r := range run.Results {
		w, at := want[i], r.Locations[0].Physical
		if r.RuleID != w.rule || run.Tool.Driver.Rules[r.RuleIndex].ID != w.rule || r.Level != w.level || at.Artifact.URI != w.uri ||
			at.Region.StartLine != w.line {
			t.Errorf("got %+v at %+v, want %+v", r, at, w)
		}
	}
}
