// Package suite runs tests of policies and of the configuration of plugins. A suite is a
// YAML file with cases. Each case has an object and the expected result.
package suite

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// The apiVersion and kind of a suite.
const (
	APIVersion = "fastadmit.io/v1alpha1"
	Kind       = "TestSuite"
)

// Suite is a file with cases. Paths in it are relative to the folder of the file.
type Suite struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name,omitempty"` // by default the path of the file

	// Policies are policies and bindings, or files or folders with them.
	Policies []Given `json:"policies,omitempty"`
	// BindPolicies creates bindings for policies without a binding, with this validation
	// action: Deny, Warn or Audit. If it is empty, these policies are not evaluated.
	BindPolicies string `json:"bindPolicies,omitempty"`
	// These correspond to the flags with the same names.
	EnableAdmissionPlugins     []string `json:"enableAdmissionPlugins,omitempty"`
	AdmissionControlConfigFile string   `json:"admissionControlConfigFile,omitempty"`
	Config                     string   `json:"config,omitempty"`

	// Common contains the defaults of all cases. The objects in Cluster are added to those
	// of each case.
	Common `json:",inline"`
	Cases  []Case `json:"cases"`

	file     string
	tree     files.Tree
	document *strictyaml.Document
	policies []manifest.Item
	state    []manifest.Item

	// For notes.
	positions manifest.Positions
	fields    []fieldNote
	uses      policyUses
}

// Common contains the fields that suites and cases have in common.
type Common struct {
	// Cluster are the existing objects of the cluster, such as Namespaces and parameters,
	// or files or folders with them.
	Cluster []Given `json:"cluster,omitempty"`
	// User is the user of the request.
	User *review.User `json:"user,omitempty"`
	// Namespace is the namespace of objects without one. The default is "default".
	Namespace string `json:"namespace,omitempty"`
	// WorkloadPods also reviews the objects that controllers create for the object.
	WorkloadPods *bool `json:"workloadPods,omitempty"`
	// Defaults sets the defaults of kube-apiserver in objects. It is true by default.
	Defaults *bool `json:"defaults,omitempty"`
}

// Case is a test: a review of one object, or of each object in a file.
type Case struct {
	Name string `json:"name"`
	// Policies are added to those of the suite.
	Policies []Given `json:"policies,omitempty"`
	Common   `json:",inline"`
	// Object is the object to review, or a file with one or more objects. An
	// AdmissionReview is reviewed unchanged.
	Object Given `json:"object"`
	// OldObject is the object before an UPDATE.
	OldObject Given `json:"oldObject"`
	// Operation is CREATE, UPDATE or DELETE. By default it is UPDATE if there is an
	// OldObject, otherwise CREATE.
	Operation codec.Operation `json:"operation,omitempty"`
	Expect    Expect          `json:"expect"`

	line                                int
	policies, object, old, state, whole []manifest.Item
}

// Given is an object, or the path of a file.
type Given struct {
	path   string
	object json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *Given) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '{' {
		g.object = bytes.Clone(text)
		return nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &g.path); err != nil || g.path == "" {
		return errors.New("want the path of a file, or an object")
	}
	return nil
}

func (g *Given) isSet() bool { return g.path != "" || g.object != nil }

// patterns are the names of files with suites.
var patterns = []string{"fastadmit-test.yaml", "fastadmit-test.yml", "*.test.yaml", "*.test.yml", kyvernoFile, "kyverno-test.yml", gatekeeperFile}

// File is a file with a suite.
type File struct {
	Name string
	// Tree has the files that the suite may name.
	Tree files.Tree
}

// Find returns the files with suites, sorted by name and without duplicates. In folders and
// their subfolders, it finds files with the name fastadmit-test.yaml or a name that ends with
// .test.yaml; .yml is possible too. It also finds kyverno-test.yaml and suite.yaml, the tests of
// Kyverno and Gatekeeper. Hidden files and folders are skipped, but for .kyverno-test. It is an error if a
// folder contains no suite. The suites of a folder may name files in it, and a path that is a
// file may name those of its folder; with outside, all may name any file.
func Find(paths []string, outside bool) (found []File, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		tree := files.Tree(path)
		if !info.IsDir() {
			tree = files.Tree(filepath.Dir(path))
		}
		if outside {
			tree = ""
		}
		if !info.IsDir() {
			found = append(found, File{path, tree})
			continue
		}
		before := len(found)
		err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
			isHidden := name != path && strings.HasPrefix(entry.Name(), ".") && entry.Name() != kyvernoFolder
			switch {
			case err != nil:
				return err
			case isHidden && entry.IsDir():
				return fs.SkipDir
			case !isHidden && !entry.IsDir() && isSuite(entry.Name()):
				if file := (File{name, tree}); !isOther(file) {
					found = append(found, file)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(found) == before {
			return nil, fmt.Errorf("%s: there is no suite: no file has one of the names %s", path, strings.Join(patterns, ", "))
		}
	}
	slices.SortStableFunc(found, func(a, b File) int { // the larger one of two trees first, which has the shorter path
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(len(a.Tree), len(b.Tree)))
	})
	return slices.CompactFunc(found, func(a, b File) bool { return a.Name == b.Name }), nil
}

func isSuite(name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, _ := filepath.Match(pattern, name) // the patterns are good
		return matched
	})
}

// Read reads a suite and the files that it names. The error joins all errors, with file and
// line. Of a file with other objects, it is one error.
func Read(file File) (*Suite, error) {
	content, err := file.Tree.Read(file.Name)
	if err != nil {
		return nil, err
	}
	items := manifest.Parse(file.Name, content)
	if len(items) > 0 && items[0].Fault == nil && items[0].Metadata.Name != "" { // a suite has no metadata
		return nil, fmt.Errorf("%s: got a %s of %s, want a %s of %s, which names files with policies and objects", file.Name,
			items[0].Kind, items[0].APIVersion, Kind, APIVersion)
	}
	s := &Suite{file: file.Name, tree: file.Tree}
	if s.document, err = strictyaml.Parse(file.Name, content); err != nil {
		return nil, err
	}
	errs, decoded := s.document.Decode(s)
	if decoded {
		errs = append(errs, s.check()...)
	}
	if err := strictyaml.Join(errs...); err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = file.Name
	}
	return s, nil
}

// check says what is wrong with the suite, and reads the files that it names.
func (s *Suite) check() (errs []error) {
	refuse := func(path, format string, args ...any) { errs = append(errs, s.document.Errorf(path, format, args...)) }
	if s.APIVersion != APIVersion {
		refuse("apiVersion", "got %q, want %q", s.APIVersion, APIVersion)
	}
	if s.Kind != Kind {
		refuse("kind", "got %q, want %q", s.Kind, Kind)
	}
	if s.BindPolicies != "" && !slices.Contains(policies.Actions, s.BindPolicies) {
		refuse("bindPolicies", "got %q, want one of %s", s.BindPolicies, strings.Join(policies.Actions, ", "))
	}
	if len(s.Cases) == 0 {
		refuse("cases", "got none, want at least one")
	}
	var faults []error
	s.policies, faults = s.readAll(s.Policies, "policies")
	errs = append(errs, faults...)
	s.state, faults = s.readState(nil, s.Cluster, "cluster")
	errs = append(errs, faults...)
	for _, named := range [...]struct{ field, file string }{{"config", s.Config}, {"admissionControlConfigFile", s.AdmissionControlConfigFile}} {
		if named.file == "" {
			continue
		}
		if _, err := s.tree.Stat(s.path(named.file)); errors.Is(err, fs.ErrNotExist) {
			refuse(named.field, "%v", err) // what else is wrong with it is said with its lines
		}
	}
	names := make(map[string]bool)
	for i := range s.Cases {
		c, path := &s.Cases[i], fmt.Sprintf("cases[%d]", i)
		c.line = s.document.Line(path)
		if names[c.Name] || c.Name == "" {
			refuse(path+".name", "got %q, want a name that no other case has", c.Name)
		}
		names[c.Name] = true
		errs = append(errs, s.checkCase(c, path)...)
	}
	return errs
}

func (s *Suite) checkCase(c *Case, path string) (errs []error) {
	refuse := func(field, format string, args ...any) {
		errs = append(errs, s.document.Errorf(path+"."+field, format, args...))
	}
	if !slices.Contains([]codec.Operation{"", codec.Create, codec.Update, codec.Delete}, c.Operation) {
		refuse("operation", "got %q, want CREATE, UPDATE or DELETE", c.Operation)
	}
	isOptional := len(c.Expect.Policies) > 0 || c.Expect.WholeObject.isSet()
	if !slices.Contains(decisions, c.Expect.Decision) && (c.Expect.Decision != "" || !isOptional) {
		refuse("expect.decision", "got %q, want one of %s", c.Expect.Decision, strings.Join(decisions, ", "))
	}
	for i := range c.Expect.Policies {
		c.Expect.Policies[i].check(func(field, format string, args ...any) {
			refuse(fmt.Sprintf("expect.policies[%d].%s", i, field), format, args...)
		})
	}
	if !c.Object.isSet() {
		refuse("object", "got none, want the path of a file, or an object")
		return errs
	}
	var faults []error
	c.object, faults = s.read(&c.Object, path+".object")
	s.noteFields(c, c.object, &c.Object, path+".object")
	errs = append(errs, faults...)
	if len(c.object) == 0 && faults == nil {
		refuse("object", "there is no object in %s", c.Object.path)
	}
	if c.OldObject.isSet() {
		c.old, faults = s.read(&c.OldObject, path+".oldObject")
		s.noteFields(c, c.old, &c.OldObject, path+".oldObject")
		errs = append(errs, faults...)
	}
	if c.Expect.WholeObject.isSet() {
		c.whole, faults = s.read(&c.Expect.WholeObject, path+".expect.wholeObject")
		errs = append(errs, faults...)
	}
	c.policies, faults = s.readAll(c.Policies, path+".policies")
	errs = append(errs, faults...)
	c.state, faults = s.readState(c, c.Cluster, path+".cluster")
	return append(errs, faults...)
}

func (s *Suite) readAll(all []Given, path string) (items []manifest.Item, errs []error) {
	for i := range all {
		some, faults := s.read(&all[i], fmt.Sprintf("%s[%d]", path, i))
		items, errs = append(items, some...), append(errs, faults...)
	}
	return items, errs
}

// readState is readAll for the objects of the cluster of a case, or of all cases if c is nil.
func (s *Suite) readState(c *Case, all []Given, path string) (items []manifest.Item, errs []error) {
	for i := range all {
		at := index(path, i)
		some, faults := s.read(&all[i], at)
		s.noteFields(c, some, &all[i], at)
		items, errs = append(items, some...), append(errs, faults...)
	}
	return items, errs
}

// read returns the objects that are given at a path of the suite. Of folders, suites
// and other documents that are no Kubernetes objects are left out.
func (s *Suite) read(g *Given, path string) (items []manifest.Item, errs []error) {
	if g.object != nil {
		items = manifest.Parse(s.file, g.object)
		for i := range items {
			items[i].Line = s.document.Line(path)
		}
	} else {
		items = manifest.Read([]string{s.path(g.path)}, nil, func(string) files.Tree { return s.tree })
	}
	for i := range items {
		fault := items[i].Fault
		if fault == nil {
			continue
		}
		switch {
		case g.object != nil:
			errs = append(errs, s.document.Errorf(path, "%v", fault.Err)) // the line is that of the path
		case !fault.IsNoObject():
			errs = append(errs, s.document.Errorf(path, "%v", fault))
		}
	}
	return slices.DeleteFunc(items, func(item manifest.Item) bool {
		return item.Fault != nil || item.APIVersion == APIVersion && item.Kind == Kind
	}), errs
}

// path returns where a file is that the suite names, "" for none.
func (s *Suite) path(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(s.file), name)
}

// Text is an expected text. The actual text must be equal to it, contain it, or match it as
// a regular expression. A message of a policy may also be equal without its prefix.
type Text struct {
	equals, contains string
	matches          *regexp.Regexp
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(text []byte) error {
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &t.equals) == nil {
		return nil
	}
	const want = `want a text, or {contains: "text"}, or {matches: "regular expression"}`
	var given map[string]string
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &given) != nil || len(given) != 1 {
		return errors.New(want)
	}
	for how, text := range given {
		switch how {
		case "contains":
			t.contains = text
		case "matches":
			expression, err := regexp.Compile(text)
			if err != nil {
				return err
			}
			t.matches = expression
		default:
			return errors.New(want)
		}
	}
	return nil
}

func (t *Text) String() string {
	switch {
	case t.matches != nil:
		return fmt.Sprintf("a text that matches %q", t.matches)
	case t.contains != "":
		return fmt.Sprintf("a text that contains %q", t.contains)
	}
	return fmt.Sprintf("%q", t.equals)
}

// is reports whether a text of the plugins is the one that is wanted: all of it, or
// what a policy said without what stands before.
func (t *Text) is(got string) bool {
	switch {
	case t.matches != nil:
		return t.matches.MatchString(got)
	case t.contains != "":
		return strings.Contains(got, t.contains)
	}
	return got == t.equals || said(got) == t.equals
}

// beforeSaid is what stands before the message of a policy.
var beforeSaid = regexp.MustCompile(`^.*?(?:Policy '[^']*'(?: with binding '[^']*')? denied request: |Validation failed for ValidatingAdmissionPolicy '[^']*' with binding '[^']*': )`)

func said(message string) string { return strings.TrimPrefix(message, beforeSaid.FindString(message)) }

// decisions are those that a case can expect. "patched" is allowed and changed,
// "allowed" is with or without a change.
var decisions = []string{string(report.Allowed), string(report.Patched), string(report.Denied), string(report.Failed)}
