package podsecuritypolicy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
)

// faultsOf collects the faults of a pod as messages. It ignores more of them once they
// exceed the longest message that is sent.
type faultsOf struct {
	messages []string
	bytes    int
}

func (f *faultsOf) add(err *field.Error) {
	if !f.full() {
		f.say(err.Error())
	}
}

func (f *faultsOf) say(message string) {
	f.messages = append(f.messages, message)
	f.bytes += len(message)
}

func (f *faultsOf) full() bool { return f.bytes > admission.MessagesBytesMax }

// validate adds the faults of the candidate under the policy.
func (c *candidate) validate(p *PodSecurityPolicy, f *faultsOf) {
	path := field.NewPath("spec", "securityContext")
	var fsGroups []int64
	if c.context.FSGroup != nil {
		fsGroups = []int64{*c.context.FSGroup}
	}
	checkGroups(f, path.Child("fsGroup"), &p.Spec.FSGroup, fsGroups)
	checkGroups(f, path.Child("supplementalGroups"), &p.Spec.SupplementalGroups, c.context.SupplementalGroups)
	checkSeccomp(f, &p.rules.seccomp, corev1.SeccompPodAnnotationKey, c.profile)
	checkSELinux(f, path.Child("seLinuxOptions"), &p.Spec.SELinux, c.context.SELinuxOptions)
	spec := &c.pod.Spec
	for _, host := range []struct {
		field         string
		uses, allowed bool
		message       string
	}{
		{"hostNetwork", spec.HostNetwork, p.Spec.HostNetwork, "Host network is not allowed to be used"},
		{"hostPID", spec.HostPID, p.Spec.HostPID, "Host PID is not allowed to be used"},
		{"hostIPC", spec.HostIPC, p.Spec.HostIPC, "Host IPC is not allowed to be used"},
	} {
		if host.uses && !host.allowed {
			f.add(field.Invalid(path.Child(host.field), true, host.message))
		}
	}
	c.checkSysctls(p, f)
	c.checkVolumes(p, f)
	if r := p.Spec.RuntimeClass; r != nil && c.runtimeClassName != nil &&
		!slices.Contains(r.AllowedRuntimeClassNames, anything) && !slices.Contains(r.AllowedRuntimeClassNames, *c.runtimeClassName) {
		f.add(field.Invalid(field.NewPath("spec", "runtimeClassName"), *c.runtimeClassName, ""))
	}
	for i := range c.containers {
		if f.full() {
			return
		}
		c.validateContainer(p, i, f)
	}
}

func checkGroups(f *faultsOf, path *field.Path, options *IDOptions, groups []int64) {
	if options.Rule == runAsAny {
		return
	}
	if len(groups) == 0 && options.Rule == mustRunAs {
		f.say(invalidGroups(path, groups, "unable to validate empty groups against required ranges"))
	}
	for _, group := range groups {
		if f.full() {
			return // each message has all groups
		}
		if !isIn(options.Ranges, group) {
			f.say(invalidGroups(path, groups, fmt.Sprintf("group %d must be in the ranges: %v", group, options.Ranges)))
		}
	}
}

// invalidGroups formats an error as v1.24's field.Invalid did for lists.
func invalidGroups(path *field.Path, groups []int64, detail string) string {
	return fmt.Sprintf("%s: Invalid value: %#v: %s", path, groups, detail)
}

func isIn(ranges []IDRange, id int64) bool {
	return slices.ContainsFunc(ranges, func(r IDRange) bool { return r.Min <= id && id <= r.Max })
}

func checkSeccomp(f *faultsOf, p *profiles, annotation, profile string) {
	path := field.NewPath("pod", "metadata", "annotations").Key(annotation)
	switch {
	case p.allowed.HasAny(anything, profile) || p.allowed == nil && profile == "":
	case p.allowed == nil:
		f.add(field.Forbidden(path, "seccomp may not be set"))
	default:
		f.add(field.Forbidden(path, fmt.Sprintf("%s is not an allowed seccomp profile. Valid values are %v", profile, p.shown)))
	}
}

func checkSELinux(f *faultsOf, path *field.Path, options *SELinuxOptions, got *corev1.SELinuxOptions) {
	if options.Rule == runAsAny {
		return
	}
	want := options.SELinuxOptions // mutate sets it if the pod has none
	check := func(name, got, want string, equal bool) {
		if !equal {
			f.add(field.Invalid(path.Child(name), got, "must be "+want))
		}
	}
	check("level", got.Level, want.Level, equalLevels(want.Level, got.Level))
	check("role", got.Role, want.Role, got.Role == want.Role)
	check("type", got.Type, want.Type, got.Type == want.Type)
	check("user", got.User, want.User, got.User == want.User)
}

// equalLevels compares levels such as s0:c6,c0, whose categories have no order.
func equalLevels(a, b string) bool {
	sensitivity, categories, ok := strings.Cut(a, ":")
	other, others, okOther := strings.Cut(b, ":")
	if !ok || !okOther || sensitivity != other {
		return a == b
	}
	sortedOf := func(s string) []string { return slices.Sorted(slices.Values(strings.Split(s, ","))) }
	return slices.Equal(sortedOf(categories), sortedOf(others))
}

// safeSysctls are the sysctls that affect only the pod (k8s.io/kubernetes v1.24
// pkg/security/podsecuritypolicy/sysctl).
var safeSysctls = sets.New("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
	"net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start")

func (c *candidate) checkSysctls(p *PodSecurityPolicy, f *faultsOf) {
	path := field.NewPath("pod", "spec", "securityContext").Child("sysctls")
	for i := range c.context.Sysctls {
		switch name := c.context.Sysctls[i].Name; {
		case matches(p.Spec.ForbiddenSysctls, name):
			f.add(field.Forbidden(path.Index(i), fmt.Sprintf("sysctl %q is not allowed", name)))
		case !safeSysctls.Has(name) && !matches(p.Spec.AllowedUnsafeSysctls, name):
			f.add(field.Forbidden(path.Index(i), fmt.Sprintf("unsafe sysctl %q is not allowed", name)))
		}
	}
}

// matches reports whether a name is among patterns, which may end with an asterisk.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(name, prefix)
		}
		return pattern == name
	})
}

func (c *candidate) validateContainer(p *PodSecurityPolicy, i int, f *faultsOf) {
	given, sc := &c.containers[i], c.contexts[i]
	if sc == nil {
		sc = new(corev1.SecurityContext)
	}
	path := given.path().Child("securityContext")
	checkUser(f, path, &p.Spec.RunAsUser, c.runAsNonRoot(i), c.runAsUser(i))
	if options := p.Spec.RunAsGroup; options != nil {
		var groups []int64
		if group := c.runAsGroup(i); group != nil {
			groups = []int64{*group}
		}
		checkGroups(f, path, options, groups)
	}
	checkSELinux(f, path.Child("seLinuxOptions"), &p.Spec.SELinux, c.seLinux(i))
	c.checkAppArmor(p, given, f)
	profile, says := c.containerProfile(given)
	if !says {
		profile = c.inherited
	}
	checkSeccomp(f, &p.rules.seccomp, corev1.SeccompContainerAnnotationKeyPrefix+given.Name, profile)
	if !p.Spec.Privileged && isTrue(sc.Privileged) {
		f.add(field.Invalid(path.Child("privileged"), true, "Privileged containers are not allowed"))
	}
	procMount, allowed := corev1.DefaultProcMount, p.Spec.AllowedProcMountTypes
	if sc.ProcMount != nil {
		procMount = *sc.ProcMount
	}
	if len(allowed) == 0 && procMount != corev1.DefaultProcMount || len(allowed) > 0 && !slices.Contains(allowed, procMount) {
		f.add(field.Invalid(path.Child("procMount"), string(procMount), "ProcMountType is not allowed"))
	}
	checkCapabilities(f, path.Child("capabilities"), p, sc.Capabilities)
	checkHostPorts(f, given, p)
	if p.Spec.ReadOnlyRootFilesystem && !isTrue(sc.ReadOnlyRootFilesystem) { // mutate sets it
		f.add(field.Invalid(path.Child("readOnlyRootFilesystem"), false, "ReadOnlyRootFilesystem must be set to true"))
	}
	if !p.Spec.allowsEscalation() && *sc.AllowPrivilegeEscalation { // mutate sets it
		f.add(field.Invalid(path.Child("allowPrivilegeEscalation"), true, "Allowing privilege escalation for containers is not allowed"))
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func checkUser(f *faultsOf, path *field.Path, options *IDOptions, nonRoot *bool, user *int64) {
	switch {
	case options.Rule == runAsAny:
	case options.Rule == mustRunAs:
		if !isIn(options.Ranges, *user) { // mutate sets it
			f.add(field.Invalid(path.Child("runAsUser"), *user, fmt.Sprintf("must be in the ranges: %v", options.Ranges)))
		}
	case nonRoot != nil && !*nonRoot:
		f.add(field.Invalid(path.Child("runAsNonRoot"), false, "must be true"))
	case user != nil && *user == 0:
		f.add(field.Invalid(path.Child("runAsUser"), *user, "running with the root UID is forbidden"))
	}
}

func (c *candidate) checkAppArmor(p *PodSecurityPolicy, given *container, f *faultsOf) {
	profiles := &p.rules.apparmor
	if profiles.allowed == nil {
		return
	}
	path := field.NewPath("pod", "metadata", "annotations").Key(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + given.Name)
	switch profile := c.apparmorProfile(c.annotations, given); {
	case profile == "":
		f.add(field.Forbidden(path, "AppArmor profile must be set"))
	case !profiles.allowed.Has(profile):
		f.add(field.Forbidden(path, fmt.Sprintf("%s is not an allowed profile. Allowed values: %q", profile, profiles.shown)))
	}
}

func checkCapabilities(f *faultsOf, path *field.Path, p *PodSecurityPolicy, got *corev1.Capabilities) {
	r := p.rules
	if got == nil || r.allowedAdd.Has(anything) {
		return // mutate sets some if the policy adds or drops any
	}
	for _, c := range got.Add {
		if !r.defaultAdd.Has(string(c)) && !r.allowedAdd.Has(string(c)) {
			f.add(field.Invalid(path.Child("add"), string(c), "capability may not be added"))
		}
	}
}

func checkHostPorts(f *faultsOf, given *container, p *PodSecurityPolicy) {
	for _, port := range given.Ports {
		if f.full() {
			return
		}
		if port.HostPort <= 0 ||
			slices.ContainsFunc(p.Spec.HostPorts, func(r HostPortRange) bool { return r.Min <= port.HostPort && port.HostPort <= r.Max }) {
			continue
		}
		f.add(field.Invalid(given.path().Child("hostPort"), port.HostPort,
			fmt.Sprintf("Host port %d is not allowed to be used. Allowed ports: [%s]", port.HostPort, shown(p.Spec.HostPorts))))
	}
}

func shown(ranges []HostPortRange) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		if texts[i] = fmt.Sprint(r.Min); r.Min != r.Max {
			texts[i] += fmt.Sprintf("-%d", r.Max)
		}
	}
	return strings.Join(texts, ",")
}
