package podsecurity

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/turns"
)

const (
	// podsMax is how many pods of a namespace are compared with a new standard, and
	// podsTimeout how long that may take: upstream's defaultNamespaceMaxPodsToCheck and
	// defaultNamespacePodCheckTimeout.
	podsMax     = 3000
	podsTimeout = time.Second
)

// The indexes of modes.
const (
	enforce = iota
	audit
	warn
)

// modes are the labels of a namespace that select standards, in upstream's order.
var modes = [...]struct {
	name, level, version string
	of                   func(*api.Policy) *api.LevelVersion
}{
	{"enforce", api.EnforceLevelLabel, api.EnforceVersionLabel, func(p *api.Policy) *api.LevelVersion { return &p.Enforce }},
	{"audit", api.AuditLevelLabel, api.AuditVersionLabel, func(p *api.Policy) *api.LevelVersion { return &p.Audit }},
	{"warn", api.WarnLevelLabel, api.WarnVersionLabel, func(p *api.Policy) *api.LevelVersion { return &p.Warn }},
}

// labelsOf returns the labels of a namespace that the plugin reads.
func labelsOf(namespace *codec.Object) map[string]string {
	all := namespace.Get("metadata", "labels")
	var labels map[string]string
	for _, mode := range modes {
		for _, key := range [...]string{mode.level, mode.version} {
			value := all.Get(key)
			if !value.Exists() {
				continue
			}
			if labels == nil {
				labels = make(map[string]string)
			}
			labels[key] = value.String()
		}
	}
	return labels
}

// validateNamespace behaves as upstream's ValidateNamespace: it checks the labels. If the
// enforced standard becomes stricter, it warns of pods that violate it.
func (p *plugin) validateNamespace(ctx context.Context, review *codec.Review, explain *explainer) admission.Result {
	labels := labelsOf(&review.Object)
	wanted, faults := api.PolicyToEvaluate(labels, p.defaults)
	create := review.Operation() == codec.Create
	var was api.Policy
	var known field.ErrorList
	if !create {
		was, known = api.PolicyToEvaluate(labelsOf(&review.OldObject), p.defaults)
	}
	name := review.Object.Get("metadata", "name").String()
	explain.standards(p, name, labels, wanted)
	explain.skipAll("only the pods of the namespace are compared, with the enforced standard if it becomes stricter")
	if len(faults) > 0 && !reflect.DeepEqual(faults, known) {
		kind := review.Kind()
		return admission.Denied(apierrors.NewInvalid(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}, review.Name(), faults))
	}
	switch {
	case !create && !enforcesMore(wanted.Enforce, was.Enforce):
		explain.skip(enforce, "it is not stricter than before")
	case p.exemptsNamespace(review):
		explain.skip(enforce, "the namespace is exempt")
		review.Response.Warn(p.exemptionWarning(name, labels, wanted))
	case !create:
		warnings := p.violations(ctx, name, wanted.Enforce)
		explain.failed(enforce, warnings, admission.OutcomeWarned)
		for _, warning := range warnings {
			review.Response.Warn(warning)
		}
	default:
		explain.skip(enforce, "a new namespace has no pods")
	}
	return admission.Allowed()
}

// enforcesMore reports whether pods may violate wanted that do not violate was.
func enforcesMore(wanted, was api.LevelVersion) bool {
	if wanted == was || wanted.Level == api.LevelPrivileged {
		return false
	}
	return wanted.Version != was.Version || api.CompareLevels(wanted.Level, was.Level) > 0
}

// exemptionWarning says that labels of an exempt namespace have no effect; "" if they demand
// nothing beyond the defaults.
func (p *plugin) exemptionWarning(name string, labels map[string]string, wanted api.Policy) string {
	if wanted.FullyPrivileged() || wanted.Equivalent(&p.defaults) {
		return ""
	}
	var ignored []string
	for _, mode := range modes {
		_, hasLevel := labels[mode.level]
		_, hasVersion := labels[mode.version]
		if standard := mode.of(&wanted); standard.Level != api.LevelPrivileged && (hasLevel || hasVersion) {
			ignored = append(ignored, mode.name+"="+standard.String())
		}
	}
	return fmt.Sprintf("namespace %q is exempt from Pod Security, and the policy (%s) will be ignored", name, strings.Join(ignored, ", "))
}

// offenders are the pods that violate a standard in the same way.
type offenders struct {
	first string // the first of their names
	count int
}

// podsTime returns how long to wait for the pods of a namespace: at most half of the
// remaining time, because they must be evaluated after that.
func podsTime(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(podsTimeout, time.Until(deadline)/2)
	}
	return podsTimeout
}

// violations returns warnings about the pods of a namespace that violate a standard, as
// upstream's EvaluatePodsInNamespace does.
func (p *plugin) violations(ctx context.Context, namespace string, standard api.LevelVersion) []string {
	ctx, cancel := context.WithTimeout(ctx, podsTime(ctx))
	defer cancel()
	pods, err := p.pods.ListLive(ctx, namespace)
	if err != nil && !cluster.IsInvalidName(err) { // no error in-tree, where all pods are cached
		return []string{"failed to list pods while checking new PodSecurity enforce level"}
	}
	pods = p.prioritized(pods)
	checked := min(len(pods), podsMax)
	found := make(map[string]offenders)
	for i, pod := range pods[:checked] {
		result := policy.AggregateCheckResults(p.evaluator.EvaluatePod(standard, &pod.ObjectMeta, &pod.Spec))
		if !result.Allowed {
			reason := result.ForbiddenReason()
			o := found[reason]
			if o.count == 0 || pod.Name < o.first {
				o.first = pod.Name
			}
			o.count++
			found[reason] = o
		}
		if turns.Continue(ctx) != nil {
			checked = i + 1
			break
		}
	}
	var warnings []string
	if checked < len(pods) {
		warnings = append(warnings, fmt.Sprintf(
			"new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(pods)))
	}
	if len(found) > 0 {
		warnings = append(warnings,
			fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, standard))
	}
	var reasons []string
	for reason, o := range found {
		reasons = append(reasons, o.String()+": "+reason)
	}
	slices.Sort(reasons)
	return append(warnings, reasons...)
}

func (o offenders) String() string {
	switch o.count {
	case 1:
		return o.first
	case 2:
		return o.first + " (and 1 other pod)"
	}
	return fmt.Sprintf("%s (and %d other pods)", o.first, o.count-1)
}

// prioritized returns the pods that are not exempt. The first pod of each controller comes
// first, because the others are similar.
func (p *plugin) prioritized(pods []*corev1.Pod) []*corev1.Pod {
	var first, others []*corev1.Pod
	seen := make(map[types.UID]bool)
	for _, pod := range pods {
		owner := metav1.GetControllerOfNoCopy(pod)
		switch {
		case p.exemptsRuntimeClass(&pod.Spec):
		case owner == nil || !seen[owner.UID]:
			first = append(first, pod)
			if owner != nil {
				seen[owner.UID] = true
			}
		default:
			others = append(others, pod)
		}
	}
	return append(first, others...)
}
