// Package typed implements the scenarios for the contenders that decode Pods into Go types, in the
// usual style.
package typed

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A Mutator changes a Pod. old is nil unless the request is an update. An error denies the Pod.
type Mutator func(pod, old *corev1.Pod) error

// Mutators returns the mutators of a scenario, in their order.
func Mutators(scenario string) ([]Mutator, error) {
	if scenario == "mutate" {
		return []Mutator{alwaysPullImages}, nil
	}
	if scenario != "ten" {
		return nil, nil
	}
	c, err := NewCluster()
	if err != nil {
		return nil, err
	}
	only := func(mutate func(pod *corev1.Pod) error) Mutator {
		return func(pod, _ *corev1.Pod) error { return mutate(pod) }
	}
	return []Mutator{
		only(c.namespaceAutoProvision), only(c.namespaceLifecycle), alwaysPullImages, only(c.limitRanger),
		only(c.serviceAccount), only(c.podNodeSelector), only(c.priority), only(defaultTolerationSeconds),
		only(c.podTolerationRestriction), only(c.runtimeClass),
	}, nil
}

// ValidatePrivileged denies privileged containers.
func ValidatePrivileged(pod *corev1.Pod) error {
	var err error
	eachContainer(pod, func(c *corev1.Container) {
		if context := c.SecurityContext; err == nil && context != nil && context.Privileged != nil && *context.Privileged {
			err = fmt.Errorf("container %q is privileged", c.Name)
		}
	})
	return err
}

// alwaysPullImages is kube-apiserver's plugin (k8s.io/kubernetes
// plugin/pkg/admission/alwayspullimages).
func alwaysPullImages(pod, old *corev1.Pod) error {
	if old != nil && !hasNewImage(pod, old) {
		return nil
	}
	eachContainer(pod, func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways })
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
	return nil
}

func hasNewImage(pod, old *corev1.Pod) bool {
	known := make(map[string]bool)
	eachContainer(old, func(c *corev1.Container) { known[c.Image] = true })
	found := false
	eachContainer(pod, func(c *corev1.Container) { found = found || !known[c.Image] })
	return found
}

// eachContainer visits all containers. An ephemeral container has the fields of the others
// (k8s.io/api/core/v1 EphemeralContainerCommon).
func eachContainer(pod *corev1.Pod, visit func(*corev1.Container)) {
	for i := range pod.Spec.InitContainers {
		visit(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		visit(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		visit((*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// defaultTolerationSeconds is kube-apiserver's plugin (k8s.io/kubernetes
// plugin/pkg/admission/defaulttolerationseconds).
func defaultTolerationSeconds(pod *corev1.Pod) error {
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
		})
		if !tolerated {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
				Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300)),
			})
		}
	}
	return nil
}
