package oracle_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

func runtimeClassSuite() suite {
	return suite{
		name: "RuntimeClass", generate: (*generator).podOfClass, denies: true, changes: true,
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).runtimeClasses}},
	}
}

// runtimeClasses generates a world of some classes.
func (g *generator) runtimeClasses() oracle.World {
	var world oracle.World
	for i := range g.IntN(5) {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("r%d", i)}, Handler: "runsc"}
		if !g.in(4) {
			class.Overhead = &nodev1.Overhead{PodFixed: g.overhead()}
		}
		if !g.in(4) {
			class.Scheduling = &nodev1.Scheduling{NodeSelector: g.selector(), Tolerations: some(g, 3, g.closeToleration)}
		}
		world.Objects = append(world.Objects, class)
	}
	return world
}

// podOfClass generates a request about a pod that may have a class.
func (g *generator) podOfClass() *oracle.Case {
	c := g.pod()
	if pod, ok := c.Object.(*corev1.Pod); ok {
		pod.Spec.RuntimeClassName, pod.Spec.Overhead, pod.Spec.NodeSelector = nil, nil, g.selector()
		if !g.in(4) {
			pod.Spec.RuntimeClassName = new(pick(g, "r0", "r0", "r1", "r1", "r2", "r3", "none", ""))
		}
		if g.in(4) {
			pod.Spec.Overhead = g.overhead()
		}
		if g.in(2) {
			pod.Spec.Tolerations = some(g, 5, g.closeToleration)
		}
	}
	return c
}

// overhead generates amounts that are often equal in different forms. It returns nil instead
// of an empty list, because the JSON for webhooks does not distinguish them.
func (g *generator) overhead() corev1.ResourceList {
	list := make(corev1.ResourceList)
	if !g.in(4) {
		list[corev1.ResourceCPU] = resource.MustParse(pick(g, "250m", "0.25", "250m", "1", "1000m", "0"))
	}
	if g.in(2) {
		list[corev1.ResourceMemory] = resource.MustParse(pick(g, "128Mi", "131072Ki", "134217728", "1Gi", "1e3", "12345678901234567890"))
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// selector generates selectors that conflict in at most one key, because Kubernetes reports
// a random one of several conflicts.
func (g *generator) selector() map[string]string {
	selector := make(map[string]string)
	if g.in(2) {
		selector["a"] = pick(g, "1", "1", "2", "")
	}
	if g.in(2) {
		selector["é/b"] = "1"
	}
	if len(selector) == 0 && g.in(2) {
		return nil
	}
	return selector
}

// closeToleration generates tolerations that often cover each other.
func (g *generator) closeToleration() corev1.Toleration {
	return corev1.Toleration{
		Key:               pick(g, "", "a", "a", "b"),
		Operator:          pick(g, "", corev1.TolerationOpExists, corev1.TolerationOpEqual, corev1.TolerationOpLt),
		Value:             pick(g, "", "", "v"),
		Effect:            pick(g, "", corev1.TaintEffectNoExecute, corev1.TaintEffectNoExecute, corev1.TaintEffectNoSchedule),
		TolerationSeconds: maybe(g, func() int64 { return pick[int64](g, 0, 60, 300, -1) }),
	}
}

// TestRuntimeClassListed has the difference that the plugin's README.md lists.
func TestRuntimeClassListed(t *testing.T) {
	s := runtimeClassSuite()
	upstream, ours := s.implementations(t, &s.variants[0], oracle.World{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Overhead: corev1.ResourceList{}}}
	pod.SetGroupVersionKind(podKind)
	comparison, err := oracle.Compare(&oracle.Case{
		Operation: admission.Create, Kind: podKind, Resource: pods, Name: "p", Object: pod, Options: &metav1.CreateOptions{},
	}, upstream, ours)
	if err != nil || !strings.Contains(comparison.Difference, "Pod Overhead set without corresponding") {
		t.Errorf("got %v, %v, want Kubernetes to deny an overhead that is empty", comparison, err)
	}
	mustWrite(t, tally.Row{Plugin: s.name, Test: "listed differences", Cases: 1,
		Listed: []string{"in-tree denies a pod with an empty overhead, which a webhook does not see"}})
}
