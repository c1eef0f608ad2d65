package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// A foreignFile is a file with tests of another engine.
type foreignFile struct {
	file     string
	tree     files.Tree
	name     string
	text     []byte // JSON
	document *strictyaml.Document
}

// A check is a case of such a file.
type check struct {
	name string
	line int
	// run returns the differences from what is expected. skipped is true for a case that its
	// file skips.
	run     func(ctx context.Context, r *Runner) (failures []string, err error)
	skipped bool
}

// openForeign reads a file of another engine. It returns nil for other files.
func openForeign(file File) (f *foreignFile, isKyverno bool, err error) {
	content, err := file.Tree.Read(file.Name)
	if err != nil {
		return nil, false, nil // Read reports it
	}
	items := manifest.Parse(file.Name, content)
	if len(items) != 1 || items[0].Fault != nil {
		return nil, false, nil // as above
	}
	item := &items[0]
	f = &foreignFile{file: file.Name, tree: file.Tree, name: file.Name, text: item.JSON}
	group, _, _ := strings.Cut(item.APIVersion, "/")
	isKyverno, isGatekeeper := group == "cli.kyverno.io" && item.Kind == "Test", group == "test.gatekeeper.sh" && item.Kind == "Suite"
	if !isKyverno && !isGatekeeper {
		return nil, false, nil
	}
	f.document, err = strictyaml.Parse(file.Name, content)
	return f, isKyverno, err
}

// readForeign returns the cases of a file of another engine. isForeign is false for other files.
func readForeign(file File) (name string, cases []check, isForeign bool, err error) {
	f, isKyverno, err := openForeign(file)
	switch {
	case f == nil || err != nil:
		return "", nil, f != nil, err
	case isKyverno:
		cases, err = f.kyverno()
	default:
		cases, err = f.gatekeeper()
	}
	return f.name, cases, true, err
}

// isOther reports whether a file that Find found only by its name is not a suite of any engine.
func isOther(file File) bool {
	if filepath.Base(file.Name) != gatekeeperFile {
		return false
	}
	content, err := file.Tree.Read(file.Name)
	if err != nil {
		return false
	}
	items := manifest.Parse(file.Name, content)
	return len(items) > 0 && items[0].Fault == nil && !strings.HasPrefix(items[0].APIVersion, "test.gatekeeper.sh/")
}

// read reads the objects of files that the suite names at a path.
func (f *foreignFile) read(path string, names ...string) (items []manifest.Item, err error) {
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(filepath.Dir(f.file), name))
	}
	items = manifest.Read(paths, nil, func(string) files.Tree { return f.tree })
	var errs []error
	for i := range items {
		if fault := items[i].Fault; fault != nil {
			errs = append(errs, f.document.Errorf(path, "%v", fault))
		}
	}
	return items, errors.Join(errs...)
}

// verdicts of a policy on an object.
const (
	verdictNone  = "" // the policy does not select the object
	verdictSkip  = "skip"
	verdictPass  = "pass"
	verdictFail  = "fail"
	verdictError = "error"
)

// A trial finds the verdict of each policy on each object. A policy without a denial either does not
// select the object, or has a match condition that is false, or allows the object. To distinguish these
// cases, a trial adds two probes for each policy: they deny all objects that the policy selects, one without
// its match conditions and one with them.
type trial struct {
	items   []manifest.Item
	probes  int
	matched map[string][2]string // by the policy: those that deny what is selected, without and with conditions
}

const probeMessage = "selected"

// isError finds the messages of expressions that fail.
func isError(message string) bool {
	return strings.Contains(message, "resulted in error") || strings.Contains(message, "failed to evaluate") || strings.Contains(message, "compilation")
}

func (t *trial) add(object any, source manifest.Source) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var members map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &members); err != nil {
		return err
	}
	delete(members, "status")
	if text, err = json.Marshal(members); err != nil {
		return err
	}
	for _, item := range manifest.Parse(source.File, text) {
		item.Source = source
		t.items = append(t.items, item)
	}
	return nil
}

// validating adds a policy, whose denials become warnings.
func (t *trial) validating(p *admissionregistrationv1.ValidatingAdmissionPolicy, ref *admissionregistrationv1.ParamRef, source manifest.Source) error {
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	binding.APIVersion, binding.Kind, binding.Name = p.APIVersion, p.Kind+"Binding", p.Name
	binding.Spec.PolicyName, binding.Spec.ParamRef = p.Name, ref
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	return errors.Join(t.add(p, source), t.add(binding, source))
}

// probe adds the two probes of a policy.
func (t *trial) probe(name string, match *admissionregistrationv1.MatchResources, conditions []admissionregistrationv1.MatchCondition, source manifest.Source) error {
	var names [2]string
	for i, conditions := range [2][]admissionregistrationv1.MatchCondition{nil, conditions} {
		p := new(admissionregistrationv1.ValidatingAdmissionPolicy)
		p.APIVersion, p.Kind = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"
		p.Name = fmt.Sprintf("fastadmit-probe-%d", t.probes)
		t.probes++
		names[i] = p.Name
		p.Spec.MatchConstraints, p.Spec.MatchConditions = match, conditions
		p.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "false", Message: probeMessage}}
		if err := t.validating(p, nil, source); err != nil {
			return err
		}
	}
	if t.matched == nil {
		t.matched = make(map[string][2]string)
	}
	t.matched[name] = names
	return nil
}

// verdict returns the verdict of a policy, and the messages of its failing validations.
func (t *trial) verdict(result *report.Result, policy string) (verdict string, messages []string) {
	if probes, ok := t.matched[policy]; ok {
		if len(saidBy(result, probes[0])) == 0 {
			return verdictNone, nil
		}
		of := saidBy(result, probes[1])
		switch {
		case len(of) == 0:
			return verdictSkip, nil
		case isError(of[0]):
			return verdictError, of
		}
	}
	messages = saidBy(result, policy)
	switch {
	case len(messages) == 0:
		return verdictPass, nil
	case isError(messages[0]):
		return verdictError, messages
	}
	return verdictFail, messages
}

// saidBy returns the warnings of a policy, without the prefix with the names of policy and binding.
func saidBy(result *report.Result, policy string) (messages []string) {
	for _, w := range result.Warnings {
		if strings.Contains(w.Message, "'"+policy+"' with binding") {
			messages = append(messages, said(w.Message))
		}
	}
	return messages
}

// unreviewed returns an error if an object could not be reviewed.
func unreviewed(results []*report.Result) error {
	for _, result := range results {
		if broken := brokenIn(result); broken != nil {
			return fmt.Errorf("%s: %s cannot be reviewed: %s", result.Location(), broken.Object(), broken.Message)
		}
	}
	return nil
}

// paramRef returns the parameters that the bindings of a policy name.
func paramRef(p *translate.Policy) *admissionregistrationv1.ParamRef {
	at := slices.IndexFunc(p.ValidatingBindings, func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool { return b.Spec.ParamRef != nil })
	if at < 0 {
		return nil
	}
	return p.ValidatingBindings[at].Spec.ParamRef
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
