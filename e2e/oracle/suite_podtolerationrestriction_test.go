package oracle_test

import (
	"encoding/json"
	"slices"
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

// tolerates generates a request about pods of all QoS classes.
func (g *generator) tolerates() *oracle.Case {
	c := g.pod()
	for _, object := range []runtime.Object{c.Object, c.OldObject} {
		pod, ok := object.(*corev1.Pod)
		if !ok || g.in(8) {
			continue
		}
		pod.Spec.Resources = nil
		if g.in(4) {
			resources := g.computing()
			pod.Spec.Resources = &resources
		}
		for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				containers[i].Resources = g.computing()
			}
		}
		if g.in(2) {
			pod.Status.QOSClass = ""
		} else {
			pod.Status.QOSClass = pick(g, "", "", corev1.PodQOSBestEffort, corev1.PodQOSBurstable, "odd")
		}
		if !g.in(3) {
			pod.Spec.Tolerations = some(g, 4, g.overlapping)
		}
	}
	return c
}

// computing generates resources that determine the QoS class.
func (g *generator) computing() corev1.ResourceRequirements {
	r := g.resources()
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		if list != nil && g.in(4) {
			list[pick(g, corev1.ResourceCPU, corev1.ResourceMemory)] = pick(g, resource.MustParse("0"), resource.MustParse("1n"),
				resource.MustParse("500m"), resource.MustParse("-1"))
		}
	}
	return r
}

// overlapping generates one of few tolerations, many of which cover others.
func (g *generator) overlapping() corev1.Toleration {
	if g.in(3) { // one that occurred before
		return pick(g, corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists},
			corev1.Toleration{Key: "b", Operator: corev1.TolerationOpEqual, Value: "v", Effect: corev1.TaintEffectNoSchedule},
			corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoSchedule})
	}
	return corev1.Toleration{
		Key: pick(g, "", "a", "a", "b", corev1.TaintNodeMemoryPressure),
		Operator: pick(g, "", corev1.TolerationOpExists, corev1.TolerationOpExists, corev1.TolerationOpEqual,
			corev1.TolerationOpEqual, corev1.TolerationOpLt),
		Value:             pick(g, "", "", "v"),
		Effect:            pick(g, "", corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule),
		TolerationSeconds: maybe(g, func() int64 { return pick[int64](g, 0, 10, 300) }),
	}
}

// tolerationList generates a list for an annotation, which is seldom invalid.
func (g *generator) tolerationList() string {
	if g.in(8) {
		return pick(g, "", "[]", "null", "{}", "[", "[1]", `[{"KEY":"a","Operator":"Exists","more":1}]`, `[{"tolerationSeconds":"1"}]`,
			"[null]")
	}
	text, err := json.Marshal(some(g, 3, g.overlapping))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// toleratingWorld generates some of the namespaces in requests, with lists.
func toleratingWorld(g *generator) oracle.World {
	return g.namespaces(func(n *corev1.Namespace) {
		n.Annotations = map[string]string{}
		if g.in(2) {
			n.Annotations["scheduler.alpha.kubernetes.io/defaultTolerations"] = g.tolerationList()
		}
		if g.in(2) {
			n.Annotations["scheduler.alpha.kubernetes.io/tolerationsWhitelist"] = g.tolerationList()
		}
	})
}

const tolerationHead = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\n"

func restrictionVariants() []variant {
	var all []variant
	for _, config := range []string{
		tolerationHead + "default: [{key: testKey, operator: Equal, value: cluster, effect: NoSchedule}]\n" +
			"whitelist: [{key: testKey, effect: NoSchedule, operator: Exists}, {key: a, operator: Exists}, {operator: Exists, effect: " +
			"NoExecute}]\n",
		"",
		tolerationHead + "default: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 10}, {key: b, value: v}]\n",
		tolerationHead + "whitelist: [{key: a, operator: Exists}, {operator: Exists, effect: NoSchedule}, {key: b, operator: Equal, " +
			"value: v}]\n",
	} {
		all = append(all, variant{about: config, config: config, options: handlers.DefaultOptions(), world: toleratingWorld})
	}
	return all
}

// TestTolerationConfigurations compares which configurations both sides accept.
func TestTolerationConfigurations(t *testing.T) {
	row := tally.Row{Plugin: "PodTolerationRestriction", Test: "configurations"}
	f := accepts(t, &row)
	const head = tolerationHead
	f("", "")
	f("{}", "")
	f("rubbish", "")
	f(head, "")
	f(head+"default: []\nwhitelist: null", "")
	f(head+"default: {}", "")
	f(`{"apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","kind":"Configuration","default":[{"operator":"Exists"}]}`, "")
	f("apiVersion: podtolerationrestriction.admission.k8s.io/v1\nkind: Configuration", "")
	f("apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configurations", "")
	for _, list := range []string{"default", "whitelist"} {
		for _, toleration := range []string{
			"{}", "{operator: Exists}", "{operator: Exists, value: v}", "{operator: Equal}", "{key: a}", "{key: a, value: v}",
			"{key: a, value: v w}",
			"{key: a/b, operator: Exists}", "{key: a/b/c, operator: Exists}", "{key: a b}", "{key: a, effect: NoSchedule}",
			"{key: a, effect: NoExecute}",
			"{key: a, effect: PreferNoSchedule}", "{key: a, effect: noschedule}", "{key: a, tolerationSeconds: 1}",
			"{key: a, tolerationSeconds: -1, effect: NoExecute}", "{key: a, tolerationSeconds: 1, effect: NoSchedule}",
			"{key: a, tolerationSeconds: '1', effect: NoExecute}", "{key: a, operator: Lt, value: '1'}",
			"{key: a, operator: Gt, value: '1'}",
			"{key: a, operator: exists}",
		} {
			f(head+list+": ["+toleration+"]", "")
		}
	}
	f(head+"defaults: []", "an unknown field is an error")
	f(head+"default: []\ndefault: []", "a duplicate field is an error")
	mustWrite(t, row)
}

// TestTolerationsReinvokedListed has a difference that the plugin's README.md lists. It
// calls PodTolerationRestriction and ExtendedResourceToleration as one webhook each. In-tree
// reinvokes both after any webhook has changed the pod, with the same result.
func TestTolerationsReinvokedListed(t *testing.T) {
	world := oracle.World{Objects: []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}}
	implementations := func(name string) [2]oracle.Implementation {
		s := &suite{name: name}
		upstream, ours := s.implementations(t, &variant{options: handlers.DefaultOptions()}, world)
		return [2]oracle.Implementation{upstream, ours}
	}
	restriction, extended := implementations("PodTolerationRestriction"), implementations("ExtendedResourceToleration")
	const inTree, here = 0, 1
	var row tally.Row
	for _, value := range []string{"", "v"} {
		own := corev1.Toleration{Key: "example.com/gpu", Operator: corev1.TolerationOpEqual, Value: value,
			Effect: corev1.TaintEffectNoSchedule}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"), "example.com/gpu": resource.MustParse("1"),
			}}}},
			Tolerations: []corev1.Toleration{own},
		}}
		f := func(about string, side int, keeps bool, calls ...[2]oracle.Implementation) {
			t.Helper()
			row.Cases++
			pod := tolerating(t, pod, side, calls...)
			if got := pod.Spec.Tolerations; slices.Contains(got, own) != keeps || len(got) < 2 {
				t.Errorf("%s, value %q: got tolerations %v, want the pod's own among them %v", about, value, got, keeps)
			}
		}
		f("in-tree", inTree, true, restriction, extended)
		f("in-tree, run again", inTree, false, restriction, extended, restriction, extended)
		f("two webhooks, none called again", here, true, restriction, extended)
		f("two webhooks, the first called again", here, false, restriction, extended, restriction)
		f("two webhooks in the other order", here, false, extended, restriction)
	}
	row.Plugin, row.Test = "PodTolerationRestriction", "listed differences"
	row.Listed = []string{"with separate webhooks, a toleration that one of ExtendedResourceToleration covers is removed if this " +
		"plugin is called later or again"}
	mustWrite(t, row)
}

// tolerating returns the pod after all calls, in order.
func tolerating(t *testing.T, pod *corev1.Pod, side int, calls ...[2]oracle.Implementation) *corev1.Pod {
	t.Helper()
	pod = pod.DeepCopy()
	legacyscheme.Scheme.Default(pod)
	for _, call := range calls {
		pod.SetGroupVersionKind(podKind)
		pod = mustMutate(t, &oracle.Case{
			Operation: admission.Create, Kind: podKind, Resource: pods, Name: "p", Namespace: "shop", Object: pod,
			Options: &metav1.CreateOptions{},
		}, call[side])
	}
	return pod
}
