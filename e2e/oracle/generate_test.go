package oracle_test

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/fastadmit/fastadmit/e2e/oracle"
)

// generator generates requests that an API server could get. Values come from small pools, so that
// they often match: names that are empty, missing, duplicate or nearly right.
type generator struct {
	*rand.Rand
	fuzz func(internal runtime.Object) // with Kubernetes' own fuzzer
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// in reports true once in n times.
func (g *generator) in(n int) bool { return g.IntN(n) == 0 }

func some[T any](g *generator, most int, one func() T) []T {
	var list []T
	for range g.IntN(most + 1) {
		list = append(list, one())
	}
	return list
}

func maybe[T any](g *generator, one func() T) *T {
	if g.in(2) {
		return nil
	}
	v := one()
	return &v
}

func (g *generator) word() string {
	return pick(g, "", "a", "b", "web-0", "é", `q"\`, "<&>", "\u2028", strings.Repeat("x", 64))
}

func (g *generator) metadata() metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Name:         pick(g, "", "a", "web-0", `q"\<`),
		GenerateName: pick(g, "", "web-"),
		Namespace:    pick(g, "", "shop", "kube-system"),
	}
	if g.in(3) {
		m.Labels = map[string]string{"app": g.word(), "k8s.io/x~/y": g.word()}
	}
	if g.in(4) {
		m.Annotations = map[string]string{g.word(): g.word()}
	}
	m.Finalizers = some(g, 2, g.finalizer)
	if g.in(8) {
		m.Finalizers = []string{}
	}
	return m
}

func (g *generator) finalizer() string {
	return pick(g, "", "kubernetes.io/pvc-protection", "kubernetes.io/pv-protection", "kubernetes.io/vac-protection",
		"Kubernetes.io/pvc-protection", "kubernetes.io/pvc-protection ", "example.com/hold", "example.com/é\n")
}

func (g *generator) user() user.DefaultInfo {
	return user.DefaultInfo{
		Name:   pick(g, "", "alice", "bob", "system:node:n1", `x"y`),
		Groups: some(g, 2, g.word),
		Extra:  map[string][]string{"k": {g.word()}},
	}
}

var (
	pods     = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	podKind  = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	services = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// request fills in the fields that do not depend on the object.
func (g *generator) request(operation admission.Operation, kind schema.GroupVersionKind,
	resource schema.GroupVersionResource) *oracle.Case {
	c := &oracle.Case{
		Operation: operation, Kind: kind, Resource: resource,
		Namespace: pick(g, "", "shop", "kube-system"),
		User:      g.user(),
		DryRun:    g.in(6),
	}
	switch operation {
	case admission.Create:
		c.Options = &metav1.CreateOptions{}
	case admission.Update:
		c.Options = &metav1.UpdateOptions{}
	case admission.Delete:
		c.Options = &metav1.DeleteOptions{}
	}
	return c
}

// write generates a request that creates or updates the object. It sets the defaults of most objects. The
// others are as after the patch of a webhook.
func (g *generator) write(c *oracle.Case, object runtime.Object, old func() runtime.Object) *oracle.Case {
	prepare := func(object runtime.Object) runtime.Object {
		object.GetObjectKind().SetGroupVersionKind(c.Kind)
		if !g.in(8) {
			legacyscheme.Scheme.Default(object)
		}
		return object
	}
	c.Object = prepare(object)
	if c.Operation == admission.Update {
		c.OldObject = prepare(old())
	}
	if m, ok := object.(metav1.Object); ok && !g.in(4) {
		c.Name = m.GetName()
	} else if g.in(2) {
		c.Name = "from-url"
	}
	return c
}

func (g *generator) writes() admission.Operation { return pick(g, admission.Create, admission.Update) }

// pod generates a request for pods, mostly a write of the Pod itself.
func (g *generator) pod() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	c := g.request(g.writes(), podKind, pods)
	if g.in(12) {
		c.Subresource = pick(g, "status", "ephemeralcontainers", "resize")
	}
	pod := g.aPod()
	return g.write(c, pod, func() runtime.Object {
		if g.in(3) {
			return g.aPod()
		}
		return g.changed(pod)
	})
}

func (g *generator) aPod() *corev1.Pod {
	pod := new(corev1.Pod)
	if g.in(16) {
		pod = fuzzed[*corev1.Pod](g, podKind)
	}
	if g.in(2) || pod.Kind == "" {
		pod.ObjectMeta = g.metadata()
	}
	spec := &pod.Spec
	spec.Containers = some(g, 3, g.container)
	spec.InitContainers = some(g, 2, g.container)
	spec.EphemeralContainers = some(g, 1, g.ephemeral)
	spec.Volumes = some(g, 3, g.volume)
	spec.Tolerations = some(g, 4, g.toleration)
	spec.SecurityContext = maybe(g, g.podSecurityContext)
	spec.Affinity = maybe(g, g.affinity)
	return pod
}

// changed returns a copy of a pod in which some images may differ.
func (g *generator) changed(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	for i := range pod.Spec.Containers {
		if g.in(4) {
			pod.Spec.Containers[i].Image = g.image()
		}
	}
	if g.in(4) && len(pod.Spec.InitContainers) > 0 {
		pod.Spec.InitContainers = pod.Spec.InitContainers[1:]
	}
	if g.in(4) {
		pod.Spec.EphemeralContainers = nil
	}
	if g.in(4) {
		pod.Spec.Tolerations = nil
	}
	return pod
}

func (g *generator) image() string {
	return pick(g, "", "a", "b:v1", "registry.example.com/é@sha256:00", `i"\`)
}

func (g *generator) pullPolicy() corev1.PullPolicy {
	return pick(g, "", corev1.PullAlways, corev1.PullNever, corev1.PullIfNotPresent, "always", `q"`)
}

func (g *generator) container() corev1.Container {
	return corev1.Container{
		Name: g.word(), Image: g.image(), ImagePullPolicy: g.pullPolicy(),
		Resources:       g.resources(),
		SecurityContext: maybe(g, g.securityContext),
	}
}

func (g *generator) ephemeral() corev1.EphemeralContainer {
	c := g.container()
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy,
		Resources: c.Resources, SecurityContext: c.SecurityContext,
	}}
}

func (g *generator) volume() corev1.Volume {
	v := corev1.Volume{Name: g.word()}
	switch g.IntN(3) {
	case 0:
		v.Image = &corev1.ImageVolumeSource{Reference: g.image(), PullPolicy: g.pullPolicy()}
	case 1:
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	return v
}

func (g *generator) toleration() corev1.Toleration {
	return corev1.Toleration{
		Key: pick(g, "", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready ",
			"example.com/gpu", "example.com/nic", "foo", "cpu"),
		Operator: pick(g, "", corev1.TolerationOpExists, corev1.TolerationOpEqual, corev1.TolerationOpLt, "exists"),
		Value:    pick(g, "", "", "v"),
		Effect: pick(g, "", corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
			"odd"),
		TolerationSeconds: maybe(g, func() int64 { return pick[int64](g, 0, 300, -1) }),
	}
}

func (g *generator) podSecurityContext() corev1.PodSecurityContext {
	c := corev1.PodSecurityContext{
		RunAsNonRoot: maybe(g, func() bool { return g.in(2) }),
		RunAsGroup:   maybe(g, func() int64 { return 0 }),
	}
	if g.in(4) {
		c.SupplementalGroups = pick(g, []int64{}, []int64{0}, []int64{1, 2})
	}
	if g.in(4) {
		c.SELinuxOptions = pick(g, &corev1.SELinuxOptions{}, &corev1.SELinuxOptions{Level: "s0"})
	}
	if g.in(4) {
		c.RunAsUser = new(pick[int64](g, 0, 1000))
	}
	if g.in(4) {
		c.FSGroup = new(pick[int64](g, 0, 1001))
	}
	return c
}

func (g *generator) securityContext() corev1.SecurityContext {
	c := corev1.SecurityContext{Privileged: maybe(g, func() bool { return g.in(2) })}
	if g.in(6) {
		c.SELinuxOptions = pick(g, &corev1.SELinuxOptions{}, &corev1.SELinuxOptions{User: "u"})
	}
	if g.in(6) {
		c.RunAsUser = new(pick[int64](g, 0, 1000))
	}
	return c
}

func (g *generator) affinity() corev1.Affinity {
	term := func() corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: pick(g, "", corev1.LabelHostname, corev1.LabelHostname,
			corev1.LabelHostname, "topology.kubernetes.io/zone", " zone ", "kubernetes.io/Hostname", `k"<`)}
	}
	var a corev1.Affinity
	if g.in(3) {
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: some(g, 2, term)}
	}
	if !g.in(3) {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: some(g, 3, term),
			PreferredDuringSchedulingIgnoredDuringExecution: some(g, 2, func() corev1.WeightedPodAffinityTerm {
				return corev1.WeightedPodAffinityTerm{Weight: 1, PodAffinityTerm: term()}
			}),
		}
	}
	return a
}

// fuzzed returns an object that Kubernetes' own fuzzer filled, in every field.
func fuzzed[T runtime.Object](g *generator, kind schema.GroupVersionKind) T {
	internal, err := legacyscheme.Scheme.New(kind.GroupKind().WithVersion(runtime.APIVersionInternal))
	if err != nil {
		panic(err)
	}
	g.fuzz(internal)
	versioned, err := legacyscheme.Scheme.ConvertToVersion(internal, kind.GroupVersion())
	if err != nil {
		panic(fmt.Sprintf("cannot convert a fuzzed %s: %v", kind, err))
	}
	return versioned.(T)
}
