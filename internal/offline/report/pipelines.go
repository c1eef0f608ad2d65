package report

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/fastadmit/fastadmit/internal/printable"
)

// A problem is a denial, a failure, an object that cannot be reviewed, a warning, a violation that is only audited, or
// why a plugin did not check an object.
type problem struct {
	level   level
	rule    string // the plugin, the plugin and its policy, or another source
	title   string
	message string
	line    int    // in the file of the object, 0 for that of the object
	about   *about // nil if there is nothing to say
}

// about has what is known about the cause of a problem, for the properties of SARIF.
type about struct {
	Binding   string   `json:"binding,omitempty"`
	Rule      string   `json:"rule,omitempty"`
	Paths     []string `json:"paths,omitempty"`
	Defaulted []string `json:"defaulted,omitempty"`
}

// with returns the problem with what is known about its cause. The message says which fields have a default.
func (p problem) with(a about) problem {
	p.message = withDefault(p.message, a.Defaulted)
	if a.Binding != "" || a.Rule != "" || len(a.Paths) > 0 {
		p.about = &a
	}
	return p
}

// suffix names the rule of a policy and the fields that it reads, for messages. Without a rule it is empty: then the message names the
// fields.
func (a *about) suffix() string {
	if a == nil || a.Rule == "" {
		return ""
	}
	return " [" + strings.Join(append([]string{a.Rule}, a.Paths...), ", ") + "]"
}

// withDefault returns a message that says which fields have a default.
func withDefault(message string, defaulted []string) string {
	if said := Default(defaulted); said != "" {
		message += " (" + said + ")"
	}
	return message
}

func (f *Finding) about() about { return about{f.Binding, f.Rule, f.Paths, f.Defaulted} }

func (r *Result) about() about { return about{r.Binding, r.Rule, r.Paths, r.Defaulted} }

// A level says how bad a problem is, as SARIF section 3.27.10 does.
type level string

const (
	levelError   level = "error"
	levelWarning level = "warning"
	levelNote    level = "note"
)

// ruleInput is the rule of problems with objects that cannot be reviewed.
const ruleInput = "input"

// ruleWarning is the rule of warnings of which the plugin is not known.
const ruleWarning = "warning"

// rulePolicy is the rule of notes about policies.
const rulePolicy = "policy"

// problems returns the problems of a result and of its Created.
func problems(root *Result) (all []problem) {
	root.Walk(func(r *Result, depth int) {
		object := r.Object()
		if depth > 0 {
			object += ", made of " + root.Object()
		}
		rule := r.Plugin
		switch r.Decision {
		case Denied:
			title := titleOf(rule, r.Policy) + " denies " + object
			denial := problem{level: levelError, rule: ruleOf(rule, r.Policy), title: title, message: r.Message + r.changedBefore(), line: r.FieldLine}
			all = append(all, denial.with(r.about()))
			all = append(all, findings(r.FurtherDenials, levelError, " denies "+object)...)
		case Failed:
			all = append(all, problem{level: levelError, rule: rule, title: rule + " cannot decide on " + object, message: r.Message})
		case Differs:
			severity := levelError
			if r.Tolerated {
				severity = levelWarning
			}
			all = append(all, problem{
				level: severity, rule: cmp.Or(rule, ruleInput), title: r.Differing() + ", as " + object, message: r.Message,
			})
		case Broken:
			all = append(all, problem{
				level: levelError, rule: ruleInput, title: strings.TrimSpace("cannot review " + object), message: r.Message,
			})
		}
		if r.Unrendered {
			all = append(all, problem{level: levelNote, rule: ruleInput, title: "skipped " + cmp.Or(object, r.File), message: r.Message})
		}
		all = append(all, findings(r.Warnings, levelWarning, " warns of "+object)...)
		all = append(all, findings(r.Audits, levelNote, " audits "+object)...)
		all = append(all, findings(r.Ignored, levelWarning, " fails and is ignored on "+object)...)
	})
	for _, f := range root.AllLeftOut() {
		all = append(all, problem{
			level: levelNote, rule: f.Plugin, title: f.Plugin + " did not check " + root.Object(), message: f.Message,
		})
	}
	return all
}

// findings returns the problems for findings. does says what their plugins do with which object.
func findings(all []Finding, level level, does string) (problems []problem) {
	for i := range all {
		f := &all[i]
		rule, title := ruleOf(f.Plugin, f.Policy), titleOf(f.Plugin, f.Policy)
		if f.Plugin == "" {
			rule, title = ruleWarning, "kube-apiserver"
		}
		p := problem{level: level, rule: rule, title: title + does, message: f.Message, line: f.Line}
		problems = append(problems, p.with(f.about()))
	}
	return problems
}

// problem returns the note as a problem. A note is no error: kube-apiserver accepts the policy.
func (n *PolicyNote) problem() problem {
	return problem{level: levelWarning, rule: rulePolicy, title: "a policy may not do what it says", message: n.Message, line: n.Line}
}

// ruleOf returns the rule of a plugin, or of a policy that it evaluates.
func ruleOf(plugin, policy string) string {
	if policy == "" {
		return plugin
	}
	return plugin + "/" + policy
}

// titleOf returns a plugin with its policy, for messages.
func titleOf(plugin, policy string) string { return strings.TrimSpace(plugin + " " + policy) }

// gitHub writes workflow commands, which GitHub shows next to the lines of a change
// (https://docs.github.com/actions/reference/workflow-commands-for-github-actions).
type gitHub struct{ w io.Writer }

func newGitHub(w io.Writer, _ *Options) Writer { return &gitHub{w} }

var (
	gitHubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", printable.OldCommand, `##\[`)
	gitHubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C", printable.OldCommand, `##\[`)
)

// Write implements Writer.
func (g *gitHub) Write(r *Result) error {
	for _, p := range problems(r) {
		if err := g.write(&p, r.File, cmp.Or(p.line, r.Line)); err != nil {
			return err
		}
	}
	return nil
}

func (g *gitHub) write(p *problem, file string, line int) error {
	command := string(p.level)
	if p.level == levelNote {
		command = "notice"
	}
	at := ""
	if file != "" {
		at = "file=" + gitHubProperty.Replace(filepath.ToSlash(file)) + ","
		if line > 0 {
			at += fmt.Sprintf("line=%d,", line)
		}
	}
	_, err := fmt.Fprintf(g.w, "::%s %stitle=%s::%s\n", command, at, gitHubProperty.Replace(p.title),
		gitHubData.Replace(p.message+p.about.suffix()))
	return err
}

// Close implements Writer.
func (g *gitHub) Close(s *Summary) error {
	for i := range s.PolicyNotes {
		p := s.PolicyNotes[i].problem()
		if err := g.write(&p, s.PolicyNotes[i].File, p.line); err != nil {
			return err
		}
	}
	for _, doubt := range s.Doubts() {
		if _, err := fmt.Fprintf(g.w, "::warning title=fastadmit::%s\n", gitHubData.Replace(printable.Plain(doubt))); err != nil {
			return err
		}
	}
	for _, exception := range s.exceptions() {
		if _, err := fmt.Fprintf(g.w, "::notice title=fastadmit::%s\n", gitHubData.Replace(printable.Plain(exception))); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(g.w, "%s\n", s)
	return err
}

// junit writes a report as Ant's JUnit task does, which most CI systems read
// (https://github.com/testmoapp/junitxml): a suite for each file, or for each resource
// of a cluster, and a case for each object.
type junit struct {
	w     io.Writer
	o     *Options
	began bool
	suite *junitSuite
}

// junitCasesMax and junitBytesMax bound the cases of a suite, which is in memory until it is complete,
// and their texts. Further cases go into another suite with the same name.
const (
	junitCasesMax = 10_000
	junitBytesMax = 4 << 20
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
	// Output is after the cases, as the schema of JUnit wants it.
	Output *junitOutput `xml:"system-out"`

	bytes int // of the texts
}

type junitCase struct {
	Name    string       `xml:"name,attr"`
	Class   string       `xml:"classname,attr"`
	File    string       `xml:"file,attr,omitempty"`
	Line    int          `xml:"line,attr,omitempty"`
	Time    string       `xml:"time,attr,omitempty"` // seconds, of tests
	Failure *junitFault  `xml:"failure"`
	Error   *junitFault  `xml:"error"`
	Skipped *junitFault  `xml:"skipped"`
	Output  *junitOutput `xml:"system-out"`
}

type junitFault struct {
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type junitOutput struct {
	Text string `xml:",chardata"`
}

func newJUnit(w io.Writer, o *Options) Writer { return &junit{w: w, o: o} }

// Write implements Writer.
func (j *junit) Write(root *Result) error {
	name := cmp.Or(root.File, root.Resource)
	if j.suite != nil && (j.suite.Name != name || len(j.suite.Cases) >= junitCasesMax || j.suite.bytes >= junitBytesMax) {
		if err := j.flush(); err != nil {
			return err
		}
	}
	if j.suite == nil {
		j.suite = &junitSuite{Name: name}
	}
	root.Walk(func(r *Result, depth int) { j.suite.add(root, r, depth) })
	return nil
}

func (s *junitSuite) add(root, r *Result, depth int) {
	c := junitCase{Name: r.Object(), Class: cmp.Or(root.File, root.Resource), File: root.File, Line: root.Line}
	if depth > 0 {
		c.Name += ", made of " + root.Object()
	}
	if c.Name == "" {
		c.Name = root.Location()
	}
	cause := r.about()
	fault := &junitFault{Type: ruleOf(r.Plugin, r.Policy), Message: r.Said(), Text: withDefault(r.Message, r.Defaulted) + cause.suffix()}
	s.Tests++
	switch r.Decision {
	case Denied, Differs:
		if !r.Tolerated {
			c.Failure = fault
			s.Failures++
		}
	case Failed, Broken:
		c.Error = fault
		s.Errors++
	case Skipped:
		c.Skipped = fault
		s.Skipped++
	case Allowed:
		if r.IsUnchecked() { // nobody tested it
			c.Skipped = &junitFault{Message: "no enabled plugin checks it"}
			s.Skipped++
		}
	}
	var output strings.Builder
	if r.Tolerated {
		output.WriteString(r.Said() + "\n")
	}
	for _, findings := range []struct {
		name string
		list []Finding
	}{{"also denied", r.FurtherDenials}, {"warning", r.Warnings}, {"audit", r.Audits}, {"ignored", r.Ignored}} {
		for _, f := range findings.list {
			cause := f.about()
			output.WriteString(findings.name + ": " + withDefault(r.Reported(&f), f.Defaulted) + cause.suffix() + "\n")
		}
	}
	if depth == 0 {
		for _, f := range r.AllLeftOut() {
			output.WriteString("unchecked: " + f.String() + "\n")
		}
	}
	if output.Len() > 0 {
		c.Output = &junitOutput{output.String()}
	}
	s.Cases = append(s.Cases, c)
	s.bytes += len(c.Name) + len(fault.Message) + len(fault.Text)
	if c.Output != nil {
		s.bytes += len(c.Output.Text)
	}
}

func (j *junit) flush() error {
	if !j.began {
		if _, err := fmt.Fprintf(j.w, "%s<testsuites name=%q>\n", xml.Header, j.o.Tool); err != nil {
			return err
		}
	}
	j.began = true
	if j.suite == nil {
		return nil
	}
	text, err := xml.MarshalIndent(j.suite, "  ", "  ")
	if err == nil {
		_, err = fmt.Fprintf(j.w, "%s\n", bytes.ReplaceAll(text, []byte(printable.OldCommand), []byte("#&#35;[")))
	}
	j.suite = nil
	return err
}

// Close implements Writer. What is not about a single object is the output of a case of its own.
func (j *junit) Close(s *Summary) error {
	if err := j.flush(); err != nil {
		return err
	}
	if s != nil {
		j.suite = s.suite(j.o.Tool)
		if err := j.flush(); err != nil {
			return err
		}
	}
	_, err := io.WriteString(j.w, "</testsuites>\n")
	return err
}

// suite returns a suite with what a summary says besides counts, nil if that is nothing.
func (s *Summary) suite(tool string) *junitSuite {
	var lines []string
	for i := range s.PolicyNotes {
		lines = append(lines, s.PolicyNotes[i].String())
	}
	doubts := s.Doubts()
	lines = append(append(lines, doubts...), s.exceptions()...)
	if s.Replay != nil {
		lines = append(lines, s.Replay.String())
	}
	if len(lines) == 0 {
		return nil
	}
	only := junitCase{Name: "summary", Class: tool, Output: &junitOutput{printable.Plain(strings.Join(lines, "\n"))}}
	suite := &junitSuite{Name: tool, Tests: 1}
	if len(doubts) > 0 { // what nobody tested did not pass
		only.Skipped = &junitFault{Message: printable.Plain(doubts[0])}
		suite.Skipped = 1
	}
	suite.Cases = []junitCase{only}
	return suite
}
