package oracle_test

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

// updated are the suites of the plugins that handle updates of pods on nodes.
func updated() []suite {
	in := []variant{{options: handlers.DefaultOptions(), world: (*generator).resizingNodes}}
	return []suite{
		{name: "NodeDeclaredFeatureValidator", generate: (*generator).boundPod, denies: true, variants: in},
		{name: "PodResizeValidator", generate: (*generator).boundPod, denies: true, variants: in},
	}
}

// resizingNodes generates a world of nodes with resources and declared features.
func (g *generator) resizingNodes() oracle.World {
	var world oracle.World
	for _, name := range []string{"n1", "n2", "n3"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if !g.in(3) {
			node.Labels = map[string]string{corev1.LabelOSStable: pick(g, "linux", "linux", "linux", "windows", "")}
		}
		if !g.in(6) {
			node.Status.Allocatable = corev1.ResourceList{"pods": resource.MustParse("110")}
			for _, r := range []corev1.ResourceName{"cpu", "memory"} {
				if !g.in(6) {
					node.Status.Allocatable[r] = g.requested()
				}
			}
		}
		node.Status.DeclaredFeatures = pick(g, nil, []string{"InPlacePodLevelResourcesVerticalScaling"},
			[]string{"Another", "InPlacePodVerticalScalingInitContainers", "Z"},
			[]string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"},
			[]string{"InPlacePodVerticalScalingInitContainers", "InPlacePodVerticalScalingMemoryBackedVolumes"},
			[]string{"InPlacePodVerticalScalingInitContainers", "InPlacePodLevelResourcesVerticalScaling"}) // not sorted
		world.Objects = append(world.Objects, node)
	}
	return world
}

func (g *generator) requested() resource.Quantity {
	return resource.MustParse(pick(g, "0", "1", "2", "500m", "1500m", "1Gi", "3", "-1", "8Ei"))
}

func (g *generator) requests() corev1.ResourceRequirements {
	list := func() corev1.ResourceList {
		list := make(corev1.ResourceList)
		for _, r := range []corev1.ResourceName{"cpu", "memory", "hugepages-2Mi", "example.com/gpu"} {
			if g.in(2) {
				list[r] = g.requested()
			}
		}
		if len(list) == 0 {
			return nil // as in API servers
		}
		return list
	}
	return corev1.ResourceRequirements{Requests: list(), Limits: list()}
}

// boundPod writes a pod, mostly by resizing one on a node.
func (g *generator) boundPod() *oracle.Case {
	if g.in(12) {
		return g.other()
	}
	operation := admission.Update
	if g.in(12) {
		operation = admission.Create
	}
	c := g.request(operation, podKind, pods)
	c.Subresource = pick(g, "resize", "resize", "resize", "resize", "", "", "status", "ephemeralcontainers")
	container := func() corev1.Container {
		return corev1.Container{Name: g.word(), Image: g.image(), Resources: g.requests(),
			RestartPolicy: pick(g, nil, nil, new(corev1.ContainerRestartPolicyAlways), new(corev1.ContainerRestartPolicyNever))}
	}
	pod := &corev1.Pod{ObjectMeta: g.metadata()}
	pod.Generation = 2
	pod.Spec.NodeName = pick(g, "n1", "n1", "n2", "n3", "missing", "", "..", "a/b", "%2F", "UPPER")
	pod.Spec.Containers, pod.Spec.InitContainers = some(g, 3, container), some(g, 3, container)
	if g.in(3) {
		pod.Spec.Resources = new(g.requests())
	}
	if g.in(4) {
		pod.Spec.Overhead = g.requests().Requests
	}
	inMemory := func() []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: pick(g, corev1.StorageMediumMemory, corev1.StorageMediumMemory, ""), SizeLimit: new(g.requested()),
		}}}}
	}
	if g.in(4) {
		pod.Spec.Volumes = inMemory()
	}
	g.write(c, pod, func() runtime.Object {
		old := pod.DeepCopy()
		if !g.in(6) {
			old.Generation = 1
		}
		if len(old.Spec.Volumes) > 0 && g.in(2) {
			old.Spec.Volumes = inMemory()
		}
		for i := range old.Spec.InitContainers {
			if g.in(3) {
				old.Spec.InitContainers[i].Resources = g.requests()
			}
			if g.in(8) {
				old.Spec.InitContainers[i].RestartPolicy = nil
			}
		}
		if n := len(old.Spec.InitContainers); n > 0 && g.in(8) { // adds one
			old.Spec.InitContainers = old.Spec.InitContainers[:n-1]
		}
		switch g.IntN(4) {
		case 0:
			old.Spec.Resources = maybe(g, g.requests)
		case 1:
			old.Spec.NodeName = ""
		}
		return old
	})
	for _, object := range []runtime.Object{c.Object, c.OldObject} {
		if object != nil {
			reread(object.(*corev1.Pod))
		}
	}
	return c
}

// reread normalizes a pod as API servers do: equal amounts have the same form, and there are
// no empty lists. Kubernetes' plugin compares forms.
func reread(pod *corev1.Pod) {
	text, err := json.Marshal(pod)
	if err != nil {
		panic(err)
	}
	*pod = corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		panic(err)
	}
}
