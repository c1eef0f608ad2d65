// Package policies finds admission policies and their bindings in manifests. It is for
// commands that evaluate policies from files that the configuration does not name.
package policies

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	engine "github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// kubernetesVersion is the version as which documents of customGroup are read.
const kubernetesVersion = "admissionregistration.k8s.io/v1"

// The groups of the API that have policies. Their kinds and fields are the same.
const (
	kubernetesGroup = "admissionregistration.k8s.io"
	customGroup     = "policies.fastadmit.io"
)

// A kind of policies has the name of the plugin that evaluates them.
type kind struct {
	policy     string
	hasActions bool // of bindings
}

// Actions are the validationActions that a binding of a ValidatingAdmissionPolicy can have.
var Actions = []string{"Deny", "Warn", "Audit"}

var kinds = []kind{{"ValidatingAdmissionPolicy", true}, {"MutatingAdmissionPolicy", false}}

func (k *kind) binding() string { return k.policy + "Binding" }

// find returns the kind that documents of a type are policies or bindings of, nil
// for none.
func find(t schema.GroupVersionKind) *kind {
	if t.Group != kubernetesGroup && t.Group != customGroup {
		return nil
	}
	for i := range kinds {
		if k := &kinds[i]; t.Kind == k.policy || t.Kind == k.binding() {
			return k
		}
	}
	return nil
}

// IsPolicy reports whether objects of a kind are admission policies, bindings or exceptions, or policies
// of other engines.
func IsPolicy(t schema.GroupVersionKind) bool {
	return find(t) != nil || isException(t) || translate.IsForeign(t)
}

// PluginOf returns the name of the plugin that evaluates policies of a kind. It is empty for all other kinds, such as bindings.
func PluginOf(t schema.GroupVersionKind) string {
	if k := find(t); k != nil && t.Kind == k.policy {
		return k.policy
	}
	return ""
}

// Unknown returns an error if a kind is in a group that has policies, and is nothing that
// this group has, or if it is a kind of policies in another group: most likely one of them is misspelt.
func Unknown(t schema.GroupVersionKind) error {
	if find(schema.GroupVersionKind{Group: kubernetesGroup, Kind: t.Kind}) != nil && find(t) == nil {
		return fmt.Errorf("got a %s of %s, want %s or %s", t.Kind, t.GroupVersion(), kubernetesVersion, customGroup+"/v1")
	}
	if group := translate.MeantGroup(t); group != "" {
		return fmt.Errorf("got a %s of %s, want the group %s", t.Kind, t.GroupVersion(), group)
	}
	if t.Group == customGroup && t.Version != "v1" && find(t) != nil {
		return fmt.Errorf("got the version %s, want %s", t.GroupVersion(), customGroup+"/v1")
	}
	inGroup := t.Group == kubernetesGroup || t.Group == customGroup
	if !inGroup || IsPolicy(t) || strings.HasSuffix(t.Kind, "WebhookConfiguration") || t.Kind == "PolicyReplica" {
		return nil
	}
	var want []string
	for i := range kinds {
		want = append(want, kinds[i].policy, kinds[i].binding())
	}
	if t.Group == customGroup {
		want = append(want, engine.ExceptionKind)
	}
	return fmt.Errorf("got the kind %q of %s, want %s", t.Kind, t.GroupVersion(), strings.Join(want, ", "))
}

// NoteUnknown notes objects of --policies whose kind is misspelt. Call it after UseParams.
func (s *Set) NoteUnknown(items []manifest.Item) {
	for i := range items {
		item := &items[i]
		if item.Fault != nil {
			continue
		}
		_, err := s.table.Find(item.GroupVersionKind())
		if unknown, ok := errors.AsType[*discovery.UnknownError](err); ok && unknown.IsMisspelt() {
			s.idle = append(s.idle, Note{item.Source, "left out: " + err.Error()})
		}
	}
}

// AddResources adds the resources of policies, bindings and exceptions to the table, in all supported
// versions.
func AddResources(table *discovery.Table) {
	for _, version := range []schema.GroupVersion{
		{Group: kubernetesGroup, Version: "v1"}, {Group: kubernetesGroup, Version: "v1beta1"},
		{Group: kubernetesGroup, Version: "v1alpha1"}, {Group: customGroup, Version: "v1"},
	} {
		for i := range kinds {
			k := &kinds[i]
			plural := strings.ToLower(strings.TrimSuffix(k.policy, "y") + "ies")
			table.Add(k.policy, discovery.Resource{GroupVersionResource: version.WithResource(plural)})
			table.Add(k.binding(), discovery.Resource{GroupVersionResource: version.WithResource(strings.ToLower(k.binding()) + "s")})
		}
	}
	exceptions := schema.GroupVersion{Group: customGroup, Version: "v1"}.WithResource("policyexceptions")
	table.Add(engine.ExceptionKind, discovery.Resource{GroupVersionResource: exceptions})
}

// A Set contains policies and bindings. The zero Set is empty.
type Set struct {
	documents  []document
	exceptions []document
	params     []admission.ParamKind
	reads      []translate.Read // what Kubernetes' policies read that somebody else translated
	functions  bool             // these call functions of Kyverno
	notes      []string         // of translations, exceptions and parameters
	idle       []Note           // on policies of other engines that select nothing or are left out
	enables    bool
	applied    bool   // to any plugin
	bindsWith  string // what makes a binding for a policy, as notes name it

	// For checking types: the kinds that are known, and the CustomResourceDefinitions among them.
	table       *discovery.Table
	definitions [][]byte
}

type document struct {
	*kind
	item   *manifest.Item
	text   []byte
	policy string // the name of the policy, of bindings too
	origin origin // of a translation
	added  bool   // by Bind
	isOwn  bool   // kube-apiserver evaluates it itself
}

func (d *document) isBinding() bool { return d.item.Kind == d.binding() }

// file is the document as plugins get it.
func (s *Set) file(d *document) admission.File {
	return admission.File{
		Name: d.item.String(), Content: d.text, FromAPI: true,
		Functions: s.functions || d.origin.policy != nil && d.origin.policy.Functions, Reads: len(s.reads) > 0 || len(d.reads()) > 0,
	}
}

// reads returns what a translation reads from the cluster.
func (d *document) reads() []translate.Read {
	if d.origin.policy == nil || d.isBinding() {
		return nil
	}
	return d.origin.policy.Reads
}

func (d *document) String() string {
	return fmt.Sprintf("%s: %s", d.item.Source, d.name())
}

// name returns the kind and name, for messages.
func (d *document) name() string { return fmt.Sprintf("%s %q", d.item.Kind, d.item.Metadata.Name) }

// Allow is for policies that are the result of Translate: those that Add adds may read this, and call functions of Kyverno
// if functions is true. Call it before UseParams.
func (s *Set) Allow(functions bool, reads []translate.Read) { s.functions, s.reads = functions, reads }

// Add adds the policies and bindings in items and returns their number. It ignores other
// items.
func (s *Set) Add(items []manifest.Item) (added int) {
	for _, given := range items {
		item := &given
		if item.Fault != nil {
			continue
		}
		k := find(item.GroupVersionKind())
		if k == nil {
			continue
		}
		d := document{kind: k, item: item, text: asKubernetes(item), policy: item.Metadata.Name,
			isOwn: item.GroupVersionKind().Group == kubernetesGroup}
		if d.isBinding() {
			d.policy = policyOf(item)
		}
		s.documents = append(s.documents, d)
		added++
	}
	return added
}

// IsEmpty reports whether the set has no policy and no binding.
func (s *Set) IsEmpty() bool { return len(s.documents) == 0 }

// asKubernetes returns the text of a document with Kubernetes' apiVersion.
func asKubernetes(item *manifest.Item) []byte {
	var members map[string]json.RawMessage
	if item.GroupVersionKind().Group == kubernetesGroup || kjson.UnmarshalCaseSensitivePreserveInts(item.JSON, &members) != nil {
		return item.JSON
	}
	members["apiVersion"] = json.RawMessage(`"` + kubernetesVersion + `"`)
	delete(members, "status") // which is another one
	text, err := json.Marshal(members)
	if err != nil {
		return item.JSON
	}
	return text
}

// decode decodes JSON as kube-apiserver does: the names of members must be equal, also in
// capital letters.
func decode(text []byte, into any) error { return kjson.UnmarshalCaseSensitivePreserveInts(text, into) }

// policyOf returns the name of a binding's policy. The plugin that reads the binding
// reports its errors.
func policyOf(item *manifest.Item) string {
	var binding struct {
		Spec struct {
			PolicyName string `json:"policyName"`
		} `json:"spec"`
	}
	_ = decode(item.JSON, &binding)
	return binding.Spec.PolicyName
}

// Enable makes Apply enable the plugins that evaluate the policies of the set. Otherwise,
// policies are evaluated only if their plugin is already enabled.
func (s *Set) Enable() { s.enables = true }

// Apply adds the policies to their plugins in enabled. After Enable, it first enables
// plugins that are not in disabled. known are the names of all plugins. Apply returns the
// names of plugins that policies need and that are not in known.
func (s *Set) Apply(enabled map[string]admission.Enabled, disabled, known []string) (unknown []string) {
	files := make(map[string][]admission.File) // by plugin
	for _, d := range slices.Concat(s.documents, s.exceptions) {
		plugin := d.kind.policy
		switch _, ok := enabled[plugin]; {
		case !ok && (!s.enables || slices.Contains(disabled, plugin)):
			continue
		case !slices.Contains(known, plugin):
			if !slices.Contains(unknown, plugin) {
				unknown = append(unknown, plugin)
			}
			continue
		}
		files[plugin] = append(files[plugin], s.file(&d))
	}
	for plugin, added := range files {
		e := enabled[plugin]
		e.Manifests, e.Params = slices.Concat(e.Manifests, added), s.params
		enabled[plugin] = e
		s.applied = true
	}
	return unknown
}

// Bind adds a binding with the validation action to each policy that has no binding. The
// binding matches all requests that the policy matches.
func (s *Set) Bind(action string) {
	for _, d := range s.unbound() {
		if d.isBinding() {
			continue
		}
		spec := map[string]any{"policyName": d.policy}
		if d.hasActions {
			spec["validationActions"] = []string{action}
		}
		text, err := json.Marshal(map[string]any{
			"apiVersion": kubernetesVersion, "kind": d.binding(), "metadata": map[string]string{"name": d.policy}, "spec": spec,
		})
		if err != nil {
			continue // strings can be marshalled
		}
		item := &manifest.Item{Object: manifest.Object{Source: d.item.Source, JSON: text}}
		item.Kind, item.Metadata.Name = d.binding(), d.policy
		if kind, needed := d.paramKind(); needed {
			s.notes = append(s.notes, fmt.Sprintf("%s needs a parameter of the kind %s, and --bind-policies gives it none, so params is null: "+
				"write a binding with a paramRef", d, kind.Kind))
		}
		s.documents = append(s.documents, document{kind: d.kind, item: item, text: text, policy: d.policy, added: true, isOwn: d.isOwn})
	}
}

// descriptions are annotations that describe a policy, those of libraries included.
var descriptions = []string{"description", "policies.kyverno.io/description"}

// AddTexts adds the texts of the policies in YAML, and the descriptions of those that have one, by the names of plugin and policy
// as in ValidatingAdmissionPolicy/replicas.example.com.
func (s *Set) AddTexts(texts, described map[string]string) {
	for i := range s.documents {
		d := &s.documents[i]
		if d.isBinding() {
			continue
		}
		id := d.kind.policy + "/" + d.policy
		if text, err := report.Document(d.text); err == nil {
			texts[id] = string(text)
		}
		var annotated struct {
			Metadata struct {
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
		}
		_ = decode(d.text, &annotated) // the plugin reports what is wrong
		for _, key := range descriptions {
			if text := strings.Join(strings.Fields(annotated.Metadata.Annotations[key]), " "); text != "" {
				described[id] = text
			}
		}
	}
}

// unbound returns the policies that have no binding, and the bindings that have no
// policy.
func (s *Set) unbound() (all []*document) {
	type side struct {
		of      *kind
		policy  string
		binding bool
	}
	has := make(map[side]bool)
	for i := range s.documents {
		d := &s.documents[i]
		has[side{d.kind, d.policy, d.isBinding()}] = true
	}
	for i := range s.documents {
		if d := &s.documents[i]; !has[side{d.kind, d.policy, !d.isBinding()}] {
			all = append(all, d)
		}
	}
	return all
}

// Notes returns a sentence for each policy without a binding and each binding without a
// policy. Plugins do not evaluate them, as in kube-apiserver. Before Apply, it returns only
// the notes of translations, exceptions and parameters.
func (s *Set) Notes() (all []string) {
	all = append(all, s.notes...)
	for i := range s.idle {
		all = append(all, s.idle[i].String())
	}
	if !s.applied {
		return all
	}
	var policies []string
	for _, d := range s.unbound() {
		note, ok := s.noteUnbound(d)
		switch {
		case !ok:
		case d.isBinding():
			all = append(all, note.String())
		default:
			policies = append(policies, note.String())
		}
	}
	if n := len(policies); n > unboundMax { // a library, which has no bindings
		policies = append(policies[:1], fmt.Sprintf("%d more policies have no binding", n-1))
	}
	return append(all, policies...)
}

// NoteInput returns a note if no plugin evaluates the policies among the input, and which policies of other engines
// are there, which only --policies evaluates: "" for none. given are the files of --policies.
func (s *Set) NoteInput(input []manifest.Item, given map[string]bool) (notes []Note, foreign string) {
	var other *manifest.Item
	for i := range input {
		item := &input[i]
		if item.Fault != nil || given[item.File] {
			continue
		}
		switch kind := find(item.GroupVersionKind()); {
		case kind != nil && kind.policy == item.Kind && !s.applied && notes == nil:
			notes = []Note{{item.Source, fmt.Sprintf("%s %q is reviewed, but not evaluated, as all policies among the input; "+
				"--policies or --enable-admission-plugins=%s evaluates them", item.Kind, item.Metadata.Name, item.Kind)}}
		case other == nil && translate.IsForeign(item.GroupVersionKind()):
			other = item
		}
	}
	if other == nil {
		return notes, ""
	}
	return notes, fmt.Sprintf("%s: %s %q is reviewed, but not evaluated, as all policies of Kyverno and Gatekeeper among the "+
		"input; --policies evaluates them", other.Source, other.Kind, other.Metadata.Name)
}

// UnboundNotes returns those of Notes that are about bindings.
func (s *Set) UnboundNotes() (notes []Note) {
	notes = slices.Clone(s.idle)
	for _, d := range s.unbound() {
		if note, ok := s.noteUnbound(d); ok && s.applied {
			notes = append(notes, note)
		}
	}
	return notes
}

// unboundMax is how many policies without a binding Notes names.
const unboundMax = 3

// BindsWith says what makes a binding for a policy that has none, for notes. The default is the flag --bind-policies.
func (s *Set) BindsWith(what string) { s.bindsWith = what }

// noteUnbound returns the note on a document that unbound returns. ok is false for a translation: it has a note that says why.
func (s *Set) noteUnbound(d *document) (note Note, ok bool) {
	switch {
	case d.isBinding():
		return Note{d.item.Source, fmt.Sprintf("%s is of %s %q, which does not exist, so it does nothing", d.name(), d.kind.policy, d.policy)}, true
	case d.origin.object == nil:
		with := cmp.Or(s.bindsWith, "--bind-policies")
		return Note{d.item.Source, fmt.Sprintf("%s has no binding, so it is not evaluated; %s evaluates it", d.name(), with)}, true
	}
	return Note{}, false
}
