package oracle_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/pod-security-admission/api"
	standards "k8s.io/pod-security-admission/test"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

// podSecurity is the suite of PodSecurity.
func podSecurity() suite {
	return suite{name: "PodSecurity", generate: (*generator).securityCase, variants: securityVariants(), denies: true, warns: true}
}

func securityVariants() []variant {
	const head = "kind: PodSecurityConfiguration\napiVersion: pod-security.admission.config.k8s.io/"
	var all []variant
	for _, config := range []string{
		head + "v1\nexemptions: {usernames: [exempt-user, bob], namespaces: [exempt], runtimeClasses: [exempt, kata]}\n",
		"",
		head + "v1\ndefaults: {enforce: baseline, audit: restricted, audit-version: v1.20, warn: restricted}\n" +
			"exemptions: {usernames: [bob], namespaces: [exempt, kube-system], runtimeClasses: [kata]}\n",
		head + "v1beta1\ndefaults: {enforce: privileged, warn: baseline, warn-version: v1.99}\n",
		head + "v1alpha1\ndefaults: {enforce: restricted, enforce-version: v1.7}\nexemptions: {namespaces: [exempt]}\n",
	} {
		all = append(all, variant{about: config, config: config, options: handlers.DefaultOptions(), world: (*generator).securityWorld})
	}
	return all
}

// securityHomes are the namespaces of the worlds, and one that is missing.
var securityHomes = []string{"default", "shop", "kube-system", "exempt", "missing"}

func (g *generator) securityWorld() oracle.World {
	var world oracle.World
	for _, name := range securityHomes[:4] {
		namespace := g.aNamespace(name)
		legacyscheme.Scheme.Default(namespace)
		world.Objects = append(world.Objects, namespace)
		for i := range g.IntN(6) {
			pod := g.securePod()
			pod.Name, pod.Namespace, pod.GenerateName = fmt.Sprint("p-", g.IntN(100), "-", i), name, ""
			if g.in(2) {
				pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(g.word()),
					Controller: maybe(g, func() bool { return true })}}
			}
			legacyscheme.Scheme.Default(pod)
			world.Objects = append(world.Objects, pod)
		}
	}
	return world
}

// standardLabels generates labels that may be valid, invalid or missing, in any combination.
func (g *generator) standardLabels() map[string]string {
	labels := map[string]string{"app": "x"}
	if g.in(8) {
		labels = nil
	}
	for _, mode := range []string{"enforce", "audit", "warn"} {
		if labels == nil || g.in(3) {
			continue
		}
		labels["pod-security.kubernetes.io/"+mode] = pick(g, "privileged", "baseline", "restricted", "restricted")
		if g.in(2) {
			labels["pod-security.kubernetes.io/"+mode+"-version"] = pick(g, "latest", "v1.0", "v1.18", "v1.24", "v1.34", "v1.99")
		}
		if g.in(12) {
			labels["pod-security.kubernetes.io/"+mode+pick(g, "", "-version")] = pick(g, "", "Restricted", "v1", "v1.01", "v2.0", `q"`)
		}
	}
	return labels
}

func (g *generator) aNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: g.standardLabels()}}
}

// securityCase generates a request that PodSecurity handles, or a similar one.
func (g *generator) securityCase() *oracle.Case {
	switch g.IntN(12) {
	case 0:
		return g.inHome(g.other())
	case 1, 2:
		return g.namespaceCase()
	case 3, 4, 5:
		return g.inHome(g.controllerCase())
	}
	c := g.request(g.writes(), podKind, pods)
	if g.in(4) {
		c.Operation = admission.Update
		c.Subresource = pick(g, "status", "ephemeralcontainers", "resize")
	}
	pod := g.securePod()
	return g.inHome(g.write(c, pod, func() runtime.Object {
		if g.in(3) {
			return g.securePod()
		}
		return g.changed(pod)
	}))
}

func (g *generator) inHome(c *oracle.Case) *oracle.Case {
	if c.Resource.Resource != "namespaces" {
		c.Namespace = securityHomes[g.IntN(len(securityHomes))]
		if g.in(2) {
			c.Namespace = pick(g, "default", "shop")
		}
	}
	return c
}

func (g *generator) namespaceCase() *oracle.Case {
	c := g.request(pick(g, admission.Update, admission.Update, admission.Create), corev1.SchemeGroupVersion.WithKind("Namespace"),
		corev1.SchemeGroupVersion.WithResource("namespaces"))
	if g.in(12) {
		c.Operation, c.Subresource = admission.Update, pick(g, "status", "finalize")
	}
	name := securityHomes[g.IntN(len(securityHomes))]
	namespace := g.aNamespace(name)
	c = g.write(c, namespace, func() runtime.Object {
		old := g.aNamespace(name)
		if g.in(2) { // changes only some of them
			for _, key := range slices.Sorted(maps.Keys(namespace.Labels)) {
				if old.Labels != nil && !g.in(4) {
					old.Labels[key] = namespace.Labels[key]
				}
			}
		}
		return old
	})
	c.Name, c.Namespace = name, name
	return c
}

func (g *generator) controllerCase() *oracle.Case {
	template := func() corev1.PodTemplateSpec {
		pod := g.securePod()
		return corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	}
	w := pick(g,
		at("apps/v1 Deployment deployments", func() runtime.Object {
			return &appsv1.Deployment{ObjectMeta: g.metadata(), Spec: appsv1.DeploymentSpec{Template: template()}}
		}),
		at("apps/v1 ReplicaSet replicasets", func() runtime.Object {
			return &appsv1.ReplicaSet{ObjectMeta: g.metadata(), Spec: appsv1.ReplicaSetSpec{Template: template()}}
		}),
		at("apps/v1 StatefulSet statefulsets", func() runtime.Object {
			return &appsv1.StatefulSet{ObjectMeta: g.metadata(), Spec: appsv1.StatefulSetSpec{Template: template()}}
		}),
		at("apps/v1 DaemonSet daemonsets", func() runtime.Object {
			return &appsv1.DaemonSet{ObjectMeta: g.metadata(), Spec: appsv1.DaemonSetSpec{Template: template()}}
		}),
		at("batch/v1 Job jobs", func() runtime.Object {
			return &batchv1.Job{ObjectMeta: g.metadata(), Spec: batchv1.JobSpec{Template: template()}}
		}),
		at("batch/v1 CronJob cronjobs", func() runtime.Object {
			return &batchv1.CronJob{ObjectMeta: g.metadata(), Spec: batchv1.CronJobSpec{
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template()}}}}
		}),
		at("v1 PodTemplate podtemplates", func() runtime.Object {
			return &corev1.PodTemplate{ObjectMeta: g.metadata(), Template: template()}
		}),
		at("v1 ReplicationController replicationcontrollers", func() runtime.Object {
			return &corev1.ReplicationController{ObjectMeta: g.metadata(),
				Spec: corev1.ReplicationControllerSpec{Template: maybe(g, template)}}
		}),
		at("apps/v1 Deployment deployments/status", func() runtime.Object {
			return &appsv1.Deployment{ObjectMeta: g.metadata(), Spec: appsv1.DeploymentSpec{Template: template()}}
		}),
	)
	c := g.request(g.writes(), w.kind, w.resource)
	if c.Subresource = w.subresource; c.Subresource != "" {
		c.Operation = admission.Update
	}
	return g.write(c, w.object(), w.object)
}

// securePod generates a Pod that conforms to a standard, except for a few fields.
func (g *generator) securePod() *corev1.Pod {
	if g.in(6) {
		return g.aPod()
	}
	pod, err := standards.GetMinimalValidPod(pick(g, api.LevelBaseline, api.LevelRestricted, api.LevelRestricted),
		api.MajorMinorVersion(1, pick(g, 0, 18, 22, 30)))
	if err != nil {
		panic(err)
	}
	m := g.metadata()
	pod.Name, pod.GenerateName, pod.Labels = m.Name, m.GenerateName, m.Labels
	if g.in(4) {
		pod.Spec.EphemeralContainers = some(g, 2, g.ephemeral)
	}
	if g.in(6) {
		pod.Spec.RuntimeClassName = new(pick(g, "", "kata", "runc"))
	}
	for range g.IntN(4) {
		g.loosen(pod)
	}
	return pod
}

// loosen changes a field that a check reads.
func (g *generator) loosen(pod *corev1.Pod) {
	spec := &pod.Spec
	c := &spec.Containers[0]
	if g.in(3) {
		c = &spec.InitContainers[0]
	}
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	annotate := func(key, value string) {
		if pod.Annotations == nil {
			pod.Annotations = make(map[string]string)
		}
		pod.Annotations[key] = value
	}
	pick(g,
		func() { spec.HostNetwork, spec.HostPID, spec.HostIPC = g.in(2), g.in(2), g.in(2) },
		func() { spec.HostUsers = maybe(g, func() bool { return g.in(4) }) },
		func() { spec.OS = &corev1.PodOS{Name: pick(g, corev1.Windows, corev1.Linux)} },
		func() { spec.SecurityContext.RunAsNonRoot = maybe(g, func() bool { return g.in(2) }) },
		func() { spec.SecurityContext.RunAsUser = new(pick[int64](g, 0, 1)) },
		func() { spec.SecurityContext.SeccompProfile = maybe(g, g.seccomp) },
		func() {
			spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: pick(g, corev1.AppArmorProfileTypeUnconfined,
				corev1.AppArmorProfileTypeRuntimeDefault)}
		},
		func() {
			spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: pick(g, "", "container_t", "spc_t"),
				User: pick(g, "", "u"), Role: pick(g, "", "r")}
		},
		func() {
			spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: pick(g, "kernel.shm_rmid_forced", "net.ipv4.tcp_rmem", "other")}}
		},
		func() {
			spec.SecurityContext.WindowsOptions = &corev1.WindowsSecurityContextOptions{HostProcess: maybe(g,
				func() bool { return g.in(2) })}
		},
		func() { c.SecurityContext.Privileged = maybe(g, func() bool { return g.in(2) }) },
		func() { c.SecurityContext.AllowPrivilegeEscalation = maybe(g, func() bool { return g.in(2) }) },
		func() { c.SecurityContext.RunAsNonRoot = maybe(g, func() bool { return g.in(2) }) },
		func() { c.SecurityContext.RunAsUser = new(pick[int64](g, 0, 1)) },
		func() { c.SecurityContext.ProcMount = new(pick(g, corev1.DefaultProcMount, corev1.UnmaskedProcMount)) },
		func() { c.SecurityContext.SeccompProfile = maybe(g, g.seccomp) },
		func() {
			names := func() corev1.Capability {
				return pick[corev1.Capability](g, "ALL", "NET_BIND_SERVICE", "CHOWN", "NET_RAW", "SYS_ADMIN")
			}
			c.SecurityContext.Capabilities = &corev1.Capabilities{Add: some(g, 2, names), Drop: some(g, 2, names)}
		},
		func() { c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: pick[int32](g, 0, 80, 443)}} },
		func() {
			host := pick(g, "", "localhost", "10.0.0.1")
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: host,
				Port: intstr.FromInt32(1)}}}
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: host}}}
		},
		func() {
			annotate("seccomp.security.alpha.kubernetes.io/pod", pick(g, "unconfined", "runtime/default", "localhost/x"))
		},
		func() {
			annotate("container.apparmor.security.beta.kubernetes.io/"+c.Name, pick(g, "unconfined", "runtime/default", ""))
		},
		func() { spec.Volumes = append(spec.Volumes, g.volume(), g.riskyVolume()) },
	)()
}

func (g *generator) seccomp() corev1.SeccompProfile {
	return corev1.SeccompProfile{Type: pick(g, corev1.SeccompProfileTypeUnconfined, corev1.SeccompProfileTypeRuntimeDefault, "")}
}

func (g *generator) riskyVolume() corev1.Volume {
	return corev1.Volume{Name: g.word(), VolumeSource: pick(g,
		corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
		corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s"}},
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}},
		corev1.VolumeSource{},
	)}
}

func TestPodSecurityConfigurations(t *testing.T) {
	row := tally.Row{Plugin: "PodSecurity", Test: "configurations"}
	f := accepts(t, &row)
	const head = "kind: PodSecurityConfiguration\napiVersion: pod-security.admission.config.k8s.io/"
	f("", "")
	f("rubbish", "")
	f("{}", "")
	for _, version := range []string{"v1", "v1beta1", "v1alpha1", "v2", ""} {
		f(head+version, "")
	}
	f("apiVersion: pod-security.admission.config.k8s.io/v1\nkind: Other", "")
	for _, fields := range []string{
		"defaults: {enforce: baseline, enforce-version: v1.20, audit: privileged, audit-version: latest, warn: restricted, " +
			"warn-version: v1.99}",
		"defaults: {enforce: Baseline}", "defaults: {enforce: ''}", "defaults: {enforce: null}", "defaults: {enforce: 1}",
		"defaults: {enforces: baseline}",
		"defaults: {warn-version: v1}", "defaults: {audit-version: 1.2}", "defaults: {audit-version: v1.02}", "defaults: []",
		"exemptions: {usernames: [a, b], namespaces: [a-b], runtimeClasses: [a.b]}",
		"exemptions: {usernames: ['']}", "exemptions: {usernames: [a, a]}", "exemptions: {namespaces: [a, a]}",
		"exemptions: {runtimeClasses: [a, a]}",
		"exemptions: {namespaces: [a.b]}", "exemptions: {runtimeClasses: [A]}", "exemptions: {users: [a]}",
		"exemptions: {}\nexemptions: {}", "other: 1",
	} {
		f(head+"v1\n"+fields, "")
	}
	f(`{"kind":"PodSecurityConfiguration","apiVersion":"pod-security.admission.config.k8s.io/v1","defaults":{"warn":"baseline",`+
		`"warn":"baseline"}}`, "")
	mustWrite(t, row)
}
