package podsecurity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// An explainer describes what decides about a review. Its methods do nothing if it is nil.
type explainer struct{ into *admission.Explanation }

// explain does what validate does, and explains it.
func (p *plugin) explain(ctx context.Context, review *codec.Review, x *admission.Explanation) admission.Result {
	explain := &explainer{x}
	if review.Resource().Resource != "namespaces" {
		explain.exemption("namespace", review.Namespace(), "exemptions.namespaces", p.exemptions.Namespaces)
		explain.exemption("user", review.Username(), "exemptions.usernames", p.exemptions.Usernames)
	}
	return p.decide(ctx, review, explain)
}

// exemption says whether the configuration exempts a name, if it exempts any.
func (e *explainer) exemption(what, name, field string, exempted []string) {
	if e == nil || len(exempted) == 0 {
		return
	}
	has := "does not have"
	if name != "" && slices.Contains(exempted, name) {
		has = "has"
	}
	e.into.Why += fmt.Sprintf("; %s %s %s %q", field, has, what, admission.ShownValue(name))
}

// runtimeClass says whether the RuntimeClass of a pod is exempt.
func (e *explainer) runtimeClass(p *plugin, spec *corev1.PodSpec) {
	if spec.RuntimeClassName != nil {
		e.exemption("RuntimeClass", *spec.RuntimeClassName, "exemptions.runtimeClasses", p.exemptions.RuntimeClasses)
	}
}

// standards says which standards the labels of a namespace and the defaults select.
func (e *explainer) standards(p *plugin, namespace string, labels map[string]string, wanted api.Policy) {
	if e != nil {
		e.addStandards(p, namespace, labels, new(wanted)) // a copy, so that wanted stays on the stack
	}
}

func (e *explainer) addStandards(p *plugin, namespace string, labels map[string]string, wanted *api.Policy) {
	for _, mode := range modes {
		standard, byDefault := mode.of(wanted), mode.of(&p.defaults)
		level := from(labels, mode.level, string(standard.Level), "defaults."+mode.name)
		version := from(labels, mode.version, standard.Version.String(), "defaults."+mode.name+"-version")
		if _, ok := labels[mode.level]; !ok && standard.Level != byDefault.Level { // only that of warn
			level = "enforce, which is stricter than defaults." + mode.name
			if _, ok := labels[mode.version]; !ok {
				version = "enforce"
			}
		}
		if p.newest.Older(standard.Version) {
			version += ", which means " + p.newest.String()
		}
		e.into.Standards = append(e.into.Standards, admission.StandardExplanation{
			Mode: mode.name, Standard: standard.String(),
			From: fmt.Sprintf("of namespace %s: level from %s; version from %s", strings.Clone(namespace), level, version),
		})
	}
}

// from says where the value of a level or a version is from: a label or a default.
func from(labels map[string]string, key, value, byDefault string) string {
	switch label, ok := labels[key]; {
	case !ok:
		return byDefault
	case label != value:
		return fmt.Sprintf("label %s, whose value %q is invalid", key, admission.ShownValue(label))
	default:
		return "label " + key + "=" + value
	}
}

// skip says why the object is not compared with a standard.
func (e *explainer) skip(mode int, why string) {
	if e != nil {
		e.into.Standards[mode].Why = why
	}
}

// skipAll says why the object is not compared with any standard.
func (e *explainer) skipAll(why string) {
	for mode := range modes {
		e.skip(mode, why)
	}
}

// compared adds the result of comparing a pod with a standard.
func (e *explainer) compared(mode int, found *policy.AggregateCheckResult) {
	if e == nil {
		return
	}
	var failed []string
	for i, reason := range found.ForbiddenReasons {
		if detail := found.ForbiddenDetails[i]; detail != "" {
			reason += " (" + detail + ")"
		}
		failed = append(failed, reason)
	}
	e.failed(mode, failed, [...]admission.Outcome{enforce: admission.OutcomeDenied, audit: admission.OutcomeAudited, warn: admission.OutcomeWarned}[mode])
}

// failed adds the checks that fail, and what happens because of them.
func (e *explainer) failed(mode int, checks []string, outcome admission.Outcome) {
	if e == nil {
		return
	}
	s := &e.into.Standards[mode]
	if s.Asked, s.Outcome, s.FailedChecks = true, outcome.String(), checks; len(checks) == 0 {
		s.Outcome = admission.OutcomeAllowed.String()
	}
}
