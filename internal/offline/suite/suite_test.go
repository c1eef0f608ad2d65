package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// write writes files below the current folder.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFind(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{
		"a/fastadmit-test.yaml": "", "a/sub/b.test.yml": "", "a/sub/b.test.yaml": "", "a/pod.yaml": "", "a/test.yaml": "",
		"a/.b.test.yaml": "", "a/.hidden/c.test.yaml": "", "b/pod.yaml": "",
	})
	f := func(paths []string, wantErr string, want ...string) {
		t.Helper()
		all, err := Find(paths, false)
		var got []string
		for _, file := range all {
			got = append(got, file.Name)
		}
		if !slices.Equal(got, want) || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%q: got %q, %v, want %q, %q", paths, got, err, want, wantErr)
		}
	}
	f([]string{"a"}, "", "a/fastadmit-test.yaml", "a/sub/b.test.yaml", "a/sub/b.test.yml")
	f([]string{"b/pod.yaml", "a/sub", "a/sub/b.test.yml"}, "", "a/sub/b.test.yaml", "a/sub/b.test.yml", "b/pod.yaml")
	f([]string{"."}, "", "a/fastadmit-test.yaml", "a/sub/b.test.yaml", "a/sub/b.test.yml")
	f([]string{"a", "b"}, "b: there is no suite: no file has one of the names fastadmit-test.yaml, fastadmit-test.yml, *.test.yaml, "+
		"*.test.yml")
	f([]string{"c"}, "no such file")
}

// TestOutside checks which files suites may name, and that others are not read.
func TestOutside(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{
		"secret.yaml": pod("secret"), "elsewhere/secret.yaml": pod("secret"),
		"tree/pod.yaml": pod("a"), "tree/sub/pod.yaml": pod("b"),
	})
	for link, to := range map[string]string{
		"tree/inside.yaml": "sub/pod.yaml", "tree/outside.yaml": "../secret.yaml", "tree/absolute.yaml": "/etc/hostname",
		"tree/elsewhere": "../elsewhere", "tree/linked/secret.yaml": "../../secret.yaml", "tree/suite.test.yaml": "../secret.yaml",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink(to, link)); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	f := func(path, object string, outside bool, want string) {
		t.Helper()
		const name = "tree/sub/a.test.yaml"
		write(t, map[string]string{name: head + "cases: [{name: a, object: " + object + ", expect: {decision: allowed}}]\n"})
		found, err := Find([]string{path}, outside)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if file.Name != name {
				continue
			}
			s, err := Read(file)
			got := fmt.Sprint(err)
			if err == nil {
				got = names(s.Cases[0].object)
			}
			if got != want && (want == "" || !strings.Contains(got, want)) {
				t.Errorf("%s in %s: got %s, want %s", object, path, got, want)
			}
		}
	}
	const refused = `leads out of the folder "tree"; want a file in this folder, and relative links; --allow-files-outside allows others`
	f("tree", "../pod.yaml", false, "Pod/a@1")
	f("tree", "../../tree/pod.yaml", false, "Pod/a@1")
	f("tree", dir+"/tree/pod.yaml", false, "Pod/a@1")
	f("tree", "../inside.yaml", false, "Pod/b@1")
	f("tree", "../../secret.yaml", false, "tree/sub/a.test.yaml:3: cases[0].object: secret.yaml: ")
	f("tree", "../../secret.yaml", false, refused)
	f("tree", dir+"/secret.yaml", false, refused)
	f("tree", "/etc/hostname", false, refused)
	f("tree", "../outside.yaml", false, refused)
	f("tree", "../absolute.yaml", false, refused)
	f("tree", "../elsewhere", false, refused)
	f("tree", "../elsewhere/secret.yaml", false, refused)
	f("tree", "../linked", false, refused)
	f("tree", "'-'", false, "no such file")
	f(".", "../../secret.yaml", false, "Pod/secret@1")
	f("tree", "../../secret.yaml", true, "Pod/secret@1")
	f("tree", "../elsewhere/secret.yaml", true, "Pod/secret@1")
	// A file that the user names may name the files of its folder.
	f("tree/sub/a.test.yaml", "pod.yaml", false, "Pod/b@1")
	f("tree/sub/a.test.yaml", "../pod.yaml", false, `leads out of the folder "tree/sub"`)

	if _, err := Read(File{Name: "tree/suite.test.yaml", Tree: "tree"}); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("got %v of a link to a suite, want %s", err, refused)
	}
	// Of two arguments the larger folder counts.
	found, err := Find([]string{"tree/sub/a.test.yaml", "tree"}, false)
	if err != nil || found[0] != (File{"tree/sub/a.test.yaml", "tree"}) {
		t.Errorf("got %v, %v, want the suite once, with all files of the folder", found, err)
	}
}

const head = "apiVersion: fastadmit.io/v1alpha1\nkind: TestSuite\n"

func pod(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\n"
}

func TestReadErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{"broken.yaml": "a: [", "none.yaml": "# nothing\n", "other.yaml": "a: b\n", "folder/x.yaml": "a: b\n"})
	f := func(content string, want ...string) {
		t.Helper()
		write(t, map[string]string{"s.yaml": content})
		var got string
		if s, err := Read(File{Name: "s.yaml"}); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%+v", s)
		}
		if got != strings.Join(want, "\n") {
			t.Errorf("%s\ngot\n%s\nwant\n%s", content, got, strings.Join(want, "\n"))
		}
	}
	const one = "cases:\n- name: a\n  object: {apiVersion: v1, kind: Pod}\n  expect: {decision: allowed}\n"
	f("", "s.yaml: got an empty file, want a document")
	f("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n", "s.yaml: got a Pod of v1, "+
		"want a TestSuite of fastadmit.io/v1alpha1, which names files with policies and objects")
	f("apiVersion: fastadmit.io/v1\nkind: TestSuit\nbindPolicies: Refuse\n",
		`s.yaml:1: apiVersion: got "fastadmit.io/v1", want "fastadmit.io/v1alpha1"`, `s.yaml:2: kind: got "TestSuit", want "TestSuite"`,
		`s.yaml:3: bindPolicies: got "Refuse", want one of Deny, Warn, Audit`, "s.yaml:1: cases: got none, want at least one")
	f(head+one+"naem: x\n", "s.yaml:7: naem: unknown field, did you mean name?")
	f(head+one+strings.ReplaceAll(one, "cases:\n", "")+"- {object: {apiVersion: v1, kind: Pod}, expect: {decision: denied}}\n",
		`s.yaml:7: cases[1].name: got "a", want a name that no other case has`, `s.yaml:10: cases[2].name: got "", want a name that no `+
			`other case has`)
	f(head+"cases:\n- {name: a, operation: PATCH, expect: {decision: broken}}\n",
		`s.yaml:4: cases[0].operation: got "PATCH", want CREATE, UPDATE or DELETE`,
		`s.yaml:4: cases[0].expect.decision: got "broken", want one of allowed, patched, denied, failed`,
		"s.yaml:4: cases[0].object: got none, want the path of a file, or an object")
	f(head+"policies: [5]\n"+one, "s.yaml:3: policies[0]: got 5: want the path of a file, or an object")
	f(head+"policies: [broken.yaml, nowhere]\ncluster: [broken.yaml]\ncases:\n- name: a\n  object: none.yaml\n  oldObject: broken.yaml\n"+
		"  cluster: [{a: b}]\n  expect: {decision: allowed}\n",
		"s.yaml:3: policies[0]: broken.yaml:1: cannot be read: did not find expected node content",
		"s.yaml:3: policies[1]: nowhere: stat nowhere: no such file or directory",
		"s.yaml:4: cluster[0]: broken.yaml:1: cannot be read: did not find expected node content",
		"s.yaml:7: cases[0].object: there is no object in none.yaml",
		"s.yaml:8: cases[0].oldObject: broken.yaml:1: cannot be read: did not find expected node content",
		`s.yaml:9: cases[0].cluster[0]: not a Kubernetes object: got kind "" and apiVersion "", want both`)
	f(head+"cases:\n- name: a\n  object: other.yaml\n  expect: {decision: denied, message: {contains: a, matches: b}, warnings: "+
		"[{matches: '('}, {like: a}]}\n",
		`s.yaml:6: cases[0].expect.message: got an object: want a text, or {contains: "text"}, or {matches: "regular expression"}`,
		"s.yaml:6: cases[0].expect.warnings[0]: got an object: error parsing regexp: missing closing ): `(`",
		`s.yaml:6: cases[0].expect.warnings[1]: got an object: want a text, or {contains: "text"}, or {matches: "regular expression"}`,
		"s.yaml:5: cases[0].object: there is no object in other.yaml")
	f(head+"cases:\n- name: a\n  object: other.yaml\n  expect: {decision: denied}\n",
		"s.yaml:5: cases[0].object: there is no object in other.yaml")
}

// names returns the kinds and names of items, with their lines.
func names(items []manifest.Item) string {
	var all []string
	for i := range items {
		all = append(all, fmt.Sprintf("%s/%s@%d", items[i].Kind, items[i].Metadata.Name, items[i].Line))
	}
	return strings.Join(all, " ")
}

// TestSetup checks which settings a case takes from its suite, and which are its own.
func TestSetup(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{
		"dir/s.yaml": head + `policies: [p.yaml, {apiVersion: v1, kind: ConfigMap, metadata: {name: inline}}]
bindPolicies: Warn
enableAdmissionPlugins: [A]
admissionControlConfigFile: admission.yaml
config: /dev/null
cluster: [folder]
user: {username: u}
namespace: ns
workloadPods: true
cases:
- name: a
  object: objects.yaml
  expect: {decision: allowed}
- name: b
  object: {apiVersion: v1, kind: Pod, metadata: {name: new}}
  oldObject: {apiVersion: v1, kind: Pod, metadata: {name: old}}
  operation: UPDATE
  cluster: [{apiVersion: v1, kind: Node, metadata: {name: n}}]
  user: {username: v, groups: [g]}
  namespace: other
  workloadPods: false
  expect: {decision: allowed}
`,
		"dir/admission.yaml": "", "dir/p.yaml": pod("policy"),
		"dir/folder/x.yaml": pod("state") + "---\nno: object\n---\n" + head,
		"dir/objects.yaml":  pod("one") + "---\n" + pod("two"),
	})
	s, err := Read(File{Name: "dir/s.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	f := func(i int, want string) {
		t.Helper()
		c := s.setup(&s.Cases[i])
		got := fmt.Sprintf("%s | %s | %s | %s | %s %s %s %s | %v %s %s %t", names(c.Policies), names(c.State), names(c.Objects),
			names(c.Old), c.BindPolicies, c.EnableAdmissionPlugins, c.AdmissionFile, c.ConfigFile, c.User, c.Namespace,
			c.Operation, c.WorkloadPods)
		if got != want {
			t.Errorf("case %d:\ngot  %s\nwant %s", i, got, want)
		}
	}
	const common = "Pod/policy@1 ConfigMap/inline@3 | Pod/state@1"
	const files = "Warn [A] dir/admission.yaml /dev/null"
	f(0, common+" | Pod/one@1 Pod/two@5 |  | "+files+" | {u  [] map[]} ns  true")
	f(1, common+" Node/n@20 | Pod/new@17 | Pod/old@18 | "+files+" | {v  [g] map[]} other UPDATE false")
	if s.Name != "dir/s.yaml" || s.Cases[1].line != 16 {
		t.Errorf("got the name %q and line %d", s.Name, s.Cases[1].line)
	}
	write(t, map[string]string{"t.yaml": head + "name: t\ncases:\n- {name: a, object: dir/p.yaml, expect: {decision: allowed}}\n"})
	if s, err = Read(File{Name: "t.yaml"}); err != nil {
		t.Fatal(err)
	}
	if c := s.setup(&s.Cases[0]); c.Namespace != "default" || c.AdmissionFile != "" || c.ConfigFile != "" || c.WorkloadPods ||
		s.Name != "t" {
		t.Errorf("got %+v of the suite %q", c, s.Name)
	}
}

// suites writes two suites and a broken one, and returns them.
func suites(t *testing.T) []File {
	t.Helper()
	t.Chdir(t.TempDir())
	one := func(name, decision string) string {
		return "- {name: " + name + ", object: {apiVersion: v1, kind: Pod, metadata: {name: " + name +
			"}}, expect: {decision: " + decision + "}}\n"
	}
	write(t, map[string]string{
		"1.yaml": head + "name: first\ncases:\n" + one("good", "allowed") + one("bad", "denied") + one("worse", "allowed"),
		"2.yaml": "x: [",
		"3.yaml": head + "cases:\n" + one("good", "allowed") + one("away", "allowed"),
	})
	return []File{{Name: "1.yaml"}, {Name: "2.yaml"}, {Name: "3.yaml"}}
}

// reviews allows all but three names.
func reviews(_ context.Context, s *Setup) (results []*report.Result, notes []string, err error) {
	switch name := s.Objects[0].Metadata.Name; name {
	case "away":
		return nil, nil, errors.New("no plugin")
	case "worse":
		return []*report.Result{{Decision: report.Allowed, Created: []*report.Result{{Kind: "Pod", Name: "x", Decision: report.Broken,
			Message: "no pod"}}}}, nil, nil
	default:
		return []*report.Result{
			{File: "f", Line: 3, Kind: "Pod", Name: name, Decision: report.Allowed}, {Kind: "Pod", Name: "second", Decision: report.Denied,
				Message: "no"},
		}[:1+len(name)%2], []string{"a note"}, nil
	}
}

func outcome(o *Outcome) string {
	said := strings.Join(o.Failures, "; ")
	switch {
	case o.Broken != nil:
		said = "broken: " + o.Broken.Error()
	case o.Skipped:
		said = "skipped"
	}
	return strings.TrimSpace(fmt.Sprintf("%s/%s %s:%d %s", o.Suite, o.Case, o.File, o.Line, said))
}

func TestRun(t *testing.T) {
	files := suites(t)
	f := func(r Runner, want ...string) {
		t.Helper()
		r.Review = reviews
		var got []string
		all, _ := r.Run(t.Context(), files)
		for _, o := range all {
			got = append(got, outcome(&o))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	const (
		good   = "first/good 1.yaml:5"
		bad    = "first/bad 1.yaml:6 f:3: Pod bad: decision:\n- want denied\n+ got  allowed; a note"
		worse  = "first/worse 1.yaml:7 broken: Pod x cannot be reviewed: no pod"
		broken = "2.yaml/ 2.yaml:0 broken: 2.yaml: line 1: did not find expected node content"
		good3  = "3.yaml/good 3.yaml:4"
		away   = "3.yaml/away 3.yaml:5 broken: no plugin"
	)
	f(Runner{}, good, bad, worse, broken, good3, away)
	f(Runner{Select: regexp.MustCompile("/good$")}, good, broken, good3)
	f(Runner{Select: regexp.MustCompile("^first/(bad|good)")}, good, bad, broken)
}

func TestFailFast(t *testing.T) {
	files := suites(t)
	calls := make(chan string, 10)
	runner := Runner{FailFast: true, Review: func(ctx context.Context, s *Setup) ([]*report.Result, []string, error) {
		calls <- s.Objects[0].Metadata.Name
		return reviews(ctx, s)
	}}
	outcomes, _ := runner.Run(t.Context(), []File{files[1], files[0], files[2]})
	skipped := 0
	for i := range outcomes {
		if outcomes[i].Skipped {
			skipped++
		}
	}
	if outcomes[0].Broken == nil || skipped+len(calls) != 5 || !outcomes[5].Skipped {
		t.Errorf("got %d calls and %d skipped cases of 5, want the last skipped: %v", len(calls), skipped, outcomes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all, _ := (&Runner{Review: reviews}).Run(ctx, files[:1])
	for _, o := range all {
		if !o.Skipped {
			t.Errorf("got %s after ctx ended, want it skipped", outcome(&o))
		}
	}
}

func someOutcomes() []Outcome {
	return []Outcome{
		{Suite: "s", Case: "good", File: "s.yaml", Line: 3, Took: 1234567 * time.Nanosecond},
		{Suite: "s", Case: "bad", File: "s.yaml", Line: 4, Failures: []string{"decision:\n- want a\n+ got  b", "::error ::x"}},
		{Suite: "s", Case: "left\nout\x1b[2J", File: "s.yaml", Line: 5, Skipped: true},
		{Suite: "t.yaml", File: "t.yaml", Broken: errors.New("first\nsecond")},
		{Suite: "u", Case: "broken", File: "u.yaml", Line: 7, Broken: errors.New("no")},
	}
}

func TestWrite(t *testing.T) {
	f := func(format string, verbose bool, outcomes []Outcome, want string) {
		t.Helper()
		var b strings.Builder
		if err := Write(&b, format, "fastadmit test", verbose, outcomes, nil); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%s, verbose %t: got\n%s\nwant\n%s", format, verbose, b.String(), want)
		}
	}
	const failed = "FAIL   s/bad (s.yaml:4)\n  decision:\n  - want a\n  + got  b\n  \\::error ::x\n"
	const broken = "BROKEN t.yaml (t.yaml)\n  first\n  second\nBROKEN u/broken (u.yaml:7)\n  no\n4 cases in 3 suites: 1 passed, 1 " +
		"failed, 2 broken, 1 skipped\n"
	f("text", false, someOutcomes(), failed+broken)
	f("text", true, someOutcomes(), "PASS   s/good (1.2ms)\n"+failed+`SKIP   s/left\nout\x1b[2J (s.yaml:5)`+"\n"+broken)
	again := slices.Concat(someOutcomes()[4:], []Outcome{
		{Suite: "u", Case: "too", File: "u.yaml", Line: 9, Broken: errors.New("no")},
		{Suite: "v", Case: "other", File: "v.yaml", Line: 1, Broken: errors.New("no")},
	})
	f("text", false, again, "BROKEN u/broken (u.yaml:7)\n  no\nBROKEN u/too (u.yaml:9)\n  as in u/broken\nBROKEN v/other (v.yaml:1)\n"+
		"  no\n3 cases in 2 suites: 0 passed, 0 failed, 3 broken\n")
	f("text", false, someOutcomes()[:1], "1 case in 1 suite: 1 passed, 0 failed\n")
	f("text", false, nil, "0 cases in 0 suites: 0 passed, 0 failed\n")
	f("junit", false, someOutcomes()[:4], `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="fastadmit test">
  <testsuite name="s" tests="3" failures="1" errors="0" skipped="1">
    <testcase name="good" classname="s" file="s.yaml" line="3" time="0.001"></testcase>
    <testcase name="bad" classname="s" file="s.yaml" line="4" time="0.000">
      <failure type="unexpected" message="decision:">decision:&#xA;- want a&#xA;+ got  b&#xA;::error ::x</failure>
    </testcase>
    <testcase name="left\nout\x1b[2J" classname="s" file="s.yaml" line="5" time="0.000">
      <skipped message=""></skipped>
    </testcase>
  </testsuite>
  <testsuite name="t.yaml" tests="1" failures="0" errors="1" skipped="0">
    <testcase name="t.yaml" classname="t.yaml" file="t.yaml" time="0.000">
      <error type="broken" message="first">first&#xA;second</error>
    </testcase>
  </testsuite>
</testsuites>
`)
}

// TestText has all forms of an expected text.
func TestText(t *testing.T) {
	f := func(text, got string, want bool) {
		t.Helper()
		e := new(Text)
		if err := e.UnmarshalJSON([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if e.is(got) != want {
			t.Errorf("%s is %q: got %t, want %t", text, got, !want, want)
		}
	}
	const prefix = "MutatingAdmissionPolicy 'p' denied request: "
	f(`"a"`, "a", true)
	f(`"a"`, "ab", false)
	f(`"a"`, prefix+"a", true)
	f(`"`+prefix+`a"`, prefix+"a", true)
	f(`"b"`, prefix+"a", false)
	f(`{"contains":"a"}`, "bab", true)
	f(`{"contains":"a"}`, "bb", false)
	f(`{"matches":"^a"}`, "ab", true)
	f(`{"matches":"^a"}`, "ba", false)
	f(`""`, "", true)
	f(`""`, "a", false)
}

// TestFailFastInOrder runs one case after the other. With FailFast, the cases after the first failure are
// skipped; without it, none is.
func TestFailFastInOrder(t *testing.T) {
	files := suites(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f := func(files []File, failFast bool, want ...bool) {
		t.Helper()
		var got []bool
		all, _ := (&Runner{Review: reviews, FailFast: failFast}).Run(t.Context(), files)
		for _, o := range all {
			got = append(got, o.Skipped)
			if !o.Skipped && o.Case != "" && o.Took <= 0 {
				t.Errorf("got no time of %s", outcome(&o))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got skipped %v, want %v", files, got, want)
		}
	}
	f(files[:1], true, false, false, true)
	f(files[:1], false, false, false, false)
	f(files[1:], true, false, true, true)
	f(files[2:], true, false, false)
}

// TestOperations has all operations, and invalid combinations of objects.
func TestOperations(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{
		"broken.yaml": "a: [", "folder/suite.yaml": head, "folder/kind.yaml": "apiVersion: v1\nkind: TestSuite\n",
		"folder/version.yaml": "apiVersion: fastadmit.io/v1alpha1\nkind: Configuration\n",
	})
	f := func(cases string, want ...string) {
		t.Helper()
		write(t, map[string]string{"s.yaml": head + "cases:\n" + cases})
		s, err := Read(File{Name: "s.yaml"})
		var got string
		if err != nil {
			got = err.Error()
		} else {
			got = names(s.Cases[0].object)
		}
		if got != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", cases, got, strings.Join(want, "\n"))
		}
	}
	for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
		f("- {name: a, operation: "+operation+", object: {apiVersion: v1, kind: Pod}, expect: {decision: allowed}}\n", "Pod/@4")
	}
	f("- {name: a, object: folder, expect: {decision: allowed}}\n", "TestSuite/@1 Configuration/@1") // the suite itself is no object
	f("- {name: a, object: broken.yaml, expect: {decision: allowed}}\n",
		"s.yaml:4: cases[0].object: broken.yaml:1: cannot be read: did not find expected node content")
	const want = "want the path of a file, or an object"
	f("- {name: a, object: '', expect: {decision: allowed}}\n", `s.yaml:4: cases[0].object: got "": `+want)
	f("- {name: a, object: [], expect: {decision: allowed}}\n", "s.yaml:4: cases[0].object: got a list: "+want)
	f("- {name: a, object: {a: b}, expect: {decision: allowed, message: {contains: 1}}}\n",
		`s.yaml:4: cases[0].expect.message: got an object: want a text, or {contains: "text"}, or {matches: "regular expression"}`+"\n"+
			`s.yaml:4: cases[0].object: not a Kubernetes object: got kind "" and apiVersion "", want both`)
	f("- {name: a, object: {a: b}, expect: {decision: allowed}}\n",
		`s.yaml:4: cases[0].object: not a Kubernetes object: got kind "" and apiVersion "", want both`)
	if _, err := Read(File{Name: "nowhere.yaml"}); err == nil {
		t.Error("got no error for a file that does not exist")
	}
	if got := Formats(); !slices.Equal(got, []string{"text", "junit"}) {
		t.Errorf("got the formats %q", got)
	}
}

// TestOneResult checks that the object is not named if there is only one.
func TestOneResult(t *testing.T) {
	files := suites(t)
	runner := Runner{Review: func(context.Context, *Setup) ([]*report.Result, []string, error) {
		return []*report.Result{{Decision: report.Allowed, Created: []*report.Result{
			{Kind: "Pod", Name: "1", Decision: report.Broken, Message: "first"}, {Kind: "Pod", Name: "2", Decision: report.Broken,
				Message: "second"},
		}}}, nil, nil
	}}
	first := func() string {
		all, _ := runner.Run(t.Context(), files)
		return outcome(&all[0])
	}
	if got := first(); got != "first/good 1.yaml:5 broken: Pod 1 cannot be reviewed: first" {
		t.Errorf("got %s", got)
	}
	runner.Review = func(context.Context, *Setup) ([]*report.Result, []string, error) {
		return []*report.Result{{File: "f", Kind: "Pod", Decision: report.Denied, Message: "no"}}, nil, nil
	}
	const want = "first/good 1.yaml:5 decision:\n- want allowed\n+ got  denied by  (): no"
	if got := first(); got != want {
		t.Errorf("got %s", got)
	}
}
