// Package podsecuritypolicy is the admission plugin PodSecurityPolicy.
//
// It allows a pod if the pod conforms to a policy that its creator or its service account
// may use. It also sets fields that the pod leaves out: users, capabilities, profiles.
// Kubernetes replaced it by PodSecurity, which neither changes pods nor considers who
// creates them.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/security/podsecuritypolicy and
// pkg/security/podsecuritypolicy v1.24.17, the last release that had it.
package podsecuritypolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/accessreview"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// usedAnnotation names the policy that a pod was created with.
const usedAnnotation = "kubernetes.io/psp"

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "PodSecurityPolicy",
		Summary: "allows and completes pods by PodSecurityPolicies that their creator or service account may use",
		Rules: []admission.Rule{
			admission.CreateUpdate("pods"),
			admission.NewRule("", "v1", "pods/ephemeralcontainers", codec.Update),
		},
		Mutates:     true,
		Validates:   true,
		LastRelease: "1.24",
		Needs:       []cluster.Need{PodSecurityPolicies.Watched(), cluster.SubjectAccessReviews.Called("create")},
		New:         newHandler,
	}
}

type plugin struct {
	known  *cluster.Objects[*PodSecurityPolicy]
	files  map[string]*PodSecurityPolicy // by name
	access *cluster.Access
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	if err := documents.ReadConfig(setup.Config, "PodSecurityPolicyConfiguration"); err != nil {
		return admission.Handler{}, err
	}
	p := &plugin{
		known: PodSecurityPolicies.In(setup.Cluster), access: cluster.AccessIn(setup.Cluster), files: make(map[string]*PodSecurityPolicy),
	}
	reader := documents.Reader{APIVersions: apiVersions, Kinds: []string{"PodSecurityPolicy"}, Add: p.addFile}
	if errs := reader.Read(setup.Manifests); errs != nil {
		return admission.Handler{}, utilerrors.NewAggregate(errs)
	}
	return admission.Handler{Admit: p.admit(nil), Validate: p.validate(nil), Explain: p.explain}, nil
}

// addFile adds the policy in a file.
func (p *plugin) addFile(_ *admission.File, _ string, content []byte) []error {
	if errs := documents.Decode(content, new(documents.Object[Spec])); errs != nil { // because UnmarshalJSON reports no errors
		return errs
	}
	policy := new(PodSecurityPolicy)
	if err := policy.UnmarshalJSON(content); err != nil {
		return []error{err}
	}
	err := policy.fault
	switch {
	case policy.Name == "":
		err = field.Required(field.NewPath("metadata", "name"), "")
	case p.files[policy.Name] != nil:
		err = errors.New("another policy has the same name")
	}
	if err != nil {
		return []error{fmt.Errorf("PodSecurityPolicy %q: %w", policy.Name, err)}
	}
	p.files[policy.Name] = policy
	return nil
}

// policies returns the valid policies: the one with the name first, then the others in order
// of their names. A policy of a file replaces one of the cluster with the same name.
func (p *plugin) policies(first string) ([]*PodSecurityPolicy, error) {
	known, err := p.known.List("")
	all := make([]*PodSecurityPolicy, 0, len(known)+len(p.files))
	for _, policy := range known {
		if policy.fault == nil && p.files[policy.Name] == nil {
			all = append(all, policy)
		}
	}
	all = slices.AppendSeq(all, maps.Values(p.files))
	slices.SortFunc(all, func(a, b *PodSecurityPolicy) int {
		switch {
		case a.Name == first:
			return -1
		case b.Name == first:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, err
}

// admit completes new pods. Updates are only validated.
func (p *plugin) admit(explain *explainer) func(context.Context, *codec.Review) admission.Result {
	complete := admission.AdmitTyped(func(ctx context.Context, review *codec.Review, pod, _ *corev1.Pod) admission.Result {
		if pod == nil {
			return noPod(review)
		}
		policy, made, refused := p.choose(ctx, review, pod, "admit", "", explain)
		if refused != nil {
			return *refused
		}
		made.apply(pod)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, usedAnnotation, policy.Name)
		return annotated(review, "admit-policy", policy.Name)
	})
	return func(ctx context.Context, review *codec.Review) admission.Result {
		if review.Operation() != codec.Create {
			return admission.Allowed()
		}
		return complete(ctx, review)
	}
}

func noPod(review *codec.Review) admission.Result {
	return admission.Denied(admission.Forbidden(review, errors.New("unexpected type <nil>")))
}

func annotated(review *codec.Review, key, policy string) admission.Result {
	if err := review.Response.Annotate(key, policy); err != nil {
		return admission.Errored(err)
	}
	return admission.Allowed()
}

// validate sees the pod as it will be stored.
func (p *plugin) validate(explain *explainer) func(context.Context, *codec.Review) admission.Result {
	return admission.ValidateTyped(func(ctx context.Context, review *codec.Review, pod, old *corev1.Pod) admission.Result {
		if pod == nil {
			return noPod(review)
		}
		if review.Operation() == codec.Update && old != nil && isCollecting(pod, old) {
			return admission.Allowed()
		}
		policy, _, refused := p.choose(ctx, review, pod, "validate", pod.Annotations[usedAnnotation], explain)
		if refused != nil {
			return *refused
		}
		return annotated(review, "validate-policy", policy.Name)
	})
}

// isCollecting reports whether an update changes only fields that the garbage collector
// changes. Users with permission to delete the pod may do so (k8s.io/kubernetes v1.24
// pkg/registry/rbac IsOnlyMutatingGCFields).
func isCollecting(pod, old *corev1.Pod) bool {
	p := *pod
	p.OwnerReferences, p.Finalizers, p.ManagedFields = old.OwnerReferences, old.Finalizers, old.ManagedFields
	p.SetSelfLink(old.GetSelfLink())
	return apiequality.Semantic.DeepEqual(&p, old)
}

// choose returns the first policy that allows the pod unchanged. If there is none and the
// pod is being admitted, it returns the first policy that allows the changed pod, and that
// pod.
func (p *plugin) choose(ctx context.Context, review *codec.Review, pod *corev1.Pod, verb, first string, explain *explainer) (
	*PodSecurityPolicy, *candidate, *admission.Result) {
	deny := func(format string, arguments ...any) *admission.Result {
		return new(admission.Denied(admission.Forbidden(review, fmt.Errorf(format, arguments...))))
	}
	policies, err := p.policies(first)
	if err != nil {
		return nil, nil, new(admission.Errored(err))
	}
	if len(policies) == 0 {
		return nil, nil, deny("PodSecurityPolicy: no providers available to validate pod request")
	}
	a, err := newPermissions(ctx, p.access, review, pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, nil, new(admission.Errored(err))
	}
	mutates := verb == "admit"
	s := newSubject(pod, mutates)
	var chosen *PodSecurityPolicy
	var made *candidate
	faults := make(map[string]*faultsOf)
	for i, policy := range policies {
		if err := turns.Continue(ctx); err != nil {
			return nil, nil, new(admission.Errored(err))
		}
		c, f := s.mutate(policy), new(faultsOf)
		if c.validate(policy, f); len(f.messages) > 0 {
			faults[policy.Name] = f
			explain.says(policy, admission.OutcomeDenied, f.messages...)
			continue
		}
		if c.mutated && !mutates {
			explain.says(policy, admission.OutcomeDenied, "it allows the pod only with changes, and the pod is not changed any more")
			continue
		}
		if c.mutated && chosen != nil {
			explain.changesToo(policy, chosen)
			continue
		}
		if may, err := a.may(policy.Name); err != nil {
			return nil, nil, new(admission.Errored(err))
		} else if !may {
			explain.says(policy, admission.OutcomeDenied, "neither the service account nor the user may use it")
			continue
		}
		if chosen, made = policy, c; !c.mutated {
			explain.says(policy, admission.OutcomeAllowed)
			explain.skips(policies[i+1:], policy)
			return chosen, made, nil
		}
		explain.says(policy, admission.OutcomePatched, "used, unless a later policy allows the pod unchanged")
	}
	if chosen != nil {
		return chosen, made, nil
	}
	messages, err := a.messages(policies, faults)
	if err != nil {
		return nil, nil, new(admission.Errored(err))
	}
	return nil, nil, deny("PodSecurityPolicy: unable to %s pod: [%s]", verb, strings.Join(messages, " "))
}

// Permissions answer which policies the pod's service account or the user may use.
type permissions struct {
	ctx    context.Context
	access *cluster.Access
	users  []*authorizationv1.SubjectAccessReviewSpec
	space  string // the namespace
}

func newPermissions(ctx context.Context, access *cluster.Access, review *codec.Review, account string) (*permissions, error) {
	user := new(authorizationv1.SubjectAccessReviewSpec)
	if review.UserInfo().IsSet() { // API servers always set it
		var err error
		if user, err = accessreview.Spec(review, nil); err != nil {
			return nil, err
		}
	}
	a := &permissions{ctx: ctx, access: access, space: review.Namespace()}
	if account != "" {
		a.users = append(a.users, &authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + a.space + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + a.space},
		})
	}
	a.users = append(a.users, user)
	return a, nil
}

// groups are the API groups of policies in roles.
var groups = [...]string{"policy", "extensions"}

// may reports whether the service account or the user may use a policy.
func (a *permissions) may(policy string) (bool, error) {
	if err := a.ctx.Err(); err != nil { // also if the answers are cached
		return false, err
	}
	for _, user := range a.users {
		for _, group := range groups {
			question := *user
			question.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Verb: "use", Group: group, Version: "*", Resource: "podsecuritypolicies", Namespace: a.space, Name: policy,
			}
			status, err := a.access.Review(a.ctx, &question)
			if err != nil {
				return false, fmt.Errorf("cannot ask who may use PodSecurityPolicy %s: %w", policy, err)
			}
			if status.Allowed && !status.Denied {
				return true, nil
			}
		}
	}
	return false, nil
}

// messages returns how the pod violates the policies that may be used.
func (a *permissions) messages(policies []*PodSecurityPolicy, faults map[string]*faultsOf) (messages []string, err error) {
	bytes := 0
	for _, policy := range policies {
		f := faults[policy.Name]
		if f == nil || bytes > admission.MessagesBytesMax {
			continue
		}
		may, err := a.may(policy.Name)
		if err != nil {
			return nil, err
		}
		if may {
			messages, bytes = append(messages, f.messages...), bytes+f.bytes
		}
	}
	return messages, nil
}
