package oracle_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

func limitRangerSuite() suite {
	return suite{
		name: "LimitRanger", generate: (*generator).limited, denies: true, changes: true, message: sortedLimits,
		settle: placed,
		variants: []variant{
			{about: "one each", options: handlers.DefaultOptions(), world: (*generator).limitRanges},
			{about: "defaults and limits", options: handlers.DefaultOptions(), world: (*generator).twoLimitRanges},
		},
	}
}

const hugePages corev1.ResourceName = corev1.ResourceHugePagesPrefix + "2Mi"

// limitRanges generates a world in which each namespace has at most one LimitRange, because
// Kubernetes uses several in random order.
func (g *generator) limitRanges() oracle.World {
	var world oracle.World
	for _, namespace := range []string{"shop", "kube-system"} {
		if g.in(5) {
			continue
		}
		r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits", Namespace: namespace}}
		for range 1 + g.IntN(3) {
			item := corev1.LimitRangeItem{
				Type: pick(g, corev1.LimitTypeContainer, corev1.LimitTypeContainer, corev1.LimitTypePod,
					corev1.LimitTypePersistentVolumeClaim, "other"),
			}
			for _, list := range []*corev1.ResourceList{&item.Min, &item.Max, &item.Default, &item.DefaultRequest,
				&item.MaxLimitRequestRatio} {
				if g.in(3) {
					*list = g.amounts(2)
				}
			}
			r.Spec.Limits = append(r.Spec.Limits, item)
		}
		legacyscheme.Scheme.Default(r)
		world.Objects = append(world.Objects, r)
	}
	return world
}

// twoLimitRanges generates a world in which a namespace has two LimitRanges: one with defaults and one
// with limits, so that their order does not matter.
func (g *generator) twoLimitRanges() oracle.World {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "shop"} }
	defaults := &corev1.LimitRange{ObjectMeta: meta("a"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, Default: g.amounts(3), DefaultRequest: g.amounts(3)},
		{Type: corev1.LimitTypeContainer, DefaultRequest: g.amounts(2)},
	}}}
	limits := &corev1.LimitRange{ObjectMeta: meta("b"), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypePod, Min: g.amounts(1), Max: g.amounts(2), MaxLimitRequestRatio: g.amounts(1)},
		{Type: corev1.LimitTypePersistentVolumeClaim, Min: g.amounts(1), Max: g.amounts(1)},
	}}}
	for _, r := range []*corev1.LimitRange{defaults, limits} {
		legacyscheme.Scheme.Default(r)
	}
	return oracle.World{Objects: []runtime.Object{defaults, limits}}
}

// amounts generates amounts of some resources. The JSON for webhooks has amounts in their shortest form.
// The generated amounts keep their format in this form, because sums are shown in it. Sums are below
// the maximum of a parsed quantity, because kube-apiserver writes the sums of whole pods.
func (g *generator) amounts(most int) corev1.ResourceList {
	list := make(corev1.ResourceList)
	for range g.IntN(most + 1) {
		name := pick(g, corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, "example.com/gpu", hugePages, "hugepages-1Gi")
		list[name] = resource.MustParse(pick(g, "0", "100m", "0.5", "1", "1.5", "2", "3", "64Mi", "128Mi", "1Gi", "1G", "1n",
			"100k", "1E", "9223372036854775", "9223372036854776", "-1"))
	}
	return list
}

// limited generates a request about a pod or a claim in a namespace.
func (g *generator) limited() *oracle.Case {
	var c *oracle.Case
	if g.in(4) {
		gvk := corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
		c = g.request(g.writes(), gvk, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"))
		if g.in(12) {
			c.Subresource = "status"
		}
		g.write(c, g.limitedClaim(), func() runtime.Object { return g.limitedClaim() })
	} else {
		c = g.pod()
		if pod, ok := c.Object.(*corev1.Pod); ok {
			g.limit(&pod.Spec)
			if g.in(2) {
				legacyscheme.Scheme.Default(pod)
			}
			if c.Operation == admission.Update && g.in(2) {
				c.Subresource = "resize"
			}
		}
	}
	c.Namespace = pick(g, "shop", "shop", "kube-system")
	if old, ok := c.OldObject.(metav1.Object); ok && g.in(6) {
		old.SetDeletionTimestamp(new(metav1.Unix(1e9, 0)))
	}
	return c
}

// placed sets the namespace of a request, as in all requests about pods and claims. Without
// one, Kubernetes would list the LimitRanges of all namespaces, in random order.
func placed(c *oracle.Case) { c.Namespace = cmp.Or(c.Namespace, "shop") }

func (g *generator) limitedClaim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: g.metadata(), Spec: corev1.PersistentVolumeClaimSpec{
		Resources: corev1.VolumeResourceRequirements{Requests: g.amounts(3), Limits: g.amounts(1)},
	}}
}

func (g *generator) limit(spec *corev1.PodSpec) {
	needs := func() corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: g.amounts(4), Limits: g.amounts(4)}
	}
	for i := range spec.Containers {
		spec.Containers[i].Resources = needs()
	}
	for i := range spec.InitContainers {
		spec.InitContainers[i].Resources, spec.InitContainers[i].RestartPolicy = needs(), nil
		if g.in(2) {
			spec.InitContainers[i].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
	}
	if spec.Resources = nil; g.in(3) {
		spec.Resources = new(needs())
	}
}

// sortedLimits sorts the messages about the amounts of several resources, which Kubernetes
// takes from a map: consecutive minimums, maximums and ratios.
func sortedLimits(message string) string {
	head, list, ok := strings.Cut(message, " is forbidden: [")
	if !ok {
		return message
	}
	var violations []string
	for part := range strings.SplitSeq(strings.TrimSuffix(list, "]"), ", ") {
		if last := len(violations) - 1; last >= 0 && strings.HasPrefix(part, "but ") {
			violations[last] += ", " + part
		} else {
			violations = append(violations, part)
		}
	}
	kind := func(violation string) string {
		if first, _, _ := strings.Cut(violation, " "); first == "minimum" || first == "maximum" {
			return first
		}
		return "ratio"
	}
	for first, last := 0, 0; first < len(violations); first = last {
		for last < len(violations) && kind(violations[last]) == kind(violations[first]) {
			last++
		}
		slices.Sort(violations[first:last])
	}
	return head + " is forbidden: [" + strings.Join(violations, ", ") + "]"
}

// TestLimitRangerListed has a difference that the plugin's README.md lists.
func TestLimitRangerListed(t *testing.T) {
	s := limitRangerSuite()
	upstream, ours := s.implementations(t, &s.variants[0], oracle.World{Objects: []runtime.Object{&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "l", Namespace: "shop"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypePod, Min: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}},
	}}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	for _, memory := range []string{"0.5Ki", "1.5Ki"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
		}})
	}
	pod.SetGroupVersionKind(podKind)
	comparison, err := oracle.Compare(&oracle.Case{
		Operation: admission.Create, Kind: podKind, Resource: pods, Name: "p", Namespace: "shop", Object: pod,
		Options: &metav1.CreateOptions{},
	}, upstream, ours)
	got, want, _ := strings.Cut(comparison.Difference, ", want ")
	if err != nil || !strings.Contains(got, "but request is 2048") || !strings.Contains(want, "but request is 2Ki") {
		t.Errorf("got %v, %v, want sums that are written differently", comparison, err)
	}
	mustWrite(t, tally.Row{Plugin: s.name, Test: "listed differences", Cases: 1,
		Listed: []string{"sums of quantities whose shortest form has no binary suffix are shown without one"}})
}

func mustMutate(t *testing.T, c *oracle.Case, by oracle.Implementation) *corev1.Pod {
	t.Helper()
	object, err := oracle.Mutated(c, by)
	if err != nil {
		t.Fatal(err)
	}
	return object.(*corev1.Pod)
}
