package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// readPolicies finds the policies in the files of --policies and among the input. It
// returns the other objects of these files.
func (r *reviewOptions) readPolicies(input []manifest.Item) (others []manifest.Item, err error) {
	if r.bindPolicies != "" && !slices.Contains(policies.Actions, r.bindPolicies) {
		return nil, fmt.Errorf("--bind-policies: got %q, want one of %s", r.bindPolicies, strings.Join(policies.Actions, ", "))
	}
	var items []manifest.Item
	if len(r.policyFiles) > 0 {
		items = manifest.Read(r.policyFiles, nil, r.trees())
		r.evaluated = make(map[string]bool)
		for i := range items {
			r.evaluated[items[i].File] = true
		}
		faults := policyFaults(items)
		faults = append(faults, policies.Replaced(items, r.notAmongPolicies(input), r.namespace)...)
		if faults != nil {
			return nil, failed(errors.Join(faults...))
		}
	}
	others, errs := r.usePolicies(items, nil, input)
	if errs != nil {
		if !r.policies.IsEmpty() {
			errs = append(errs, errors.New("--skip-untranslatable evaluates the other policies"))
		}
		return nil, failed(errors.Join(errs...))
	}
	if r.output == "sarif" {
		r.policies.AddTexts(r.policyTexts, r.ruleTexts)
	}
	if len(r.policyFiles) > 0 && len(others) == len(items) {
		return nil, failed(fmt.Errorf("--policies: there is no policy in %s", strings.Join(r.policyFiles, ", ")))
	}
	return slices.DeleteFunc(others, func(item manifest.Item) bool { return item.Fault != nil }), nil
}

// clusterState returns the objects in the folder of the cluster, which it reads once.
func (r *reviewOptions) clusterState() []manifest.Item {
	if r.state == nil && r.cluster.dir != "" {
		r.state = manifest.Read([]string{r.cluster.dir}, nil, r.trees())
	}
	return r.state
}

// notAmongPolicies returns the items whose files are not in --policies, too.
func (r *reviewOptions) notAmongPolicies(items []manifest.Item) []manifest.Item {
	return slices.DeleteFunc(slices.Clone(items), func(item manifest.Item) bool { return r.evaluated[item.File] })
}

// policyFaults returns what is wrong with files of policies: documents that cannot be read, and misspelled kinds.
func policyFaults(items []manifest.Item) (faults []error) {
	for i := range items {
		fault := items[i].Fault
		if fault == nil {
			if err := policies.Unknown(items[i].GroupVersionKind()); err != nil {
				fault = &manifest.Error{Source: items[i].Source, Err: err}
			}
		}
		if fault != nil && !fault.IsNoObject() {
			faults = append(faults, fault)
		}
	}
	return faults
}

// usePolicies evaluates the policies among given, which enables their plugins, and
// those among the input if the plugins are enabled. Only the exceptions among given count. Parameters are taken from all of
// these objects, and from those of the state of the cluster. It returns the other
// objects of given, and errors about policies of other engines without a translation.
func (r *reviewOptions) usePolicies(given, state, input []manifest.Item) (others []manifest.Item, errs []error) {
	translated, errs := r.policies.AddForeign(given, !r.inCluster && r.cluster.kubeconfig == "", r.skipUntranslatable)
	if r.policies.Add(given)+r.policies.AddExceptions(given)+translated > 0 {
		r.policies.Enable()
	}
	input = r.notAmongPolicies(input)
	r.policies.Add(input)
	r.policies.NoteExceptions(input)
	if r.bindPolicies != "" {
		r.policies.Bind(r.bindPolicies)
	}
	if (r.policies.Reads() || r.policies.HasParams()) && r.cluster.dir != "" {
		state = slices.Concat(r.clusterState(), state)
	}
	r.policies.UseParams(slices.Concat(given, state, input), r.namespace)
	r.cluster.kinds = append(slices.Clip(r.cluster.kinds), r.policies.ReadKinds()...)
	for _, item := range given {
		if item.Fault != nil || !policies.IsPolicy(item.GroupVersionKind()) {
			others = append(others, item)
		}
	}
	if len(r.policyFiles) > 0 {
		r.policies.NoteUnknown(others)
	}
	return others, errs
}

// notePolicies prints which policies are not evaluated, if any could be, which exceptions lift nothing, names in rules that Kubernetes does
// not have, and errors in expressions that types show. It returns those that are about policies alone.
func (r *reviewOptions) notePolicies(ctx context.Context, w io.Writer, chain *admission.Chain) []report.PolicyNote {
	for _, note := range r.policyNotes(chain) {
		fmt.Fprintf(w, "fastadmit: %s\n", printable.Plain(note))
	}
	notes := r.policies.FieldNotes(ctx)
	printFieldNotes(w, notes)
	return reportedNotes(append(r.policies.UnboundNotes(), notes...))
}

// twiceMax is how many notes there are on objects that are given twice: test data has many.
const twiceMax = 10

// noteInput prints which policies among the objects to review are not evaluated, and which objects are given twice. It returns the
// notes that --strict counts.
func (r *reviewOptions) noteInput(w io.Writer, o *review.Options, items []manifest.Item) []report.PolicyNote {
	notes, foreign := r.policies.NoteInput(items, r.evaluated)
	twice := review.GivenTwice(slices.Concat(o.State, items), o.Namespace, r.policies.Used())
	for i := range twice[:min(len(twice), twiceMax)] {
		notes = append(notes, policies.Note{Source: twice[i].Second, Text: twice[i].String()})
	}
	if n := len(twice) - twiceMax; n > 0 {
		notes = append(notes, policies.Note{Text: fmt.Sprintf("%d more objects are given twice, with other contents", n)})
	}
	if foreign != "" {
		fmt.Fprintf(w, "fastadmit: %s\n", printable.Plain(foreign))
	}
	printFieldNotes(w, notes)
	return reportedNotes(notes)
}

func reportedNotes(notes []policies.Note) (reported []report.PolicyNote) {
	for i := range notes {
		reported = append(reported, report.PolicyNote{File: notes[i].File, Line: notes[i].Line, Message: notes[i].Text})
	}
	return reported
}

func printFieldNotes(w io.Writer, notes []policies.Note) {
	for i := range notes {
		fmt.Fprintf(w, "fastadmit: %s\n", printable.Plain(notes[i].String()))
	}
}

func (r *reviewOptions) policyNotes(chain *admission.Chain) []string {
	notes := r.policies.Notes()
	if exceptions := chain.Exceptions(); exceptions != nil {
		notes = append(notes, exceptions.Unknown()...)
	}
	return notes
}

// seenRequests collects the requests of a review.
type seenRequests struct {
	given    map[string]bool // the namespaces that somebody gave, nil if the others do not exist
	hasUser  bool
	isSame   bool // updates change nothing, because nobody gave the objects before
	requests policies.Requests

	templates    []policies.Note // on templates of Pods that are not reviewed
	hasTemplates map[string]bool // by what addTemplate says of them
}

// newSeenRequests is for a review of objects, some of which are Namespaces.
func (r *reviewOptions) newSeenRequests(items, state []manifest.Item) *seenRequests {
	v := &seenRequests{hasUser: r.user.Username != "", isSame: r.changesNothing(items), hasTemplates: make(map[string]bool)}
	if r.cluster.kubeconfig != "" || r.cluster.dir != "" {
		return v
	}
	v.given = make(map[string]bool)
	for _, given := range [][]manifest.Item{items, state} {
		for i := range given {
			if item := &given[i]; item.Fault == nil && item.GroupVersionKind() == (schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
				v.given[item.Metadata.Name] = true
			}
		}
	}
	return v
}

// changesNothing reports whether objects are updates of themselves. An AdmissionReview has the object before.
func (r *reviewOptions) changesNothing(items []manifest.Item) bool {
	return strings.EqualFold(r.operation, string(codec.Update)) && len(r.old) == 0 && slices.ContainsFunc(items, func(item manifest.Item) bool {
		return item.Fault == nil && item.Kind != "AdmissionReview"
	})
}

// sameNote is what is said if updates change nothing.
const sameNote = "--operation=UPDATE without --old changes nothing, and plugins such as PodSecurity do not check what does not change, so " +
	"they may allow what they would deny; give the objects before the update with --old"

func (v *seenRequests) add(root *report.Result) {
	v.addTemplate(root)
	root.Walk(func(result *report.Result, _ int) {
		version, err := schema.ParseGroupVersion(result.APIVersion)
		if err != nil || result.Resource == "" {
			return
		}
		isUnlabeled := v.given != nil && result.Namespace != "" && !v.given[result.Namespace] && result.Kind != "Namespace"
		v.requests.Add(admission.Attributes{
			Operation: codec.Operation(result.Operation), SubResource: result.SubResource, Namespace: result.Namespace,
			Resource: codec.GroupVersionResource{Group: version.Group, Version: version.Version, Resource: result.Resource},
		}, isUnlabeled, !v.hasUser && result.User == "")
	})
}

// readAnnotations are plugins that only do what the annotations of namespaces say, unless they have a configuration of their own.
var readAnnotations = []string{"PodNodeSelector", "PodTolerationRestriction"}

// noteGiven prints which policies are not evaluated because of what nobody gave. It returns these notes.
func (r *reviewOptions) noteGiven(w io.Writer, v *seenRequests, chain *admission.Chain) []report.PolicyNote {
	notes := append(r.policies.GivenNotes(&v.requests, r.cluster.kubeconfig != ""), v.noteTemplates(chain)...)
	notes = append(notes, r.noteRegistration(v, chain)...)
	if v.isSame {
		notes = append(notes, policies.Note{Text: sameNote})
	}
	for _, plugin := range chain.Plugins() {
		if slices.Contains(readAnnotations, plugin.Name) && r.configs[plugin.Name] == nil {
			notes = append(notes, policies.Unannotated(plugin.Name, plugin.Rules, &v.requests)...)
		}
		at := slices.IndexFunc(r.settings, func(p config.Plugin) bool { return p.Name == plugin.Name })
		if at < 0 {
			continue
		}
		own := &r.settings[at]
		notes = append(notes, policies.Unselected(r.configFile, plugin.Name, own.NamespaceSelector, plugin.Rules, &v.requests)...)
		for i := range own.Enforcement {
			selector := own.Enforcement[i].NamespaceSelector
			notes = append(notes, policies.Unselected(r.configFile, plugin.Name+".enforcement", selector, plugin.Rules, &v.requests)...)
		}
	}
	printFieldNotes(w, notes)
	return reportedNotes(notes)
}
