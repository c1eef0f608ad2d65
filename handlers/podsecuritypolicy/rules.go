package podsecuritypolicy

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	runAsAny         = "RunAsAny"
	mayRunAs         = "MayRunAs"
	mustRunAs        = "MustRunAs"
	mustRunAsNonRoot = "MustRunAsNonRoot"

	seccompDefault = "seccomp.security.alpha.kubernetes.io/defaultProfileName"
	seccompAllowed = "seccomp.security.alpha.kubernetes.io/allowedProfileNames"

	apparmorDefault = "apparmor.security.beta.kubernetes.io/defaultProfileName"
	apparmorAllowed = "apparmor.security.beta.kubernetes.io/allowedProfileNames"

	// dockerDefault is the former name of the container runtime's profile.
	dockerDefault = corev1.DeprecatedSeccompProfileDockerDefault

	anything = "*" // allows all of a list
)

// rules are a policy in a form that is fast to compare pods with.
type rules struct {
	defaultAdd, allowedAdd, requiredDrop sets.Set[string]
	volumes                              sets.Set[string]
	apparmor, seccomp                    profiles
	flexVolumes, csiDrivers              sets.Set[string]
}

// profiles are the profiles that containers may use.
type profiles struct {
	standard string           // for containers without one; empty for none
	allowed  sets.Set[string] // nil if the policy has no annotation for it
	shown    string           // allowed, for messages
}

// newProfiles reads annotations of a policy.
func newProfiles(annotations map[string]string, standard, allowed string) profiles {
	p := profiles{standard: annotations[standard], shown: annotations[allowed]}
	if list, ok := annotations[allowed]; ok {
		p.allowed = sets.New(strings.Split(list, ",")...)
	}
	return p
}

func newRules(spec *Spec, annotations map[string]string) (*rules, error) {
	r := new(rules)
	r.defaultAdd, r.allowedAdd = capabilities(spec.DefaultAddCapabilities), capabilities(spec.AllowedCapabilities)
	r.requiredDrop = capabilities(spec.RequiredDropCapabilities)
	r.volumes = sets.New(spec.Volumes...)
	r.apparmor = newProfiles(annotations, apparmorDefault, apparmorAllowed)
	r.seccomp = newProfiles(annotations, seccompDefault, seccompAllowed)
	if s := r.seccomp.allowed; s.HasAny(dockerDefault, corev1.SeccompProfileRuntimeDefault) { // the same profile
		s.Insert(dockerDefault, corev1.SeccompProfileRuntimeDefault)
	}
	r.flexVolumes, r.csiDrivers = sets.New[string](), sets.New[string]()
	for _, v := range spec.AllowedFlexVolumes {
		r.flexVolumes.Insert(v.Driver)
	}
	for _, d := range spec.AllowedCSIDrivers {
		r.csiDrivers.Insert(d.Name)
	}
	return r, utilerrors.NewAggregate(faults(spec, r))
}

func capabilities(list []corev1.Capability) sets.Set[string] {
	s := make(sets.Set[string], len(list))
	for _, c := range list {
		s.Insert(string(c))
	}
	return s
}

// faults returns why a policy is invalid. In-tree, API servers refuse most of these
// policies, and the plugin ignores the rest (k8s.io/kubernetes v1.24
// pkg/security/podsecuritypolicy/factory.go).
func faults(spec *Spec, r *rules) (errs []error) {
	switch spec.SELinux.Rule {
	case runAsAny:
	case mustRunAs:
		if spec.SELinux.SELinuxOptions == nil {
			errs = append(errs, errors.New("spec.seLinux: MustRunAs requires SELinuxOptions"))
		}
	default:
		errs = append(errs, fmt.Errorf("spec.seLinux.rule: got %q, want %s or %s", spec.SELinux.Rule, mustRunAs, runAsAny))
	}
	check := func(field string, options *IDOptions, rule string) {
		switch options.Rule {
		case runAsAny:
		case rule:
			if rule == mustRunAsNonRoot {
				return
			}
			fallthrough
		case mustRunAs:
			if len(options.Ranges) == 0 {
				errs = append(errs, fmt.Errorf("spec.%s.ranges: got none, want at least one for %s", field, options.Rule))
			}
		default:
			errs = append(errs, fmt.Errorf("spec.%s.rule: got %q, want %s, %s or %s", field, options.Rule, mustRunAs, rule, runAsAny))
		}
	}
	check("runAsUser", &spec.RunAsUser, mustRunAsNonRoot)
	if spec.RunAsGroup != nil {
		check("runAsGroup", spec.RunAsGroup, mayRunAs)
	}
	check("supplementalGroups", &spec.SupplementalGroups, mayRunAs)
	check("fsGroup", &spec.FSGroup, mayRunAs)
	if s := r.seccomp.standard; s != "" && seccompField(s) == nil {
		errs = append(errs, fmt.Errorf("metadata.annotations[%s]: got %q, want a seccomp profile, such as %s", seccompDefault,
			s, corev1.SeccompProfileRuntimeDefault))
	}
	return errs
}

// seccompField returns the profile with this name in annotations, nil if there is none
// (k8s.io/kubernetes v1.24 pkg/api/pod SeccompFieldForAnnotation).
func seccompField(name string) *corev1.SeccompProfile {
	switch name {
	case corev1.SeccompProfileNameUnconfined:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	case corev1.SeccompProfileRuntimeDefault, dockerDefault:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if file, ok := strings.CutPrefix(name, corev1.SeccompLocalhostProfileNamePrefix); ok && file != "" {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &file}
	}
	return nil
}

// seccompName returns the name of a profile in annotations, empty if it has none.
func seccompName(p *corev1.SeccompProfile) string {
	switch p.Type {
	case corev1.SeccompProfileTypeUnconfined:
		return corev1.SeccompProfileNameUnconfined
	case corev1.SeccompProfileTypeRuntimeDefault:
		return corev1.SeccompProfileRuntimeDefault
	case corev1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			return corev1.SeccompLocalhostProfileNamePrefix + *p.LocalhostProfile
		}
	}
	return ""
}
