package review

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// A reviewer reviews one object after the other.
type reviewer struct {
	*session
	chains chains
	names  []string // of the plugins
	// positions are those of fields that findings name.
	positions manifest.Positions

	// The review that runs.
	current *codec.Review
	told    int  // how many warnings are noted
	checked bool // by a plugin
	result  *report.Result
	source  *manifest.Object // of the input, nil for other objects
	written written
	// writtenPod is the template of Pods in the object of the input.
	writtenPod written
	// violations are those of policies that validate, with messages of one line, and ignored those of Ignored in result.
	violations violations
	ignored    map[report.FindingKey]bool
	// said are the findings about the objects for which controllers create the current one. They are not repeated.
	said []report.Finding
}

func (s *session) newReviewer() *reviewer {
	r := &reviewer{session: s}
	r.chains = r.newChains()
	for _, plugin := range s.Chain.Plugins() {
		r.names = append(r.names, plugin.Name)
	}
	return r
}

// target reviews an object of the input, and the objects that controllers create for it.
func (r *reviewer) target(ctx context.Context, t *target) {
	result := &report.Result{File: t.File, Line: t.Line}
	*t.result = result
	if t.resource.Resource == "" {
		r.recorded(ctx, t, result)
		return
	}
	object, old, err := r.objects(t)
	if err != nil {
		result.Decision, result.Message = report.Broken, err.Error()
		return
	}
	text := object
	q := &request{
		Kind: metav1.GroupVersionKind(t.GroupVersionKind()), Resource: metav1.GroupVersionResource(t.resource.GroupVersionResource),
		Name: t.Metadata.Name, Namespace: t.namespace, Operation: r.operation(t), UserInfo: &r.User, DryRun: r.DryRun,
	}
	result.Name = shownName(t.Metadata.Name, t.Metadata.GenerateName)
	switch q.Operation {
	case codec.Update:
		if old == nil && len(r.Old) > 0 {
			t.broken("--old has no such object, which an UPDATE needs")
			return
		}
		if old == nil {
			old = object
		}
	case codec.Delete:
		object, old = nil, orElse(old, object)
	}
	if object != nil && r.UnknownFields && !r.noteFields(t.GroupVersionKind(), t.JSON, written{object: t.Object}, result) {
		result.Namespace = t.namespace
		return
	}
	if object != nil && r.UnknownFields && isNameless(t.Object) {
		t.broken("kube-apiserver refuses the object: metadata.name: Required value: name or generateName is required")
		return
	}
	if object != nil && !r.NoDefaults {
		r.written = written{kind: t.GroupVersionKind(), given: t.JSON, withDefaults: object, object: t.Object}
	}
	if group := t.GroupVersionKind().Group; r.WorkloadPods && strings.Contains(group, ".") &&
		r.PodTemplatePaths.Template(t.resource.GroupResource()) == "" {
		result.PodTemplate = workload.FindTemplate(t.JSON)
		result.MakesPods = result.PodTemplate == "" && workload.MakesPods(t.GroupVersionKind().GroupKind(), t.JSON)
	}
	r.source = t.Object
	stored := r.ask(ctx, q, object, old, result)
	r.source = nil
	r.writtenPod, r.written = r.written.pod(r.PodTemplatePaths.Template(t.resource.GroupResource())), written{}
	if q.Operation == codec.Delete {
		return
	}
	if t.rank != rankOthers {
		if err := r.putStored(t, orElse(stored, text)); err != nil && result.Decision != report.Denied {
			result.Decision, result.Message = report.Broken, err.Error()
		}
	}
	if stored != nil {
		r.children(ctx, result, t.GroupVersionKind(), t.resource.Resource, stored, &r.User)
	}
}

// objects returns the object of a target and the one before it, nil if there is none.
func (r *reviewer) objects(t *target) (object, old []byte, err error) {
	if was := r.old[t.identity()]; was != nil {
		if old, err = r.prepared(t, was.JSON); err != nil {
			return nil, nil, err
		}
	}
	object, err = r.prepared(t, t.JSON)
	return object, old, err
}

// orElse returns a, or b if there is no a.
func orElse(a, b []byte) []byte {
	if a != nil {
		return a
	}
	return b
}

// broken fills in why the object is not reviewed.
func (t *target) broken(message string) {
	result := *t.result
	result.Decision, result.Message, result.Kind, result.Namespace = report.Broken, message, t.Kind, t.namespace
}

// isNameless reports whether an object has no name. Those that only ask, such as a SubjectAccessReview, need none.
func isNameless(o *manifest.Object) bool {
	group := o.GroupVersionKind().Group
	return o.Metadata.Name == "" && o.Metadata.GenerateName == "" && group != "authentication.k8s.io" && group != "authorization.k8s.io"
}

func shownName(name, generateName string) string {
	if name == "" && generateName != "" {
		return generateName + "*"
	}
	return name
}

// children reviews the objects that controllers create for a stored object.
func (r *reviewer) children(ctx context.Context, parent *report.Result, gvk schema.GroupVersionKind, resource string, stored []byte, user *User) {
	if !r.WorkloadPods {
		return
	}
	children, err := r.PodTemplatePaths.Children(gvk, resource, stored)
	if err != nil {
		parent.Created = append(parent.Created, &report.Result{Kind: "Pod", Decision: report.Broken, Message: err.Error()})
		return
	}
	before := len(r.said)
	defer func() { r.said = r.said[:before] }()
	r.said = append(append(r.said, parent.Warnings...), parent.Audits...)
	said := make(map[report.FindingKey]bool)
	for i := range r.said {
		said[r.said[i].Key()] = true
	}
	for _, child := range children {
		result := &report.Result{Name: child.Name}
		parent.Created = append(parent.Created, result)
		from := user
		if child.Controller != "" {
			from = controllerUser(child.Controller)
			result.User = from.Username
		}
		text, err := r.prepare(child.Kind, true, child.Namespace, child.JSON)
		if err != nil {
			result.Decision, result.Message = report.Broken, err.Error()
			continue
		}
		if child.Name == "" {
			var object codec.Object
			object.Reset(text)
			result.Name = shownName("", object.Get("metadata", "generateName").String())
		}
		q := &request{
			Kind:     metav1.GroupVersionKind(child.Kind),
			Resource: metav1.GroupVersionResource(child.Kind.GroupVersion().WithResource(child.Resource)),
			Name:     child.Name, Namespace: child.Namespace, Operation: codec.Create, UserInfo: from, DryRun: r.DryRun,
		}
		if q.Kind.Kind == "Pod" {
			r.written = r.writtenPod
		}
		custom := child.Controller == "" && r.written.object != nil // the fields of others were noted in the workload
		if custom && r.UnknownFields && !r.noteFields(child.Kind, child.JSON, r.written, result) {
			r.written = written{}
			continue
		}
		stored := r.ask(ctx, q, text, nil, result)
		r.written = written{}
		result.Warnings, result.Audits = without(result.Warnings, said), without(result.Audits, said)
		if stored != nil {
			r.children(ctx, result, child.Kind, child.Resource, stored, from)
		}
	}
}

// without returns the findings that are not among others.
func without(findings []report.Finding, others map[report.FindingKey]bool) []report.Finding {
	return slices.DeleteFunc(findings, func(f report.Finding) bool { return others[f.Key()] })
}

// controllerUser returns the user of a controller of kube-controller-manager.
func controllerUser(name string) *User {
	user := workload.User(name)
	return &User{Username: user.Username, Groups: user.Groups}
}

// request is an AdmissionRequest without its objects.
type request struct {
	UID             string                      `json:"uid"`
	Kind            metav1.GroupVersionKind     `json:"kind"`
	Resource        metav1.GroupVersionResource `json:"resource"`
	RequestKind     metav1.GroupVersionKind     `json:"requestKind"`
	RequestResource metav1.GroupVersionResource `json:"requestResource"`
	Name            string                      `json:"name,omitempty"`
	Namespace       string                      `json:"namespace,omitempty"`
	Operation       codec.Operation             `json:"operation"`
	UserInfo        *User                       `json:"userInfo"`
	DryRun          bool                        `json:"dryRun"`
	Options         metav1.TypeMeta             `json:"options"`
}

// body makes the AdmissionReview, in the order of kube-apiserver's.
func (q *request) body(object, old []byte) ([]byte, error) {
	q.UID, q.RequestKind, q.RequestResource = workload.NoUID, q.Kind, q.Resource
	verb := string(q.Operation)
	q.Options = metav1.TypeMeta{Kind: verb[:1] + strings.ToLower(verb[1:]) + "Options", APIVersion: "meta.k8s.io/v1"}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Grow(len(text) + len(object) + len(old) + 128)
	b.WriteString(`{"kind":"AdmissionReview","apiVersion":"` + codec.APIVersionV1 + `","request":`)
	b.Write(text[:len(text)-1])
	null := []byte("null")
	b.WriteString(`,"object":`)
	b.Write(orElse(object, null))
	b.WriteString(`,"oldObject":`)
	b.Write(orElse(old, null))
	b.WriteString("}}")
	return b.Bytes(), nil
}

// ask has a request reviewed. It returns the object as it would be stored, nil if
// it would not be.
func (r *reviewer) ask(ctx context.Context, q *request, object, old []byte, result *report.Result) []byte {
	body, err := q.body(object, old)
	if err != nil {
		result.Decision, result.Message = report.Broken, err.Error()
		return nil
	}
	if r.KeepObjects {
		result.Before = orElse(object, old)
	}
	return r.answer(ctx, body, schema.GroupVersionKind(q.Kind), result)
}

// recorded has an AdmissionReview of the input reviewed.
func (r *reviewer) recorded(ctx context.Context, t *target, result *report.Result) {
	body := t.JSON
	if r.DryRun {
		var err error
		if body, err = DryRun(body); err != nil {
			result.Decision, result.Message = report.Broken, err.Error()
			return
		}
	}
	r.answer(ctx, body, schema.GroupVersionKind{}, result)
}

// DryRun makes the request of an AdmissionReview a dry run.
func DryRun(document []byte) ([]byte, error) {
	var review, request map[string]json.RawMessage
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &review); err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(review["request"], &request); err != nil || request == nil {
		return document, nil // what is wrong with it is said where it is read
	}
	request["dryRun"] = json.RawMessage("true")
	var err error
	if review["request"], err = json.Marshal(request); err != nil {
		return nil, err
	}
	return json.Marshal(review)
}

// notSelected is what is said of an object that kube-apiserver does not send to fastadmit.
const notSelected = "no webhook is called for it"

// answer runs the plugins, mutating ones first, and fills in the result. It returns the
// object as it would be stored, nil if it would not be. What plugins add gets the defaults of the kind, if there is one.
func (r *reviewer) answer(ctx context.Context, body []byte, kind schema.GroupVersionKind, result *report.Result) []byte {
	review := codec.Acquire()
	defer review.Release()
	r.current, r.result, r.told, r.checked = review, result, 0, false
	if err := review.Decode(body); err != nil {
		result.Decision, result.Message = report.Broken, err.Error()
		return nil
	}
	if !r.KeepResponse {
		review.Response.KeepAllWarnings()
	}
	Describe(review, result)
	if r.Selects != nil {
		if selected, err := r.Selects(ctx, review); err != nil || !selected {
			result.Decision, result.Message = report.Skipped, notSelected
			if err != nil {
				result.Decision, result.Message = report.Broken, err.Error()
			}
			return nil
		}
	}
	if r.KeepObjects && result.Before == nil {
		result.Before = review.Object.Root().AppendJSON(nil)
	}
	r.violations, r.ignored = violations{}, nil
	ctx = admission.WithViolations(ctx, r.noteViolation)
	chain, err := r.chainFor(ctx, review, kind.Empty())
	if err != nil {
		result.Decision, result.Message = report.Broken, "kube-apiserver refuses the object: "+err.Error()
		return nil
	}
	var patch []byte // of the plugins only
	for _, phase := range [...]admission.Phase{admission.Mutate, admission.Validate} {
		_, err := chain.Review(ctx, review, phase)
		r.noteWarnings("")
		if err != nil {
			fail(result, err)
			return nil
		}
		if !review.Response.Allowed {
			break
		}
		if phase == admission.Mutate && len(review.Response.Patch) > 0 {
			patch = bytes.Clone(review.Response.Patch)
			if r.refusesPatch(kind, review, result) {
				return nil
			}
			if err := r.setDefaults(&review.Object, kind); err != nil {
				fail(result, err)
				return nil
			}
		}
		if phase == admission.Mutate && r.refuses(kind, review, result) {
			return nil
		}
	}
	review.Response.Patch = append(review.Response.Patch[:0], patch...)
	r.conclude(review, result)
	if !review.Response.Allowed || review.Operation() == codec.Delete {
		return nil
	}
	if r.KeepObjects || r.needsStored(result) {
		stored := review.Object.Root().AppendJSON(nil)
		if r.KeepObjects {
			result.After = stored
		}
		return stored
	}
	return nil
}

// needsStored reports whether the object as it would be stored is read.
func (r *reviewer) needsStored(result *report.Result) bool {
	return r.WorkloadPods && result.Kind != "Pod" || r.putter != nil
}

// Describe fills in the kind, resource and name of a result.
func Describe(review *codec.Review, result *report.Result) {
	kind, resource := review.Kind(), review.Resource()
	result.APIVersion = strings.Clone(schema.GroupVersion{Group: kind.Group, Version: kind.Version}.String())
	result.Kind, result.Resource = strings.Clone(kind.Kind), strings.Clone(resource.Resource)
	result.SubResource = strings.Clone(review.SubResource())
	result.Operation = strings.Clone(string(review.Operation()))
	result.Namespace = strings.Clone(review.Namespace())
	result.Name = cmp.Or(result.Name, strings.Clone(shownName(review.Name(), review.Object.Get("metadata", "generateName").String())))
}

// fail fills in why there is no decision.
func fail(result *report.Result, err error) {
	result.Decision, result.Message = report.Broken, err.Error()
	if failure, ok := errors.AsType[*admission.FailureError](err); ok {
		result.Decision, result.Plugin = report.Failed, failure.Plugin
		if n := len(result.Ignored); n > 0 && result.Ignored[n-1].Plugin == failure.Plugin {
			result.Ignored = result.Ignored[:n-1] // its failure policy is Fail
		}
	}
}

// conclude fills in the decision.
func (r *reviewer) conclude(review *codec.Review, result *report.Result) {
	response := &review.Response
	switch status := &response.Status; {
	case !response.Allowed:
		result.Decision, result.Code, result.Reason = report.Denied, status.Code, strings.Clone(status.Reason)
		result.Message = strings.TrimPrefix(status.Message, result.Plugin+": ") // the chain made it
		result.Policy, result.Binding = report.Blame(result.Plugin, result.Message)
	case len(response.Patch) > 0:
		result.Decision, result.Patch = report.Patched, bytes.Clone(response.Patch)
	default:
		result.Decision, result.PatchedBy = report.Allowed, nil
	}
	result.Unchecked = !r.checked
	noteAudits(response, result)
	r.explainCauses(review, result)
	if r.KeepResponse {
		result.Response = review.AppendResponse(nil)
	}
}

// skips reports whether a document with this error is skipped.
func (s *session) skips(item *manifest.Item, err error) bool {
	_, unrendered := errors.AsType[*manifest.UnrenderedError](err)
	_, other := errors.AsType[*manifest.OtherFilesError](err)
	_, program := errors.AsType[*manifest.ProgramError](err)
	if unrendered || other || program {
		return true
	}
	all := slices.Contains(s.SkipUnknown, SkipAllUnknown)
	if _, none := errors.AsType[*manifest.NoObjectError](err); none {
		return all
	}
	unknown, ok := errors.AsType[*discovery.UnknownError](err)
	return ok && (all && unknown.MayBeCustom() || slices.Contains(s.SkipUnknown, item.Kind))
}
