package oracle_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/podsecuritypolicy"
)

func podSecurityPolicy() suite {
	return suite{
		name: "PodSecurityPolicy", generate: (*generator).podOfPolicies, denies: true, changes: true,
		removed:    "../.cache/kubernetes-v1.24",
		variants:   []variant{{options: handlers.DefaultOptions(), world: (*generator).podSecurityPolicies}},
		authorizer: func(*testing.T) authorizer.UnconditionalAuthorizer { return authorizer.AuthorizerFunc(mayUse) },
		settle:     keepIgnored,
	}
}

// keepIgnored undoes changes of an updated pod that v1.24 cannot see: those of the status,
// which API servers reset, of newer fields, and of seccomp annotations, which the command
// v1.24 derives from the fields.
func keepIgnored(c *oracle.Case) {
	pod, ok := c.Object.(*corev1.Pod)
	old, was := c.OldObject.(*corev1.Pod)
	if ok && was && pod != nil && old != nil {
		old.Status.DeepCopyInto(&pod.Status)
		was := old.DeepCopy().Spec
		pod.Spec.Resources, pod.Spec.ResourceClaims, pod.Spec.SchedulingGates, pod.Spec.HostUsers = was.Resources, was.ResourceClaims,
			was.SchedulingGates, was.HostUsers
		isSeccomp := func(key, _ string) bool { return strings.Contains(key, "seccomp.security.alpha.kubernetes.io/") }
		kept := maps.Clone(old.Annotations)
		maps.DeleteFunc(kept, func(key, value string) bool { return !isSeccomp(key, value) })
		maps.DeleteFunc(pod.Annotations, isSeccomp)
		if pod.Annotations == nil && len(kept) > 0 {
			pod.Annotations = make(map[string]string, len(kept))
		}
		maps.Copy(pod.Annotations, kept)
	}
}

// mayUse decides by the name of a policy who may use it, as the command v1.24 does.
func mayUse(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	_, isAccount := strings.CutPrefix(a.GetUser().GetName(), "system:serviceaccount:")
	may := false
	switch name := a.GetName(); {
	case a.GetVerb() != "use" || a.GetResource() != "podsecuritypolicies" || a.GetAPIVersion() != "*" || name == "":
	case name[0] == 'a':
		may = true
	case name[0] == 'p':
		may = a.GetAPIGroup() == "policy"
	case name[0] == 'e':
		may = a.GetAPIGroup() == "extensions"
	case name[0] == 's':
		may = isAccount
	case name[0] == 'u':
		may = !isAccount
	case name[0] == 'k':
		may = a.GetNamespace() == "kube-system"
	}
	if may {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// podSecurityPolicies generates a cluster with some policies, a few of which allow nearly
// everything.
func (g *generator) podSecurityPolicies() oracle.World {
	world := oracle.World{Authorizer: authorizer.AuthorizerFunc(mayUse)}
	for i := range g.IntN(4) {
		p := &podsecuritypolicy.PodSecurityPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: "policies.fastadmit.io/v1beta1", Kind: "PodSecurityPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(pick(g, "a", "a", "a", "p", "e", "s", "u", "k", "x"), i)},
		}
		g.annotate(p)
		g.allow(&p.Spec)
		world.Objects = append(world.Objects, p)
	}
	return world
}

func (g *generator) annotate(p *podsecuritypolicy.PodSecurityPolicy) {
	p.Annotations = make(map[string]string)
	set := func(key string, values ...string) {
		if g.in(3) {
			p.Annotations[key] = pick(g, values...)
		}
	}
	set("seccomp.security.alpha.kubernetes.io/defaultProfileName", "runtime/default", "docker/default", "localhost/a", "unconfined")
	set("seccomp.security.alpha.kubernetes.io/allowedProfileNames", "*", "*", "runtime/default", "docker/default,localhost/a", "")
	set("apparmor.security.beta.kubernetes.io/defaultProfileName", "runtime/default", "localhost/a")
	set("apparmor.security.beta.kubernetes.io/allowedProfileNames", "runtime/default", "runtime/default,localhost/a", "")
}

func (g *generator) ids(rules ...string) podsecuritypolicy.IDOptions {
	o := podsecuritypolicy.IDOptions{Rule: pick(g, append(rules, "RunAsAny", "RunAsAny", "RunAsAny")...)}
	if o.Rule != "RunAsAny" && o.Rule != "MustRunAsNonRoot" {
		o.Ranges = pick(g, []podsecuritypolicy.IDRange{{Min: 0, Max: 2000}}, []podsecuritypolicy.IDRange{{Min: 1000, Max: 1000},
			{Min: 2, Max: 5}})
	}
	return o
}

func (g *generator) capability() corev1.Capability {
	return pick[corev1.Capability](g, "NET_ADMIN", "SYS_TIME", "KILL", "ALL", "")
}

func (g *generator) allow(s *podsecuritypolicy.Spec) {
	s.Privileged, s.HostNetwork, s.HostPID, s.HostIPC = !g.in(3), !g.in(3), !g.in(3), !g.in(3)
	s.AllowedCapabilities = pick(g, nil, []corev1.Capability{"*"}, []corev1.Capability{"NET_ADMIN", "KILL"})
	if g.in(3) {
		s.DefaultAddCapabilities, s.RequiredDropCapabilities = some(g, 1, g.capability), some(g, 2, g.capability)
	}
	s.Volumes = pick(g, []string{"*"}, []string{"*"}, []string{"emptyDir", "secret", "hostPath"},
		[]string{"emptyDir", "projected", "csi", "flexVolume", "cephFS", "image"}, nil)
	s.HostPorts = pick(g, nil, []podsecuritypolicy.HostPortRange{{Min: 0, Max: 65535}},
		[]podsecuritypolicy.HostPortRange{{Min: 80, Max: 80}, {Min: 8000, Max: 9000}})
	s.SELinux.Rule = "RunAsAny"
	if g.in(3) {
		s.SELinux.Rule, s.SELinux.SELinuxOptions = "MustRunAs",
			pick(g, &corev1.SELinuxOptions{}, &corev1.SELinuxOptions{Level: "s0:c1,c2"}, &corev1.SELinuxOptions{User: "u"})
	}
	s.RunAsUser, s.SupplementalGroups, s.FSGroup = g.ids("MustRunAs", "MustRunAsNonRoot"), g.ids("MustRunAs", "MayRunAs"),
		g.ids("MustRunAs", "MayRunAs")
	if g.in(3) {
		s.RunAsGroup = new(g.ids("MustRunAs", "MayRunAs"))
	}
	s.ReadOnlyRootFilesystem = g.in(4)
	if g.in(3) {
		s.AllowPrivilegeEscalation = new(g.in(2))
	}
	if g.in(4) {
		s.DefaultAllowPrivilegeEscalation = new(g.in(2))
	}
	s.AllowedHostPaths = pick(g, nil, []podsecuritypolicy.AllowedHostPath{{PathPrefix: "/a/", ReadOnly: true}, {PathPrefix: "/b"}})
	s.AllowedFlexVolumes = pick(g, nil, []podsecuritypolicy.AllowedFlexVolume{{Driver: "a"}})
	s.AllowedCSIDrivers = pick(g, nil, []podsecuritypolicy.AllowedCSIDriver{{Name: "a"}})
	s.AllowedUnsafeSysctls = pick(g, nil, []string{"*"}, []string{"net.*", "kernel.sem"})
	s.ForbiddenSysctls = pick(g, nil, []string{"kernel.*"}, []string{"net.ipv4.tcp_syncookies"})
	s.AllowedProcMountTypes = pick(g, nil, []corev1.ProcMountType{"Unmasked"}, []corev1.ProcMountType{"Default", "Unmasked"})
	if g.in(4) {
		s.RuntimeClass = &podsecuritypolicy.RuntimeClassOptions{AllowedRuntimeClassNames: pick(g, []string{"*"}, []string{"r0"}, nil)}
		s.RuntimeClass.DefaultRuntimeClassName = pick(g, nil, new("r0"), new("r1"))
	}
}

// podOfPolicies generates a request about a pod with fields that policies restrict. It
// avoids volumes of newer types and subresources, whose differences the plugin's README.md
// lists.
func (g *generator) podOfPolicies() *oracle.Case {
	c := g.pod()
	c.Namespace, c.Unordered = pick(g, "shop", "kube-system"), true
	if c.Subresource == "ephemeralcontainers" {
		c.Subresource = "status"
	}
	pod, ok := c.Object.(*corev1.Pod)
	if !ok {
		return c
	}
	spec := &pod.Spec
	spec.ServiceAccountName = pick(g, "", "default", "a:b")
	spec.HostNetwork, spec.HostPID, spec.HostIPC = g.in(10), g.in(10), g.in(10)
	spec.Volumes = some(g, 2, g.policyVolume)
	spec.RuntimeClassName = pick(g, nil, nil, nil, new("r0"), new("r2"))
	if g.in(3) {
		pod.Annotations = map[string]string{
			pick(g, "seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/a",
				"kubernetes.io/psp"): pick(g, "runtime/default", "docker/default", "localhost/b", "a0", "a1"),
			pick(g, "container.apparmor.security.beta.kubernetes.io/a", "container.apparmor.security.beta.kubernetes.io/b",
				"kubernetes.io/psp"): pick(g, "runtime/default", "localhost/b", "a1", "a2"),
		}
	}
	if spec.SecurityContext != nil && g.in(3) {
		spec.SecurityContext.Sysctls = some(g, 2, g.sysctl)
		spec.SecurityContext.SeccompProfile = pick(g, nil, &corev1.SeccompProfile{Type: "RuntimeDefault"},
			&corev1.SeccompProfile{Type: "Unconfined"}, &corev1.SeccompProfile{Type: "Localhost"})
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			g.confine(&containers[i])
		}
	}
	if c.OldObject != nil && g.in(4) {
		old := pod.DeepCopy()
		old.Finalizers, old.OwnerReferences = []string{"a/b"}, []metav1.OwnerReference{{Name: "a"}}
		c.OldObject = old
	}
	return c
}

func (g *generator) sysctl() corev1.Sysctl {
	return corev1.Sysctl{Name: pick(g, "kernel.shm_rmid_forced", "net.ipv4.tcp_syncookies", "kernel.sem", "net.core.somaxconn", "")}
}

func (g *generator) confine(c *corev1.Container) {
	if g.in(3) {
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: pick[int32](g, 0, 80, 81, 8080, -1)}}
	}
	if g.in(3) {
		c.VolumeMounts = []corev1.VolumeMount{{Name: pick(g, "v", "w"), MountPath: "/m", ReadOnly: g.in(2)}}
	}
	if c.SecurityContext == nil || g.in(2) {
		return
	}
	sc := c.SecurityContext
	sc.RunAsUser, sc.RunAsGroup = pick(g, nil, new(int64(0)), new(int64(1000))), pick(g, nil, new(int64(3)), new(int64(5000)))
	sc.RunAsNonRoot = pick(g, nil, new(true), new(false))
	sc.ReadOnlyRootFilesystem, sc.AllowPrivilegeEscalation = pick(g, nil, new(true), new(false)), pick(g, nil, new(true), new(false))
	sc.ProcMount = pick(g, nil, nil, new(corev1.UnmaskedProcMount), new(corev1.DefaultProcMount))
	sc.SeccompProfile = pick(g, nil, nil, &corev1.SeccompProfile{Type: "RuntimeDefault"},
		&corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: new("a")})
	sc.Capabilities = pick(g, nil, &corev1.Capabilities{}, &corev1.Capabilities{Add: some(g, 2, g.capability),
		Drop: some(g, 2, g.capability)})
}

func (g *generator) policyVolume() corev1.Volume {
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: pick(g, "token", "token", "t"),
		ExpirationSeconds: new(int64(3600))}}
	return corev1.Volume{Name: pick(g, "v", "w"), VolumeSource: pick(g,
		corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: pick(g, "/a", "/a/b", "/ab", "/b/", "/b/c", "/")}},
		corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: pick(g, "a", "b")}},
		corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: pick(g, "a", "b")}},
		corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{Monitors: []string{"m"}}},
		corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{token,
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: pick(g, "kube-root-ca.crt",
				"kube-root-ca.crt", "m")}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		}}},
	)}
}
