// Package podsecurity is the admission plugin PodSecurity.
//
// It compares pods with the Pod Security Standards (privileged, baseline, restricted) that
// the labels of their namespace select. It denies pods that violate the enforced one, and
// warns of or audits pods that violate the others. A privileged pod can take over its node,
// and so the cluster. Enable it if other users may create pods.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/security/podsecurity and
// k8s.io/pod-security-admission/admission. The checks are those of
// k8s.io/pod-security-admission/policy. Its package admission is not used, because it
// depends on kubernetes.Clientset and Prometheus' client, which would make the binary larger
// by half.
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admissionapi "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	writes := func(group string, resources ...string) admission.Rule {
		return admission.Rule{
			Operations: []codec.Operation{codec.Create, codec.Update},
			Groups:     []string{group}, Versions: []string{"v1"}, Resources: resources,
		}
	}
	return admission.Plugin{
		Name:    "PodSecurity",
		Summary: "enforces the Pod Security Standards that the labels of a namespace select",
		Rules: []admission.Rule{
			writes("", "namespaces", "pods", "pods/ephemeralcontainers", "pods/resize", "podtemplates", "replicationcontrollers"),
			writes("apps", "daemonsets", "deployments", "replicasets", "statefulsets"),
			writes("batch", "cronjobs", "jobs"),
		},
		Validates:   true,
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.Pods.Called("list")},
		OnByDefault: true,
		New:         newHandler,
	}
}

// Why a pod or workload is not checked.
const (
	isPrivileged = "the level of its namespace is privileged"
	isExempt     = "its namespace or user is exempt"
	onlyPods     = "only its pods are checked"
)

// errorAnnotationKey is a key of audit annotations that package api does not define.
const errorAnnotationKey = "error"

type plugin struct {
	defaults   api.Policy
	exemptions admissionapi.PodSecurityExemptions
	evaluator  policy.Evaluator
	newest     api.Version // for which there are checks
	namespaces *cluster.Objects[*corev1.Namespace]
	pods       *cluster.Objects[*corev1.Pod]
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	p, err := newPlugin(setup.Config, setup.Version)
	if err != nil {
		return admission.Handler{}, err
	}
	p.namespaces, p.pods = cluster.Namespaces.In(setup.Cluster), cluster.Pods.In(setup.Cluster)
	return admission.Handler{Validate: p.validate, Explain: p.explain}, nil
}

func newPlugin(config []byte, version admission.Version) (*plugin, error) {
	configuration, err := newConfiguration(config)
	if err != nil {
		return nil, err
	}
	p := &plugin{exemptions: configuration.Exemptions}
	if p.defaults, err = admissionapi.ToPolicy(configuration.Defaults); err != nil {
		return nil, err
	}
	// A label latest, or with a newer version, means the emulated version: a server has checks for
	// none that is newer than itself (k8s.io/pod-security-admission/policy/registry.go NewEvaluator).
	p.newest = api.MajorMinorVersion(1, version.Minor())
	p.evaluator, err = policy.NewEvaluator(policy.DefaultChecks(), &p.newest)
	return p, err
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	return p.decide(ctx, review, nil)
}

func (p *plugin) decide(ctx context.Context, review *codec.Review, explain *explainer) admission.Result {
	switch review.Resource().Resource {
	case "namespaces":
		return p.validateNamespace(ctx, review, explain)
	case "pods":
		return p.validatePod(ctx, review, explain)
	}
	return p.validateController(ctx, review, explain)
}

// validatePod behaves as upstream's ValidatePod.
func (p *plugin) validatePod(ctx context.Context, review *codec.Review, explain *explainer) admission.Result {
	if p.exempts(review) {
		return admission.Unchecked(isExempt)
	}
	namespace, err := p.namespaces.Get(ctx, "", review.Namespace())
	if err != nil {
		status := apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", review.Namespace()))
		return refused(review, status, err)
	}
	wanted, faults := api.PolicyToEvaluate(namespace.Labels, p.defaults)
	explain.standards(p, review.Namespace(), namespace.Labels, wanted)
	if len(faults) == 0 && wanted.FullyPrivileged() {
		explain.skipAll("it allows everything")
		annotate(review, api.EnforcedPolicyAnnotationKey, privilegedLatest)
		return admission.Unchecked(isPrivileged)
	}
	object := review.Object.Root()
	if review.Operation() == codec.Update && !changesImages(object.Get("spec"), review.OldObject.Get("spec")) {
		explain.skipAll("the update changes neither images nor the number of containers")
		return admission.Allowed()
	}
	spec, err := specOf(object)
	if err != nil {
		return refused(review, apierrors.NewBadRequest("failed to decode object"), err)
	}
	return p.evaluate(review, wanted, faults.ToAggregate(), metaOf(object), spec, explain, true)
}

// validateController behaves as upstream's ValidatePodController: it denies nothing, because
// the controller's pods are denied.
func (p *plugin) validateController(ctx context.Context, review *codec.Review, explain *explainer) admission.Result {
	if p.exempts(review) {
		return admission.Unchecked(isExempt)
	}
	namespace, err := p.namespaces.Get(ctx, "", review.Namespace())
	if err != nil {
		annotate(review, errorAnnotationKey, fmt.Sprintf("failed to lookup namespace %q: %v", review.Namespace(), err))
		return admission.Allowed()
	}
	wanted, faults := api.PolicyToEvaluate(namespace.Labels, p.defaults)
	explain.standards(p, review.Namespace(), namespace.Labels, wanted)
	explain.skip(enforce, onlyPods)
	if len(faults) == 0 && wanted.Warn.Level == api.LevelPrivileged && wanted.Audit.Level == api.LevelPrivileged {
		explain.skip(audit, "it allows everything")
		explain.skip(warn, "it allows everything")
		return admission.Unchecked(onlyPods)
	}
	resource := review.Resource().Resource
	template := templateOf(resource, &review.Object)
	if resource == "replicationcontrollers" && !template.IsSet() {
		explain.skipAll("the object has no template")
		return admission.Allowed() // only here the template is optional
	}
	spec, err := specOf(template)
	if err != nil {
		annotate(review, errorAnnotationKey, fmt.Sprintf("failed to decode object: %v", err))
		return admission.Allowed()
	}
	return p.evaluate(review, wanted, faults.ToAggregate(), metaOf(template), spec, explain, false)
}

// evaluate behaves as upstream's EvaluatePod.
func (p *plugin) evaluate(
	review *codec.Review, wanted api.Policy, fault error, meta *metav1.ObjectMeta, spec *corev1.PodSpec, explain *explainer,
	enforces bool,
) admission.Result {
	explain.runtimeClass(p, spec)
	if p.exemptsRuntimeClass(spec) {
		explain.skipAll("its RuntimeClass is exempt")
		annotate(review, api.ExemptionReasonAnnotationKey, "runtimeClass")
		return admission.Unchecked("its RuntimeClass is exempt")
	}
	if fault != nil {
		annotate(review, errorAnnotationKey, fmt.Sprintf("Failed to parse policy: %v", fault))
	}
	var last api.LevelVersion
	var result policy.AggregateCheckResult
	check := func(mode int, standard api.LevelVersion) policy.AggregateCheckResult {
		if last != standard { // nearly always all are equal
			last, result = standard, policy.AggregateCheckResults(p.evaluator.EvaluatePod(standard, meta, spec))
		}
		explain.compared(mode, &result)
		return result
	}
	var denial error
	if enforces {
		annotate(review, api.EnforcedPolicyAnnotationKey, wanted.Enforce.String())
		if found := check(enforce, wanted.Enforce); !found.Allowed {
			resource := review.Resource()
			denial = apierrors.NewForbidden(schema.GroupResource{Group: resource.Group, Resource: resource.Resource}, review.Name(),
				fmt.Errorf("violates PodSecurity %q: %s", wanted.Enforce, found.ForbiddenDetail()))
		}
	}
	if found := check(audit, wanted.Audit); !found.Allowed {
		annotate(review, api.AuditViolationsAnnotationKey, would(wanted.Audit, found))
	}
	if denial != nil {
		explain.skip(warn, "the pod is denied")
		return admission.Denied(denial)
	}
	if found := check(warn, wanted.Warn); !found.Allowed {
		review.Response.Warn(would(wanted.Warn, found))
	}
	return admission.Allowed()
}

func would(standard api.LevelVersion, found policy.AggregateCheckResult) string {
	return fmt.Sprintf("would violate PodSecurity %q: %s", standard, found.ForbiddenDetail())
}

// exempts reports whether the namespace or the user is exempt.
func (p *plugin) exempts(review *codec.Review) bool {
	if p.exemptsNamespace(review) {
		annotate(review, api.ExemptionReasonAnnotationKey, "namespace")
		return true
	}
	if user := review.Username(); user != "" && slices.Contains(p.exemptions.Usernames, user) {
		annotate(review, api.ExemptionReasonAnnotationKey, "user")
		return true
	}
	return false
}

func (p *plugin) exemptsNamespace(review *codec.Review) bool {
	namespace := review.Namespace()
	return namespace != "" && slices.Contains(p.exemptions.Namespaces, namespace)
}

func (p *plugin) exemptsRuntimeClass(spec *corev1.PodSpec) bool {
	class := spec.RuntimeClassName
	return class != nil && *class != "" && slices.Contains(p.exemptions.RuntimeClasses, *class)
}

// privilegedLatest is the default enforced standard.
var privilegedLatest = api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}.String()

// refused denies a request that cannot be evaluated, as upstream does.
func refused(review *codec.Review, status *apierrors.StatusError, err error) admission.Result {
	annotate(review, errorAnnotationKey, fmt.Sprintf("%v: %v", status, err))
	// Missing details are those of all of upstream's denials.
	if other, ok := errors.AsType[*apierrors.StatusError](admission.Forbidden(review, err)); ok && status.ErrStatus.Details == nil {
		status.ErrStatus.Details = other.ErrStatus.Details
	}
	return admission.Denied(status)
}

// annotate adds an audit annotation. The key must be valid.
func annotate(review *codec.Review, key, value string) {
	_ = review.Response.Annotate(key, value)
}
