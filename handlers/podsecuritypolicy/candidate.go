package podsecuritypolicy

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A subject is a pod that is compared with policies. The comparison does not write to it.
type subject struct {
	pod        *corev1.Pod
	context    *corev1.PodSecurityContext // never nil
	containers []container
	mounts     map[string][]mount // writable mounts by the name of the volume; nil until they are needed
	// translates says that seccomp annotations count where the fields are not set. It is
	// true for pods that are created.
	translates bool
}

type container struct {
	*corev1.Container
	list  string
	index int
}

func (c *container) path() *field.Path { return field.NewPath("spec", c.list).Index(c.index) }

// A mount is the index of a volume mount of a container.
type mount struct{ container, index int }

func newSubject(pod *corev1.Pod, translates bool) *subject {
	s := &subject{pod: pod, context: pod.Spec.SecurityContext, translates: translates}
	if s.context == nil {
		s.context = new(corev1.PodSecurityContext)
	}
	spec := &pod.Spec
	s.containers = make([]container, 0, len(spec.InitContainers)+len(spec.Containers)+len(spec.EphemeralContainers))
	for i := range spec.InitContainers {
		s.containers = append(s.containers, container{&spec.InitContainers[i], "initContainers", i})
	}
	for i := range spec.Containers {
		s.containers = append(s.containers, container{&spec.Containers[i], "containers", i})
	}
	for i := range spec.EphemeralContainers {
		c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
		s.containers = append(s.containers, container{c, "ephemeralContainers", i})
	}
	return s
}

// writableMounts returns the mounts of a volume that are not read-only.
func (s *subject) writableMounts(volume string) []mount {
	if s.mounts == nil {
		s.mounts = make(map[string][]mount)
		for i := range s.containers {
			for j := range s.containers[i].VolumeMounts {
				if m := &s.containers[i].VolumeMounts[j]; !m.ReadOnly {
					s.mounts[m.Name] = append(s.mounts[m.Name], mount{i, j})
				}
			}
		}
	}
	return s.mounts[volume]
}

// podProfile returns the pod's seccomp profile, and whether the pod sets one.
func (s *subject) podProfile() (name string, says bool) {
	if p := s.context.SeccompProfile; p != nil {
		return seccompName(p), true
	}
	if s.translates {
		name = s.pod.Annotations[corev1.SeccompPodAnnotationKey]
	}
	return name, name != ""
}

// containerProfile returns the container's seccomp profile, and whether the container sets
// one.
func (s *subject) containerProfile(c *container) (name string, says bool) {
	if c.SecurityContext != nil && c.SecurityContext.SeccompProfile != nil {
		return seccompName(c.SecurityContext.SeccompProfile), true
	}
	if s.translates {
		name, says = s.pod.Annotations[corev1.SeccompContainerAnnotationKeyPrefix+c.Name]
	}
	return canonical(name), says
}

// canonical returns one name for a profile that has several.
func canonical(name string) string {
	if p := seccompField(name); p != nil {
		return seccompName(p)
	}
	return name
}

// apparmorProfile returns the name of the AppArmor profile of a container. API servers
// derive the field from the annotation, but not the annotation from the field. If a
// container has both, they are equal.
func (s *subject) apparmorProfile(annotations map[string]string, c *container) string {
	if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return apparmorName(sc.AppArmorProfile)
	}
	if name := annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; name != "" {
		return name
	}
	if s.context.AppArmorProfile != nil {
		return apparmorName(s.context.AppArmorProfile)
	}
	return ""
}

// apparmorName returns the name that a profile has in annotations.
func apparmorName(p *corev1.AppArmorProfile) string {
	switch {
	case p.Type == corev1.AppArmorProfileTypeUnconfined:
		return corev1.DeprecatedAppArmorBetaProfileNameUnconfined
	case p.Type == corev1.AppArmorProfileTypeRuntimeDefault:
		return corev1.DeprecatedAppArmorBetaProfileRuntimeDefault
	case p.Type == corev1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		return corev1.DeprecatedAppArmorBetaProfileNamePrefix + *p.LocalhostProfile
	}
	return string(p.Type) // not the name of a profile, but not empty either
}

// A candidate is the pod as a policy changes it. It shares unchanged parts with the pod.
type candidate struct {
	*subject
	context          *corev1.PodSecurityContext
	runtimeClassName *string
	annotations      map[string]string
	contexts         []*corev1.SecurityContext // by container
	profile          string                    // the pod's seccomp profile
	inherited        string                    // the same profile as containers inherit it
	mutated          bool
}

// mutate returns the pod as the policy changes it.
func (s *subject) mutate(p *PodSecurityPolicy) *candidate {
	c := &candidate{
		subject: s, context: s.context, runtimeClassName: s.pod.Spec.RuntimeClassName, annotations: s.pod.Annotations,
		contexts: make([]*corev1.SecurityContext, len(s.containers)),
	}
	c.mutatePod(p)
	for i := range s.containers {
		c.contexts[i] = s.containers[i].SecurityContext
		c.mutateContainer(p, i)
	}
	return c
}

// own returns the pod's security context as a copy that may be changed.
func (c *candidate) own() *corev1.PodSecurityContext {
	if c.context == c.subject.context {
		copied := *c.context
		c.context = &copied
	}
	c.mutated = true
	return c.context
}

// ownOf returns a container's security context as a copy that may be changed.
func (c *candidate) ownOf(i int) *corev1.SecurityContext {
	c.mutated = true
	switch c.contexts[i] {
	case nil:
		c.contexts[i] = new(corev1.SecurityContext)
	case c.containers[i].SecurityContext:
		copied := *c.contexts[i]
		c.contexts[i] = &copied
	}
	return c.contexts[i]
}

func (c *candidate) mutatePod(p *PodSecurityPolicy) {
	spec := &p.Spec
	if c.context.SupplementalGroups == nil && spec.SupplementalGroups.Rule == mustRunAs {
		c.own().SupplementalGroups = []int64{spec.SupplementalGroups.Ranges[0].Min}
	}
	if c.context.FSGroup == nil && spec.FSGroup.Rule == mustRunAs {
		c.own().FSGroup = new(spec.FSGroup.Ranges[0].Min)
	}
	if c.context.SELinuxOptions == nil && spec.SELinux.Rule == mustRunAs {
		c.own().SELinuxOptions = spec.SELinux.SELinuxOptions
	}
	var says bool
	if c.profile, says = c.podProfile(); !says && p.rules.seccomp.standard != "" {
		c.profile, c.inherited = p.rules.seccomp.standard, p.rules.seccomp.standard
		c.own().SeccompProfile = seccompField(c.profile)
	} else {
		c.inherited = canonical(c.profile)
	}
	if p.rules.apparmor.standard != "" { // sets an annotation for each container without one
		c.annotations = make(map[string]string, len(c.pod.Annotations)+len(c.containers))
		maps.Copy(c.annotations, c.pod.Annotations)
	}
	if r := spec.RuntimeClass; r != nil && c.runtimeClassName == nil && r.DefaultRuntimeClassName != nil {
		c.runtimeClassName, c.mutated = r.DefaultRuntimeClassName, true
	}
}

func (c *candidate) mutateContainer(p *PodSecurityPolicy, i int) {
	spec := &p.Spec
	if c.runAsUser(i) == nil && spec.RunAsUser.Rule == mustRunAs {
		c.ownOf(i).RunAsUser = new(spec.RunAsUser.Ranges[0].Min)
	}
	if c.runAsGroup(i) == nil && spec.RunAsGroup != nil && spec.RunAsGroup.Rule == mustRunAs {
		c.ownOf(i).RunAsGroup = new(spec.RunAsGroup.Ranges[0].Min)
	}
	if standard := p.rules.apparmor.standard; standard != "" && c.apparmorProfile(c.annotations, &c.containers[i]) == "" {
		c.annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.containers[i].Name] = standard
		c.mutated = true
	}
	if c.runAsNonRoot(i) == nil && c.runAsUser(i) == nil && spec.RunAsUser.Rule == mustRunAsNonRoot {
		c.ownOf(i).RunAsNonRoot = new(true)
	}
	given := c.capabilities(i)
	if changed := withCapabilities(given, p.rules); changed != given {
		c.ownOf(i).Capabilities = changed
	}
	sc := c.contexts[i]
	if spec.ReadOnlyRootFilesystem && (sc == nil || sc.ReadOnlyRootFilesystem == nil) {
		sc = c.ownOf(i)
		sc.ReadOnlyRootFilesystem = new(true)
	}
	if standard := escalation(spec); standard != nil && (sc == nil || sc.AllowPrivilegeEscalation == nil) {
		c.ownOf(i).AllowPrivilegeEscalation = standard
	}
}

// escalation returns the value of allowPrivilegeEscalation for containers that do not set
// it, nil to leave it unset.
func escalation(spec *Spec) *bool {
	switch {
	case spec.DefaultAllowPrivilegeEscalation != nil:
		return spec.DefaultAllowPrivilegeEscalation
	case !spec.allowsEscalation():
		return new(false)
	}
	return nil
}

func (s *Spec) allowsEscalation() bool {
	return s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation
}

func (c *candidate) runAsUser(i int) *int64 {
	if sc := c.contexts[i]; sc != nil && sc.RunAsUser != nil {
		return sc.RunAsUser
	}
	return c.context.RunAsUser
}

func (c *candidate) runAsGroup(i int) *int64 {
	if sc := c.contexts[i]; sc != nil && sc.RunAsGroup != nil {
		return sc.RunAsGroup
	}
	return c.context.RunAsGroup
}

func (c *candidate) runAsNonRoot(i int) *bool {
	if sc := c.contexts[i]; sc != nil && sc.RunAsNonRoot != nil {
		return sc.RunAsNonRoot
	}
	return c.context.RunAsNonRoot
}

func (c *candidate) seLinux(i int) *corev1.SELinuxOptions {
	if sc := c.contexts[i]; sc != nil && sc.SELinuxOptions != nil {
		return sc.SELinuxOptions
	}
	return c.context.SELinuxOptions
}

func (c *candidate) capabilities(i int) *corev1.Capabilities {
	if sc := c.contexts[i]; sc != nil {
		return sc.Capabilities
	}
	return nil
}

// withCapabilities returns a container's capabilities with those that the policy adds and
// drops. It returns given itself if nothing changes.
func withCapabilities(given *corev1.Capabilities, r *rules) *corev1.Capabilities {
	if r.defaultAdd.Len() == 0 && r.requiredDrop.Len() == 0 {
		return given
	}
	var add, drop sets.Set[string]
	if given != nil {
		add, drop = capabilities(given.Add), capabilities(given.Drop)
	}
	added, dropped := r.defaultAdd.Difference(drop).Union(add), r.requiredDrop.Union(drop)
	if added.Len() == add.Len() && dropped.Len() == drop.Len() {
		return given
	}
	return &corev1.Capabilities{Add: sorted(added), Drop: sorted(dropped)}
}

func sorted(set sets.Set[string]) (list []corev1.Capability) {
	for _, c := range sets.List(set) {
		list = append(list, corev1.Capability(c))
	}
	return slices.Clip(list)
}

// apply writes the candidate to the pod. It converts seccomp annotations of older manifests
// to fields, as API servers did until v1.26.
func (c *candidate) apply(pod *corev1.Pod) {
	if c.context.SeccompProfile == nil {
		if p := seccompField(c.profile); p != nil {
			c.own().SeccompProfile = p
		}
	}
	if c.context != c.subject.context {
		pod.Spec.SecurityContext = c.context
	}
	pod.Spec.RuntimeClassName = c.runtimeClassName
	pod.Annotations = c.annotations
	for i := range c.containers {
		given := &c.containers[i]
		name, _ := c.containerProfile(given)
		if p := seccompField(name); p != nil && (c.contexts[i] == nil || c.contexts[i].SeccompProfile == nil) {
			c.ownOf(i).SeccompProfile = p
		}
		given.SecurityContext = c.contexts[i]
	}
}
