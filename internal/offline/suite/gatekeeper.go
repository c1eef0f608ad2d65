package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// gatekeeperFile is the usual name of a file with a Suite of Gatekeeper.
const gatekeeperFile = "suite.yaml"

// gatorPoint is the enforcement point of Gatekeeper's tests.
const gatorPoint = "gator.gatekeeper.sh"

// A gatekeeperSuite is a Suite of test.gatekeeper.sh.
type gatekeeperSuite struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Skip  bool             `json:"skip"`
	Tests []gatekeeperTest `json:"tests"`
}

type gatekeeperTest struct {
	Name       string           `json:"name"`
	Template   string           `json:"template"`
	Constraint string           `json:"constraint"`
	Expansion  string           `json:"expansion"`
	Invalid    bool             `json:"invalid"`
	Skip       bool             `json:"skip"`
	Cases      []gatekeeperCase `json:"cases"`
}

type gatekeeperCase struct {
	Name       string      `json:"name"`
	Object     string      `json:"object"`
	Inventory  []string    `json:"inventory"`
	Assertions []assertion `json:"assertions"`
	Skip       bool        `json:"skip"`
}

type assertion struct {
	Violations any     `json:"violations"`
	Message    *string `json:"message"`
}

func (f *foreignFile) gatekeeper() (cases []check, err error) {
	s, err := f.gatekeeperSuite()
	if err != nil {
		return nil, err
	}
	s.eachCase(func(t *gatekeeperTest, c *gatekeeperCase, path string) {
		if c == nil {
			cases = append(cases, check{name: t.Name, line: f.document.Line(path), skipped: s.Skip || t.Skip,
				run: func(context.Context, *Runner) ([]string, error) { return nil, f.noCases(path) }})
			return
		}
		cases = append(cases, check{
			name: t.Name + "/" + c.Name, line: f.document.Line(path), skipped: s.Skip || t.Skip || c.Skip,
			run: func(ctx context.Context, r *Runner) ([]string, error) { return f.gatekeeperCase(ctx, r, t, c, path) },
		})
	})
	return cases, nil
}

// gatekeeperSuite decodes the suite.
func (f *foreignFile) gatekeeperSuite() (*gatekeeperSuite, error) {
	s := new(gatekeeperSuite)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(f.text, s); err != nil {
		return nil, f.document.Errorf("", "%v", err)
	}
	if len(s.Tests) == 0 {
		return nil, f.document.Errorf("tests", "got none, want at least one")
	}
	return s, nil
}

// eachCase calls visit for each case of each test, and with nil for a test without cases.
func (s *gatekeeperSuite) eachCase(visit func(t *gatekeeperTest, c *gatekeeperCase, path string)) {
	for i := range s.Tests {
		t, path := &s.Tests[i], index("tests", i)
		for j := range t.Cases {
			visit(t, &t.Cases[j], index(path+".cases", j))
		}
		if len(t.Cases) == 0 {
			visit(t, nil, path)
		}
	}
}

func (f *foreignFile) noCases(path string) error {
	return f.document.Errorf(path, "there are no cases; whether a Constraint is invalid in the schema of its template is not tested")
}

// gatekeeperSetup reads the files of a case, and returns its policy and its request.
func (f *foreignFile) gatekeeperSetup(t *gatekeeperTest, c *gatekeeperCase, path string) (*translate.Policy, *Setup, error) {
	switch {
	case t.Expansion != "":
		return nil, nil, f.document.Errorf(path, "the test has an expansion, which has no translation")
	case len(c.Assertions) == 0:
		return nil, nil, f.document.Errorf(path, "got no assertions, want at least one")
	}
	given, err := f.read(path, t.Template, t.Constraint)
	if err != nil {
		return nil, nil, err
	}
	translated := policies.Translate(given, translate.Options{Point: gatorPoint})
	if translated.Errors != nil {
		return nil, nil, errors.Join(translated.Errors...)
	}
	if len(translated.Policies) != 1 {
		return nil, nil, f.document.Errorf(path, "got %d Constraints in %s, want one", len(translated.Policies), t.Constraint)
	}
	objects, err := f.read(path+".object", c.Object)
	if err != nil {
		return nil, nil, err
	}
	if len(objects) != 1 {
		return nil, nil, f.document.Errorf(path+".object", "got %d objects, want one", len(objects))
	}
	inventory, err := f.read(path+".inventory", c.Inventory...)
	if err != nil {
		return nil, nil, err
	}
	setup := &Setup{
		State: inventory, Objects: objects, Tree: f.tree, Namespace: "default", GuessKinds: true, NoDefaults: true,
	}
	if objects[0].Kind == "AdmissionReview" {
		if err := f.recorded(setup, path+".object"); err != nil {
			return nil, nil, err
		}
	}
	return translated.Policies[0], setup, nil
}

func (f *foreignFile) gatekeeperCase(ctx context.Context, r *Runner, t *gatekeeperTest, c *gatekeeperCase, path string) (failures []string, err error) {
	policy, setup, err := f.gatekeeperSetup(t, c, path)
	if err != nil {
		return nil, err
	}
	var messages []string
	if len(policy.ValidatingBindings) > 0 {
		var trial trial
		if err := trial.validating(policy.Validating, nil, manifest.Source{File: t.Constraint}); err != nil {
			return nil, err
		}
		setup.Policies = trial.items
		results, _, err := r.Review(ctx, setup)
		if err = errors.Join(err, unreviewed(results)); err != nil {
			return nil, err
		}
		messages = saidBy(results[0], policy.Validating.Name)
	}
	for i, a := range c.Assertions {
		failure, err := a.compare(messages)
		if err != nil {
			return nil, f.document.Errorf(index(path+".assertions", i), "%v", err)
		}
		if failure != "" {
			failures = append(failures, failure)
		}
	}
	return failures, nil
}

// recorded takes the object, operation and user of a setup from its AdmissionReview, which has
// little else in such tests.
func (f *foreignFile) recorded(setup *Setup, path string) error {
	var given struct {
		Request struct {
			Object    json.RawMessage `json:"object"`
			OldObject json.RawMessage `json:"oldObject"`
			Operation codec.Operation `json:"operation"`
			UserInfo  review.User     `json:"userInfo"`
		} `json:"request"`
	}
	source := setup.Objects[0].Source
	if err := kjson.UnmarshalCaseSensitivePreserveInts(setup.Objects[0].JSON, &given); err != nil {
		return f.document.Errorf(path, "%v", err)
	}
	parse := func(text []byte) []manifest.Item {
		if len(text) == 0 || string(text) == "null" {
			return nil
		}
		return manifest.Parse(source.File, text)
	}
	setup.Operation, setup.User = given.Request.Operation, given.Request.UserInfo
	setup.Objects, setup.Old = parse(given.Request.Object), parse(given.Request.OldObject)
	if setup.Operation == codec.Delete {
		setup.Objects, setup.Old = setup.Old, nil
	}
	if len(setup.Objects) != 1 {
		return f.document.Errorf(path, "got an AdmissionReview without an object; a DELETE needs an oldObject")
	}
	return nil
}

// compare returns how the messages of violations differ from an assertion, "" if they do not.
func (a *assertion) compare(all []string) (string, error) {
	messages := all
	if a.Message != nil {
		wanted, err := regexp.Compile(*a.Message)
		if err != nil {
			return "", fmt.Errorf("message: %w", err)
		}
		messages = slices.DeleteFunc(slices.Clone(all), func(m string) bool { return !wanted.MatchString(m) })
	}
	var ok bool
	var want string
	switch v := a.Violations.(type) {
	case nil:
		ok, want = len(messages) > 0, "at least one"
	case bool: // as YAML reads yes and no
		ok, want = (len(messages) > 0) == v, map[bool]string{true: "at least one", false: "none"}[v]
	case int64:
		ok, want = int64(len(messages)) == v, fmt.Sprint(v)
	case string:
		if v != "yes" && v != "no" {
			return "", fmt.Errorf("violations: got %q, want yes, no or a number", v)
		}
		ok, want = (len(messages) > 0) == (v == "yes"), v
	default:
		return "", fmt.Errorf("violations: got %v, want yes, no or a number", v)
	}
	if ok {
		return "", nil
	}
	if a.Message != nil {
		want += fmt.Sprintf(" with a message that matches %q", *a.Message)
	}
	return fmt.Sprintf("violations:\n- want %s\n+ got  %d: %q", want, len(messages), all), nil
}
