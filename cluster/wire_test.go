package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func wirePriorityClass(i int) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{
		ObjectMeta: wireMeta("", fmt.Sprintf("priority-%03d", i)), Value: int32(i), PreemptionPolicy: new(corev1.PreemptNever),
		Description: "This priority class is for pods that may be preempted by most others, and for no others.",
	}
}

func wireRuntimeClass(i int) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{
		ObjectMeta: wireMeta("", fmt.Sprintf("sandbox-%03d", i)), Handler: "runsc",
		Overhead: &nodev1.Overhead{PodFixed: wireList("250m", "128Mi")},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"example.com/runtime": "sandbox"},
			Tolerations: []corev1.Toleration{{Key: "example.com/runtime", Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoSchedule}},
		},
	}
}

// wireLimitRange returns a LimitRange with defaults and two limits.
func wireLimitRange(i int) *corev1.LimitRange {
	limits := &corev1.LimitRange{
		ObjectMeta: wireMeta(fmt.Sprintf("team-%05d-production", i), "limits"),
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Default: wireList("500m", "512Mi"), DefaultRequest: wireList("100m", "128Mi"),
				Max: wireList("4", "8Gi")},
			{Type: corev1.LimitTypePod, Max: wireList("16", "32Gi")},
		}},
	}
	LimitRanges.setDefaults(limits)
	return limits
}

// wireMeta returns metadata as kubectl apply writes them.
func wireMeta(namespace, name string) metav1.ObjectMeta {
	meta := wireNamespace(0).ObjectMeta
	meta.Namespace, meta.Name = namespace, name
	return meta
}

func wireList(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// wireNode returns a node as clouds create them, with labels and images.
func wireNode(i int) *corev1.Node {
	node := &corev1.Node{ObjectMeta: wireMeta("", fmt.Sprintf("ip-10-%d-%d-17.eu-central-1.compute.internal", i/250, i%250))}
	node.Labels = map[string]string{
		"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/instance-type": "m6i.4xlarge",
		"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "node.kubernetes.io/instance-type": "m6i.4xlarge",
		"kubernetes.io/hostname":      node.Name,
		"topology.kubernetes.io/zone": "eu-central-1a", "topology.kubernetes.io/region": "eu-central-1",
		"failure-domain.beta.kubernetes.io/zone": "eu-central-1a", "failure-domain.beta.kubernetes.io/region": "eu-central-1",
		"example.com/pool": "general", "example.com/image": "2026.11",
	}
	for j := range 50 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/team/service-%d:v1.2.3", j)}, SizeBytes: 1 << 20,
		})
	}
	return node
}
