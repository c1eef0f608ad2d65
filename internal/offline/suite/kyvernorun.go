package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// An evaluation has the verdicts of the policies of a test on its objects, for an operation.
type evaluation struct {
	*kyvernoRun
	once sync.Once
	err  error

	trial   trial
	before  []*report.Result // which policies select the objects before mutation
	mutated []*report.Result // nil without mutating policies
	after   []*report.Result // of validating policies, on the mutated objects
}

func (k *kyvernoRun) evaluation(ctx context.Context, r *Runner, operation codec.Operation) (*evaluation, error) {
	k.mu.Lock()
	e := k.evaluations[operation]
	if e == nil {
		e = &evaluation{kyvernoRun: k}
		k.evaluations[operation] = e
	}
	k.mu.Unlock()
	e.once.Do(func() { e.err = e.run(ctx, r, operation) })
	return e, e.err
}

func (e *evaluation) run(ctx context.Context, r *Runner, operation codec.Operation) error {
	var probes, mutating trial
	var reads []translate.Read
	functions := false
	for _, p := range e.policies {
		reads, functions = append(reads, p.Reads...), functions || p.Functions
		source := e.items[e.documents(p)].Source
		var err error
		if p.Mutating != nil {
			err = probes.probe(p.Mutating.Name, p.Mutating.Spec.MatchConstraints, p.Mutating.Spec.MatchConditions, source)
			err = errors.Join(err, mutating.add(p.Mutating, source))
			for _, b := range p.MutatingBindings {
				err = errors.Join(err, mutating.add(b, source))
			}
		} else {
			spec := &p.Validating.Spec
			err = errors.Join(e.trial.validating(p.Validating, paramRef(p), source),
				e.trial.probe(p.Validating.Name, spec.MatchConstraints, spec.MatchConditions, source))
		}
		if err != nil {
			return err
		}
	}
	probes.probes = e.trial.probes
	ask := func(items []manifest.Item, objects []manifest.Item) ([]*report.Result, error) {
		results, _, err := r.Review(ctx, &Setup{
			Policies: slices.Clone(items), Functions: functions, Reads: reads, State: slices.Clone(e.state), Objects: slices.Clone(objects), Tree: e.tree, User: e.user,
			Namespace: "default", Operation: operation, GuessKinds: true, NoDefaults: true,
		})
		return results, errors.Join(err, unreviewed(results))
	}
	objects := e.objects
	if len(mutating.items) > 0 {
		var err error
		if e.before, err = ask(probes.items, objects); err != nil {
			return err
		}
		if e.mutated, err = ask(mutating.items, objects); err != nil {
			return err
		}
		objects = slices.Clone(objects)
		for i, result := range e.mutated {
			if result.After != nil {
				objects[i].JSON = result.After
			}
		}
		e.matchedBy(&probes)
	}
	if len(e.trial.items) == 0 {
		return nil
	}
	var err error
	e.after, err = ask(e.trial.items, objects)
	return err
}

func (e *evaluation) matchedBy(probes *trial) {
	if e.trial.matched == nil {
		e.trial.matched = make(map[string][2]string)
	}
	for name, names := range probes.matched {
		e.trial.matched["mutating "+name] = names
	}
}

// compare compares a result of the test for the object at an index with the verdict.
func (e *evaluation) compare(row *kyvernoResult, policy string, at int) (failures []string) {
	object := &e.objects[at]
	differ := func(rule, got string) {
		failures = append(failures, fmt.Sprintf("%s %q%s:\n- want %s\n+ got  %s", object.Kind, object.Metadata.Name, rule, row.Result, got))
	}
	selected, isSure := 0, false
	for _, p := range e.policies {
		isClassic := e.isClassic(p)
		if !e.isOf(p, row, policy) {
			continue
		}
		isSure = isSure || isClassic || !dropsEmpty(p)
		verdict, messages := e.verdict(p, at)
		if isClassic && verdict == verdictError { // as Kyverno calls it
			verdict = verdictFail
		}
		if verdict == verdictNone {
			continue
		}
		selected++
		want := row.Result
		if want == "warn" {
			want = verdictFail
		}
		shown := strings.TrimSuffix(", "+p.Rule, ", ")
		switch {
		case p.Mutating != nil && row.patched() != "":
			missing, difference := e.comparePatched(row, at)
			if missing && !row.FailOnMissing {
				continue
			}
			if want == verdictPass && difference != "" {
				failures = append(failures, fmt.Sprintf("%s %q%s: %s", object.Kind, object.Metadata.Name, shown, difference))
			} else if want != verdict {
				differ(shown, verdict+" "+strings.Join(messages, "; "))
			}
		case verdict != want:
			differ(shown, strings.TrimSpace(verdict+" "+strings.Join(messages, "; ")))
		}
	}
	if selected == 0 && !isSure {
		differ("", "no policy that selects it")
	}
	return failures
}

func (k *kyvernoRun) isClassic(p *translate.Policy) bool {
	return strings.HasPrefix(k.items[k.documents(p)].APIVersion, "kyverno.io/")
}

// isOf reports whether a row is about a policy: it comes from the document with this name, and from the rule of the row.
func (k *kyvernoRun) isOf(p *translate.Policy, row *kyvernoResult, name string) bool {
	return k.items[k.documents(p)].Metadata.Name == name && (!k.isClassic(p) || row.Rule == "" || isRule(p.Rule, row.Rule))
}

func (row *kyvernoResult) patched() string {
	if row.Patched != "" {
		return row.Patched
	}
	return row.PatchedResource
}

// isRule reports whether a rule is the one that a test names, or one of its variants for workloads.
func isRule(rule, named string) bool {
	return rule == named || rule == "autogen-"+named || rule == "autogen-cronjob-"+named
}

// dropsEmpty reports whether Kyverno has no result for an object that a policy does not select.
func dropsEmpty(p *translate.Policy) bool {
	match := p.Match()
	return len(match.ResourceRules) == 1 && match.NamespaceSelector == nil && match.ObjectSelector == nil &&
		len(match.ExcludeResourceRules) == 0 && len(match.ResourceRules[0].ResourceNames) == 0
}

func (e *evaluation) verdict(p *translate.Policy, at int) (verdict string, messages []string) {
	if p.Mutating == nil {
		return e.trial.verdict(e.after[at], p.Validating.Name)
	}
	verdict, messages = e.trial.verdict(e.before[at], "mutating "+p.Mutating.Name)
	if result := e.mutated[at]; verdict == verdictPass && (result.Decision == report.Denied || result.Decision == report.Failed) {
		return verdictError, []string{result.Message}
	}
	return verdict, messages
}

// comparePatched compares a mutated object with the one of the test. missing means that the
// test does not have it.
func (e *evaluation) comparePatched(row *kyvernoResult, at int) (missing bool, difference string) {
	path := filepath.Join(filepath.Dir(e.file), row.patched())
	result := e.mutated[at]
	for _, item := range manifest.Read([]string{path}, nil, func(string) files.Tree { return e.tree }) {
		if item.Fault != nil {
			return false, item.Fault.Error()
		}
		if keyOf(&item) != keyOf(&e.objects[at]) {
			continue
		}
		var got any
		_ = kjson.UnmarshalCaseSensitivePreserveInts(result.After, &got)
		return false, differenceOf(item.JSON, got)
	}
	return true, fmt.Sprintf("the object is not in %s", row.patched())
}

// sameNamespace gives an object without a namespace the one that it got in the review.
func sameNamespace(want, got any) {
	w, _ := want.(map[string]any)
	g, _ := got.(map[string]any)
	wanted, _ := w["metadata"].(map[string]any)
	has, _ := g["metadata"].(map[string]any)
	if wanted != nil && wanted["namespace"] == nil && has["namespace"] == "default" {
		delete(has, "namespace")
	}
}

// withoutEmpty leaves out nulls and empty maps and lists, as Kyverno does.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if member = withoutEmpty(member); member == nil {
				delete(value, name)
			} else {
				value[name] = member
			}
		}
		if len(value) == 0 {
			return nil
		}
	case []any:
		var kept []any
		for _, element := range value {
			if element = withoutEmpty(element); element != nil {
				kept = append(kept, element)
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	}
	return value
}
