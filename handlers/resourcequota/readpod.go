package resourcequota

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// readPod reads the fields that quotas depend on. The result is a copy.
func readPod(object codec.Value, version admission.Version) (*pod, error) {
	p, spec, status := &pod{version: version}, object.Get("spec"), object.Get("status")
	if !spec.FitsDecoded() || !status.FitsDecoded() {
		return p, nil // review.Err has the error
	}
	var err error
	if p.DeletionTimestamp, err = readTime(object.Get("metadata", "deletionTimestamp")); err != nil {
		return nil, fmt.Errorf("metadata.deletionTimestamp: %w", err)
	}
	p.DeletionGracePeriodSeconds = readInt64(object.Get("metadata", "deletionGracePeriodSeconds"))
	p.Spec.ActiveDeadlineSeconds = readInt64(spec.Get("activeDeadlineSeconds"))
	p.Spec.PriorityClassName = strings.Clone(spec.Get("priorityClassName").String())
	p.crossNamespace = crossesNamespaces(spec.Get("affinity"))
	if p.Spec.Overhead, err = readResources(spec.Get("overhead")); err != nil {
		return nil, fmt.Errorf("spec.overhead: %w", err)
	}
	if version.AtLeast(1, 34) { // since then, the gate PodLevelResources is on
		if p.Spec.Resources, err = readRequirements(spec.Get("resources")); err != nil {
			return nil, fmt.Errorf("spec.resources.%w", err)
		}
	}
	if p.Spec.Containers, err = readContainers(spec.Get("containers")); err != nil {
		return nil, fmt.Errorf("spec.containers%w", err)
	}
	if p.Spec.InitContainers, err = readContainers(spec.Get("initContainers")); err != nil {
		return nil, fmt.Errorf("spec.initContainers%w", err)
	}
	p.Status.Phase = corev1.PodPhase(strings.Clone(status.Get("phase").String()))
	p.Status.QOSClass = corev1.PodQOSClass(strings.Clone(status.Get("qosClass").String()))
	for _, condition := range status.Get("conditions").Elements() {
		if condition.Get("type").EqualString(string(corev1.PodResizePending)) { // resourcehelper reads no other
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending,
				Reason: strings.Clone(condition.Get("reason").String())}}
			break
		}
	}
	if p.Status.ContainerStatuses, err = readStatuses(status.Get("containerStatuses")); err != nil {
		return nil, fmt.Errorf("status.containerStatuses%w", err)
	}
	if p.Status.InitContainerStatuses, err = readStatuses(status.Get("initContainerStatuses")); err != nil {
		return nil, fmt.Errorf("status.initContainerStatuses%w", err)
	}
	return p, nil
}

// crossesNamespaces reports whether an affinity or anti-affinity selects pods in namespaces
// that it names (upstream's usesCrossNamespacePodAffinity).
func crossesNamespaces(affinity codec.Value) bool {
	for _, kind := range [...]string{"podAffinity", "podAntiAffinity"} {
		for _, term := range affinity.Get(kind, "requiredDuringSchedulingIgnoredDuringExecution").Elements() {
			if namesNamespaces(term) {
				return true
			}
		}
		for _, term := range affinity.Get(kind, "preferredDuringSchedulingIgnoredDuringExecution").Elements() {
			if namesNamespaces(term.Get("podAffinityTerm")) {
				return true
			}
		}
	}
	return false
}

func namesNamespaces(term codec.Value) bool {
	return term.Get("namespaces").Len() > 0 || term.Get("namespaceSelector").IsSet()
}

func readContainers(list codec.Value) (containers []corev1.Container, err error) {
	for i, c := range list.Elements() {
		requirements, err := readRequirements(c.Get("resources"))
		if err != nil {
			return nil, fmt.Errorf("[%d].resources.%w", i, err)
		}
		container := corev1.Container{Name: strings.Clone(c.Get("name").String())}
		if requirements != nil {
			container.Resources = *requirements
		}
		if c.Get("restartPolicy").EqualString(string(corev1.ContainerRestartPolicyAlways)) {
			container.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		containers = append(containers, container)
	}
	return containers, nil
}

// readStatuses reads the resources in the statuses of containers.
func readStatuses(list codec.Value) (statuses []corev1.ContainerStatus, err error) {
	for i, s := range list.Elements() {
		status := corev1.ContainerStatus{Name: strings.Clone(s.Get("name").String())}
		if status.Resources, err = readRequirements(s.Get("resources")); err != nil {
			return nil, fmt.Errorf("[%d].resources.%w", i, err)
		}
		if status.AllocatedResources, err = readResources(s.Get("allocatedResources")); err != nil {
			return nil, fmt.Errorf("[%d].allocatedResources: %w", i, err)
		}
		statuses = append(statuses, status)
	}
	return statuses, nil
}

// readRequirements reads requests and limits; nil if there are none.
func readRequirements(value codec.Value) (*corev1.ResourceRequirements, error) {
	if !value.IsSet() {
		return nil, nil
	}
	r := new(corev1.ResourceRequirements)
	var err error
	if r.Requests, err = readResources(value.Get("requests")); err != nil {
		return nil, fmt.Errorf("requests: %w", err)
	}
	if r.Limits, err = readResources(value.Get("limits")); err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	return r, nil
}

// readInt64 reads an integer; it returns nil if the value is not one.
func readInt64(value codec.Value) *int64 {
	n, ok := value.Int64()
	if !ok {
		return nil
	}
	return &n
}

// readTime parses a time; it returns nil if the value is not set.
func readTime(value codec.Value) (*metav1.Time, error) {
	if !value.IsSet() {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, value.String())
	if err != nil {
		return nil, err
	}
	return new(metav1.NewTime(t)), nil
}
