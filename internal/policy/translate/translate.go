// Package translate turns policies of Kyverno and Gatekeeper that are written in CEL into
// Kubernetes' policies and bindings. What has no translation is an error: nothing is left
// out silently.
//
// It reads ValidatingPolicy, MutatingPolicy, their namespaced forms and PolicyException of
// policies.kyverno.io, ClusterPolicy and Policy of kyverno.io with rules validate.cel,
// ConstraintTemplates of templates.gatekeeper.sh with the engine K8sNativeValidation, and
// their Constraints.
package translate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// The groups of the documents.
const (
	kyvernoGroup     = "kyverno.io"
	kyvernoCELGroup  = "policies.kyverno.io"
	templatesGroup   = "templates.gatekeeper.sh"
	constraintsGroup = "constraints.gatekeeper.sh"
)

// foreign are the groups whose documents are policies, or change what policies do.
var foreign = []string{
	kyvernoGroup, kyvernoCELGroup, templatesGroup, constraintsGroup,
	"mutations.gatekeeper.sh", "expansion.gatekeeper.sh", "externaldata.gatekeeper.sh",
}

// reports are kinds of kyverno.io that engines write. They are no policies.
var reports = []string{"UpdateRequest", "ClusterEphemeralReport", "EphemeralReport"}

// IsForeign reports whether objects of a kind are policies of another engine, or change what
// these do. Translate translates them or returns an error that says why it cannot.
func IsForeign(kind schema.GroupVersionKind) bool {
	return slices.Contains(foreign, kind.Group) && !slices.Contains(reports, kind.Kind)
}

// MeantGroup returns the group of a kind of policies of another engine that is in a group which this engine does not have, "" if
// there is none: policies.kyverno.io for a ValidatingPolicy of policy.kyverno.io.
func MeantGroup(kind schema.GroupVersionKind) string {
	switch {
	case slices.Contains(foreign, kind.Group):
	case strings.Contains(kind.Group, "kyverno"):
		if strings.HasSuffix(kind.Kind, "ingPolicy") {
			return kyvernoCELGroup
		}
		if kind.Kind == "ClusterPolicy" {
			return kyvernoGroup
		}
	case strings.Contains(kind.Group, "gatekeeper") && kind.Kind == "ConstraintTemplate":
		return templatesGroup
	}
	return ""
}

// MayBeForeign reports whether IsForeign may be true for the kind of a YAML document. It does not parse the document: it looks for the
// names of groups, and for escapes, by which a document can write them otherwise.
func MayBeForeign(document []byte) bool {
	return bytes.IndexByte(document, '\\') >= 0 ||
		slices.ContainsFunc(foreign, func(group string) bool { return bytes.Contains(document, []byte(group)) })
}

// Options configure a translation.
type Options struct {
	// Now is compared with the end of exceptions. If it is zero, exceptions never end.
	Now time.Time
	// Point is the enforcement point of Gatekeeper's scoped actions, "" for those of an
	// admission webhook.
	Point string
	// Cluster is true for the documents of a cluster, which are evaluated next to each other: names
	// may repeat, and what a document has that can be translated is, whatever else is in it. A
	// policy that cannot be translated, but whose rules can, has a Fault.
	Cluster bool
	// Uncovered translates the policies that are switched off for admission as well. Tests of
	// them run nevertheless.
	Uncovered bool
	// Functions translates policies of Kyverno that call its functions, such as sha256. Reads also translates those
	// that read other objects with resource.Get and resource.List, with what Policy.Reads names. Only fastadmit evaluates
	// these translations.
	Functions, Reads bool
}

// A Policy is the translation of a document, of one of its rules, or of a variant for workloads.
type Policy struct {
	// Document is the index of the document, Rule the name of its rule, or of the variant for
	// workloads.
	Document int
	Rule     string

	// Either Validating or Mutating is set.
	Validating *admissionregistrationv1.ValidatingAdmissionPolicy
	Mutating   *admissionregistrationv1.MutatingAdmissionPolicy
	// Without bindings, the policy is not evaluated at admission.
	ValidatingBindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	MutatingBindings   []*admissionregistrationv1.MutatingAdmissionPolicyBinding

	// Functions is true if the expressions call functions of Kyverno that Kubernetes does not have.
	Functions bool
	// Reads are the objects that the policy reads.
	Reads []Read

	// Fault says why the policy cannot be evaluated, "" if it can. The rules and selectors of
	// MatchConstraints are right then, and nothing else. Ignores is true if the original admits
	// requests if it cannot be evaluated, by its failure policy or because it never denies. Both are
	// set with Options.Cluster only.
	Fault   string
	Ignores bool
	partial bool // other rules of the document do not matter to it

	// Moved are the fields of the policy that come from other fields of the document. The
	// longest prefix counts; other fields have the same path in both.
	Moved []Move
}

// A Move says where a field of a policy is in the document that it comes from.
type Move struct{ To, From string }

// Origin returns the path in the document of a field of the policy.
func (p *Policy) Origin(path string) string {
	best, origin := -1, path
	for _, m := range p.Moved {
		rest, ok := strings.CutPrefix(path, m.To)
		if ok && len(m.To) > best && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			best, origin = len(m.To), m.From+rest
		}
	}
	return origin
}

// A ProblemError is something in a document that has no translation, or that a reader has to know.
type ProblemError struct {
	Document int
	Field    string // such as "spec.rules[0].validate.pattern"; "" for the whole document
	Text     string
	// IsNote is true if this is no error: the document has a translation, which may decide
	// otherwise.
	IsNote bool
	// IsIdle is true for a note on a document that selects nothing, or less than it seems to.
	IsIdle bool
	// IsElsewhere is true if the policy is none for the objects of requests, so that admission
	// lacks nothing without it.
	IsElsewhere bool
}

func (p *ProblemError) Error() string {
	if p.Field == "" {
		return p.Text
	}
	return p.Field + ": " + p.Text
}

// A Result has the policies, in the order of the documents.
type Result struct {
	Policies []*Policy
	Problems []*ProblemError
	// Ends is the time at which the next exception ends, zero for never.
	Ends time.Time
}

// A translator translates documents.
type translator struct {
	Options
	Result
	documents  []head
	exceptions []*exception
	templates  map[string]*template
	of         map[int][]*ProblemError // by the index of the document
}

// A head has the fields that all documents have.
type head struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            presence          `json:"spec"`
	Status          presence          `json:"status"`
	text            []byte
	index           int
}

// presence says that a document has a field, whose value it does not copy.
type presence bool

// UnmarshalJSON implements json.Unmarshaler.
func (p *presence) UnmarshalJSON([]byte) error {
	*p = true
	return nil
}

func (h *head) group() string {
	return schema.FromAPIVersionAndKind(h.APIVersion, h.Kind).Group
}

// Translate translates JSON documents that belong together: exceptions change policies, and
// Constraints have the parameters of templates. It ignores documents for which IsForeign returns
// false, and those that only have a status, with which tests of Kyverno compare a policy.
func Translate(documents [][]byte, o Options) *Result {
	t := &translator{Options: o, templates: make(map[string]*template), of: make(map[int][]*ProblemError)}
	for i, text := range documents {
		h := head{text: text, index: i}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &h); err != nil {
			t.refuse(&h, "", "cannot be read: %v", err)
		} else if IsForeign(schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)) && bool(h.Spec || !h.Status) {
			t.documents = append(t.documents, h)
		}
	}
	for i := range t.documents { // templates and exceptions first, because other documents need them
		switch h := &t.documents[i]; {
		case h.group() == templatesGroup:
			t.template(h)
		case h.group() == kyvernoCELGroup && h.Kind == "PolicyException":
			t.exception(h)
		}
	}
	for i := range t.documents {
		t.document(&t.documents[i])
	}
	t.unused()
	t.unusedTemplates()
	if t.Cluster {
		t.fault()
	} else {
		t.uniqueNames()
	}
	return &t.Result
}

// fault sets the Fault of policies whose documents have errors.
func (t *translator) fault() {
	t.Policies = slices.DeleteFunc(t.Policies, func(p *Policy) bool {
		if p.Fault != "" || p.partial {
			return false
		}
		for _, problem := range t.of[p.Document] {
			switch {
			case problem.IsNote:
			case problem.IsElsewhere:
				return true
			case p.Fault == "":
				p.Fault = problem.Error()
			}
		}
		return false
	})
	for _, p := range t.Policies {
		p.Ignores = p.Ignores || p.admits()
	}
}

// admits reports whether nothing that the policy says can deny a request.
func (p *Policy) admits() bool {
	if m := p.Mutating; m != nil {
		return len(p.MutatingBindings) == 0 || isIgnore(m.Spec.FailurePolicy)
	}
	return isIgnore(p.Validating.Spec.FailurePolicy) ||
		!slices.ContainsFunc(p.ValidatingBindings, func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) bool {
			return slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny)
		})
}

func isIgnore(p *admissionregistrationv1.FailurePolicyType) bool {
	return p != nil && *p == admissionregistrationv1.Ignore
}

// uniqueNames refuses documents whose translations have the name of that of an earlier one, which counts.
func (t *translator) uniqueNames() {
	known, refused := make(map[string]bool), make(map[int]bool) // documents
	for _, p := range t.Policies {
		name, kind := p.name()
		if isKnown := known[kind+name]; !isKnown {
			known[kind+name] = true
		} else if !refused[p.Document] {
			refused[p.Document] = true
			t.refuse(&head{index: p.Document}, "metadata.name", "the translation of another document is also %s %q: rename one of them", kind, name)
		}
	}
	t.Policies = slices.DeleteFunc(t.Policies, func(p *Policy) bool { return refused[p.Document] })
}

func (p *Policy) name() (name, kind string) {
	if p.Mutating != nil {
		return p.Mutating.Name, "MutatingAdmissionPolicy"
	}
	return p.Validating.Name, "ValidatingAdmissionPolicy"
}

// Match returns the match constraints of the policy.
func (p *Policy) Match() *admissionregistrationv1.MatchResources {
	if p.Mutating != nil {
		return p.Mutating.Spec.MatchConstraints
	}
	return p.Validating.Spec.MatchConstraints
}

// waysOut tell users what to do instead about kinds that have no translation.
var waysOut = map[string]string{
	"ImageValidatingPolicy":           "it verifies signatures, for which it asks registries; keep Kyverno for it, or an ImagePolicyWebhook",
	"NamespacedImageValidatingPolicy": "it verifies signatures, for which it asks registries; keep Kyverno for it, or an ImagePolicyWebhook",
	"GeneratingPolicy":                "it creates objects; keep Kyverno for it, or a controller",
	"NamespacedGeneratingPolicy":      "it creates objects; keep Kyverno for it, or a controller",
	"DeletingPolicy":                  "it deletes objects; keep Kyverno for it, or a CronJob",
	"NamespacedDeletingPolicy":        "it deletes objects; keep Kyverno for it, or a CronJob",
	"CleanupPolicy":                   "it deletes objects; keep Kyverno for it, or a CronJob",
	"ClusterCleanupPolicy":            "it deletes objects; keep Kyverno for it, or a CronJob",
	"GlobalContextEntry":              "expressions of Kubernetes read no other objects but parameters: put what it has into a ConfigMap that paramRef names",
	"PolicyException":                 "it is of the older API: write it as a PolicyException of policies.kyverno.io, with matchConditions",
	"Assign":                          "write it as a MutatingAdmissionPolicy with an ApplyConfiguration",
	"AssignMetadata":                  "write it as a MutatingAdmissionPolicy with an ApplyConfiguration",
	"ModifySet":                       "write it as a MutatingAdmissionPolicy with a JSONPatch",
	"AssignImage":                     "write it as a MutatingAdmissionPolicy with a JSONPatch",
	"ExpansionTemplate":               "fastadmit review and test review the Pods of workloads; the controller's Pods are reviewed at admission",
	"Provider":                        "expressions ask no servers: put the data into a ConfigMap that paramRef names",
}

func (t *translator) document(h *head) {
	switch group := h.group(); {
	case group == templatesGroup, group == kyvernoCELGroup && h.Kind == "PolicyException":
	case group == constraintsGroup:
		t.constraint(h)
	case group == kyvernoCELGroup && (h.Kind == "ValidatingPolicy" || h.Kind == "NamespacedValidatingPolicy"):
		t.validatingPolicy(h)
	case group == kyvernoCELGroup && (h.Kind == "MutatingPolicy" || h.Kind == "NamespacedMutatingPolicy"):
		t.mutatingPolicy(h)
	case group == kyvernoGroup && (h.Kind == "ClusterPolicy" || h.Kind == "Policy"):
		t.clusterPolicy(h)
	default:
		way := waysOut[h.Kind]
		if way == "" {
			way = "known are ValidatingPolicy, MutatingPolicy and PolicyException of policies.kyverno.io, ClusterPolicy and Policy of kyverno.io, " +
				"ConstraintTemplate and Constraints of Gatekeeper"
		}
		t.refuse(h, "kind", "%s of %s has no translation: %s", h.Kind, h.APIVersion, way)
	}
}

func (t *translator) refuse(h *head, field, format string, args ...any) {
	t.say(&ProblemError{Document: h.index, Field: field, Text: fmt.Sprintf(format, args...)})
}

// say adds a problem, unless there is an equal one: variants of a policy have the same problems.
func (t *translator) say(p *ProblemError) {
	if !slices.ContainsFunc(t.of[p.Document], func(said *ProblemError) bool { return *said == *p }) {
		t.Problems, t.of[p.Document] = append(t.Problems, p), append(t.of[p.Document], p)
	}
}

// elsewhere refuses what is no policy for the objects of requests.
func (t *translator) elsewhere(h *head, field, format string, args ...any) {
	t.say(&ProblemError{Document: h.index, Field: field, Text: fmt.Sprintf(format, args...), IsElsewhere: true})
}

func (t *translator) note(h *head, field, format string, args ...any) {
	t.say(&ProblemError{Document: h.index, Field: field, Text: fmt.Sprintf(format, args...), IsNote: true})
}

// idle is note for what selects nothing.
func (t *translator) idle(h *head, field, format string, args ...any) {
	t.say(&ProblemError{Document: h.index, Field: field, Text: fmt.Sprintf(format, args...), IsNote: true, IsIdle: true})
}

// errorsOf returns how many errors a document has.
func (t *translator) errorsOf(h *head) (n int) {
	for _, p := range t.of[h.index] {
		if !p.IsNote {
			n++
		}
	}
	return n
}

// faulty reports whether a document has an error.
func (t *translator) faulty(h *head) bool {
	return t.errorsOf(h) > 0
}

var strictField = regexp.MustCompile(`field "([^"]+)"`)

// decode decodes a document. It refuses what is unknown in it, and returns false if there is no
// use in going on.
func (t *translator) decode(h *head, into any) bool {
	strict, err := kjson.UnmarshalStrict(h.text, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		path, text := strictyaml.Mismatch(wrong)
		t.refuse(h, path, "%s", text)
		return false
	}
	if err != nil {
		t.refuse(h, "", "cannot be read: %v", err)
		return false
	}
	for _, err := range strict {
		path := ""
		if match := strictField.FindStringSubmatch(err.Error()); match != nil {
			path = match[1]
		}
		hint := alike.FieldHint(reflect.TypeOf(into), path)
		if hint == "" {
			hint = "; a newer release of the engine may have it: remove it, or keep that engine for this policy"
		}
		t.refuse(h, path, "%v%s", err, hint)
	}
	return len(strict) == 0 || t.Cluster
}

// metadata returns the metadata of a translation: the labels and annotations of the document, except
// annotations for kubectl and Kyverno.
func metadata(h *head, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Labels: h.Metadata.Labels}
	for key, value := range h.Metadata.Annotations {
		if key == "kubectl.kubernetes.io/last-applied-configuration" || strings.HasPrefix(key, "pod-policies.kyverno.io/") {
			continue
		}
		if m.Annotations == nil {
			m.Annotations = make(map[string]string)
		}
		m.Annotations[key] = value
	}
	return m
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// nameOf joins parts to a valid name of an object.
func nameOf(parts ...string) string {
	for i, part := range parts {
		cleaned := notInNames.ReplaceAllStringFunc(strings.ToLower(part), func(s string) string {
			if s == "." {
				return s
			}
			return "-"
		})
		parts[i] = strings.Trim(cleaned, "-.")
	}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ".")
}

var (
	validatingType        = metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"}
	validatingBindingType = metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"}
	mutatingType          = metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicy"}
	mutatingBindingType   = metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicyBinding"}
)

// Objects returns the policy and its bindings in JSON, without fields that are not set.
func (p *Policy) Objects() (texts [][]byte, err error) {
	var all []any
	if p.Validating != nil {
		all = append(all, p.Validating)
	} else {
		all = append(all, p.Mutating)
	}
	for _, b := range p.ValidatingBindings {
		all = append(all, b)
	}
	for _, b := range p.MutatingBindings {
		all = append(all, b)
	}
	for _, object := range all {
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		var members map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &members); err != nil {
			return nil, err
		}
		delete(members, "status")
		if text, err = json.Marshal(members); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}
