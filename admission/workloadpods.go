package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// WorkloadPods says what a workload, such as a Deployment, is told of its Pods by a plugin.
type WorkloadPods string

// The values of WorkloadPods. Empty means off.
const (
	WorkloadPodsOff  WorkloadPods = "off"
	WorkloadPodsWarn WorkloadPods = "warn" // a warning, if its Pods would be denied
	WorkloadPodsDeny WorkloadPods = "deny" // the denial of its Pods
)

// ChecksWorkloads reports whether the plugin checks the Pods of workloads, when the workloads are written.
func (s *Settings) ChecksWorkloads() bool {
	return s.WorkloadPods != "" && s.WorkloadPods != WorkloadPodsOff
}

type workloadPodKey struct{}

// IsWorkloadPod reports whether ctx belongs to the review of a Pod that does not exist yet: its workload is written.
func IsWorkloadPod(ctx context.Context) bool { return ctx.Value(workloadPodKey{}) != nil }

// podCreation are the attributes of the creation of a Pod in a namespace.
func podCreation(namespace string) Attributes {
	return Attributes{
		Operation: codec.Create, Resource: codec.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: namespace,
	}
}

// CreatesPods reports whether one of the rules selects the creation of Pods.
func CreatesPods(rules []Rule) bool {
	attributes := podCreation(metav1.NamespaceDefault)
	for i := range rules {
		if rules[i].Matches(&attributes) {
			return true
		}
	}
	return false
}

// checkWorkloadPods returns an error if the plugin cannot check the Pods of workloads.
func (p *Plugin) checkWorkloadPods(s *Settings) error {
	switch {
	case !s.ChecksWorkloads():
		return nil
	case s.WorkloadPods != WorkloadPodsWarn && s.WorkloadPods != WorkloadPodsDeny:
		return fmt.Errorf("workloadPods: got %q, want off, warn or deny", s.WorkloadPods)
	case p.SideEffects != "":
		return fmt.Errorf("workloadPods: got %s, want off: the plugin writes or remembers something, and these Pods do not exist", s.WorkloadPods)
	case !p.Validates || !CreatesPods(p.Rules):
		return fmt.Errorf("workloadPods: got %s, want off: the plugin does not validate the creation of Pods", s.WorkloadPods)
	}
	return nil
}

// A podReviewer reviews the Pods of workloads.
type podReviewer struct {
	entries []entry // of all plugins that handle the creation of Pods and have no side effects
	paths   workload.Paths
}

// newPodReviewer returns nil if no plugin checks the Pods of workloads.
func newPodReviewer(entries []entry) *podReviewer {
	p := new(podReviewer)
	used := false
	for i := range entries {
		e := &entries[i]
		if e.Settings.ChecksWorkloads() {
			used, p.paths = true, e.Settings.PodTemplatePaths
		}
		if e.plugin.SideEffects == "" && CreatesPods(e.plugin.Rules) {
			p.entries = append(p.entries, *e)
		}
	}
	if !used {
		return nil
	}
	return p
}

// template returns the path of the template if the review is that of a workload whose Pods must be reviewed:
// its template is new, and no controller made the workload of another one, which was reviewed.
func (p *podReviewer) template(r *round) string {
	a := &r.attributes
	if a.Operation != codec.Create && a.Operation != codec.Update || a.SubResource != "" {
		return ""
	}
	path := p.paths.Template(schema.GroupResource{Group: a.Resource.Group, Resource: a.Resource.Resource})
	if path == "" {
		return ""
	}
	at := strings.Split(path, ".")
	template := r.review.Object.Get(at...)
	if template.Kind() != codec.KindObject || workload.IsControlled(r.review.Object.Root()) {
		return ""
	}
	if a.Operation == codec.Update && template.JSON() == r.review.OldObject.Get(at...).JSON() {
		return ""
	}
	return path
}

// A podReview is the review of the Pod of a workload.
type podReview struct {
	round    // with the review of the Pod
	outer    *round
	template string // its path in the workload
	name     string // of the workload, as in deployments.apps "web"
}

// reviewPods reviews the Pod of a workload with the plugins of the chain that check those. It returns what
// execute returns.
func (r *round) reviewPods() (Outcome, error) {
	template := r.chain.pods.template(r)
	if template == "" {
		return OutcomeAllowed, nil
	}
	r.review.Checkpoint() // for failPods
	review := codec.Acquire()
	defer review.Release()
	if err := podReviewOf(r, review); err != nil || r.review.Err() != nil {
		return r.failPods(err)
	}
	ctx := context.WithValue(r.ctx, workloadPodKey{}, true)
	review.SetContext(ctx)
	outer := *r // a copy, so that r stays on the stack
	resource := r.attributes.Resource
	p := &podReview{
		round: round{
			chain: r.chain, ctx: ctx, review: review, attributes: podCreation(review.Namespace()),
			deadline: r.deadline, began: r.began, now: time.Since(epoch),
		},
		outer: &outer, template: template,
		name: fmt.Sprintf("%s %q", schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, objectName(r.review)),
	}
	for _, p.phase = range [...]Phase{Mutate, Validate} {
		for i := range r.chain.pods.entries {
			e := &r.chain.pods.entries[i]
			checks := e.Settings.ChecksWorkloads() && r.chain.find(e.plugin.Name) != nil
			if !checks && p.phase == Validate || !e.handles(p.phase, &p.attributes) {
				continue
			}
			if outcome, err := p.run(e, checks); err != nil || outcome == OutcomeDenied {
				return outcome, err
			}
		}
	}
	r.now = p.now
	return OutcomeAllowed, nil
}

// failPods is the answer if the Pod cannot be made of the workload, because of err or an error of the review.
func (r *round) failPods(err error) (Outcome, error) {
	fault := r.review.Err()
	if fault == nil {
		// No controller can make a Pod of it either. If one does, it is checked.
		r.review.Response.Warn(fmt.Sprintf("%v, so nothing checked them", err))
		return OutcomeAllowed, nil
	}
	if denial := tooLarge(fault); denial != nil {
		r.review.Response.Allowed, r.review.Response.Status = false, *denial
		return OutcomeDenied, nil
	}
	if _, late := errors.AsType[*codec.ContextError](fault); !late {
		return OutcomeErrored, fault
	}
	for i := range r.chain.entries {
		if e := &r.chain.entries[i]; e.Settings.ChecksWorkloads() && !e.Settings.ignores() {
			return OutcomeErrored, &FailureError{Plugin: e.plugin.Name, Err: fault}
		}
	}
	r.review.Rollback()
	return OutcomeAllowed, nil
}

// podReviewOf decodes the review of the Pod, as its controller would send it.
func podReviewOf(r *round, review *codec.Review) error {
	object := r.review.Object.Root()
	if !object.FitsDecoded() {
		return nil // r.review has the error
	}
	resource := schema.GroupResource{Group: r.attributes.Resource.Group, Resource: r.attributes.Resource.Resource}
	pod, err := r.chain.pods.paths.Pod(resource, r.review.Kind().Kind, object.AppendJSON(nil))
	if err != nil {
		return err
	}
	user := workload.User(pod.Controller)
	if pod.Controller == "" {
		user = authenticationv1.UserInfo{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(r.review.UserInfo().AppendJSON(nil), &user); err != nil {
			return err
		}
	}
	pods := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: codec.APIVersionV1},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(r.review.UID()), Kind: metav1.GroupVersionKind(pod.Kind), Resource: pods,
			RequestKind: new(metav1.GroupVersionKind(pod.Kind)), RequestResource: &pods,
			Name: pod.Name, Namespace: r.review.Namespace(), Operation: admissionv1.Create, UserInfo: user,
			Object: runtime.RawExtension{Raw: pod.JSON}, DryRun: new(r.review.DryRun()),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	})
	if err != nil {
		return err
	}
	return review.Decode(body)
}

// run runs a plugin on the Pod. If checks is true, the workload gets the result. If not, the plugin only
// changes the Pod for later ones.
func (p *podReview) run(e *entry, checks bool) (Outcome, error) {
	if explain := p.chain.Explain; explain != nil && checks {
		x := &Explanation{
			Plugin: e.plugin.Name, Phase: p.outer.phase.String(), Round: 1, Asked: true,
			Why: fmt.Sprintf("workloadPods is %s, and this is the Pod of the workload", e.Settings.WorkloadPods),
		}
		p.explained = &explained{x, p.review.Object.Root().AppendJSON(nil)}
		defer func() {
			p.explained = nil
			explain(x)
		}()
	}
	start := p.now
	p.excepts = checks && p.chain.exceptions != nil && p.chain.exceptions.Name(e.plugin.Name)
	p.review.Checkpoint()
	told := len(p.review.Response.Warnings())
	result, outcome, ran, err := p.attempt(e)
	if err != nil || !ran {
		return outcome, err
	}
	if p.explained != nil {
		p.explained.note(&p.round, outcome, &result)
	}
	var warnings []string
	for _, text := range p.review.Response.Warnings()[told:] {
		warnings = append(warnings, strings.Clone(text))
	}
	if outcome != OutcomeAllowed && outcome != OutcomePatched {
		p.review.Rollback()
	}
	if !checks {
		return OutcomeAllowed, nil
	}
	return p.tell(e, result, outcome, warnings, start)
}

// tell gives the workload the result of a plugin for its Pod.
func (p *podReview) tell(e *entry, result Result, outcome Outcome, warnings []string, start time.Duration) (Outcome, error) {
	response := &p.outer.review.Response
	for _, text := range warnings {
		if !slices.Contains(response.Warnings(), text) { // PodSecurity also warns of the template itself
			response.Warn(fmt.Sprintf("Pods of %s: %s", p.name, workload.Locate(text, p.template)))
		}
	}
	warns := e.Settings.WorkloadPods == WorkloadPodsWarn
	switch outcome {
	case OutcomePatched, OutcomeAudited: // the Pods themselves are changed, and audited
		outcome = OutcomeAllowed
	case OutcomeDenied, OutcomeWarned:
		result.Denial = p.denial(result.Denial)
		if warns {
			outcome = OutcomeWarned
		}
	case OutcomeErrored, OutcomePanicked:
		failure := &FailureError{Plugin: e.plugin.Name, Err: result.Err}
		if warns && !e.Settings.ignores() {
			p.outer.review.Response.Warn(fmt.Sprintf("Pods of %s could not be checked: %s", p.name, failure))
			outcome = OutcomeAllowed
		}
	}
	p.outer.review.Checkpoint() // conclude undoes what came after it
	return outcome, p.outer.conclude(e, &result, outcome, p.now-start)
}

// denial returns the denial of the workload for that of its Pod.
func (p *podReview) denial(of *codec.Status) *codec.Status {
	denial := *of
	denial.Reason = strings.Clone(of.Reason)
	denial.Message = fmt.Sprintf("Pods of %s would be denied: %s", p.name, workload.Locate(of.Message, p.template))
	resource := p.outer.attributes.Resource
	denial.Details.Name, denial.Details.UID = objectName(p.outer.review), ""
	denial.Details.Group, denial.Details.Kind = resource.Group, resource.Resource
	denial.Details.Causes = nil
	for _, cause := range of.Details.Causes {
		cause.Type, cause.Message = strings.Clone(cause.Type), strings.Clone(workload.Locate(cause.Message, p.template))
		cause.Field = strings.TrimSuffix(workload.Locate(cause.Field+":", p.template), ":")
		denial.Details.Causes = append(denial.Details.Causes, cause)
	}
	return &denial
}
