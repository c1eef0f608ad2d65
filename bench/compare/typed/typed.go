// Package typed is the work that the contenders do, for those that decode
// Pods into Go types: written as one writes it with them.
package typed

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Mutators returns what mutates Pods in the work, in its order. Old is nil but
// in an update.
func Mutators(work string) []func(pod, old *corev1.Pod) {
	only := func(mutate func(*corev1.Pod)) func(pod, old *corev1.Pod) {
		return func(pod, _ *corev1.Pod) { mutate(pod) }
	}
	switch work {
	case "mutate":
		return []func(pod, old *corev1.Pod){alwaysPullImages}
	case "ten":
		return []func(pod, old *corev1.Pod){
			alwaysPullImages, only(defaultTolerationSeconds), only(extendedResourceToleration), only(seccompProfile),
			only(serviceAccountToken), only(nodeSystem), only(costCenter), only(registryMirror), only(privilegeEscalation),
			only(gracePeriod),
		}
	}
	return nil
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
func alwaysPullImages(pod, old *corev1.Pod) {
	if old != nil && !hasNewImage(pod, old) {
		return
	}
	eachContainer(pod, func(c *corev1.Container) { c.ImagePullPolicy = corev1.PullAlways })
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
}

func hasNewImage(pod, old *corev1.Pod) bool {
	known := make(map[string]bool)
	eachContainer(old, func(c *corev1.Container) { known[c.Image] = true })
	found := false
	eachContainer(pod, func(c *corev1.Container) { found = found || !known[c.Image] })
	return found
}

// eachContainer visits all containers: an ephemeral one has the fields of the
// others (k8s.io/api/core/v1 EphemeralContainerCommon).
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
func defaultTolerationSeconds(pod *corev1.Pod) {
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
}

// extendedResourceToleration is kube-apiserver's plugin (k8s.io/kubernetes
// plugin/pkg/admission/extendedresourcetoleration), for Pods whose tolerations
// are not for the resources already.
func extendedResourceToleration(pod *corev1.Pod) {
	requested := make(map[string]bool)
	eachContainer(pod, func(c *corev1.Container) {
		for name := range c.Resources.Requests {
			if domain, _, found := strings.Cut(string(name), "/"); found && !strings.HasSuffix(domain, "kubernetes.io") {
				requested[string(name)] = true
			}
		}
	})
	for name := range requested {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
}

func seccompProfile(pod *corev1.Pod) {
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = new(corev1.PodSecurityContext)
	}
	if pod.Spec.SecurityContext.SeccompProfile == nil {
		pod.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
}

func serviceAccountToken(pod *corev1.Pod) {
	if pod.Spec.AutomountServiceAccountToken == nil {
		pod.Spec.AutomountServiceAccountToken = new(false)
	}
}

func nodeSystem(pod *corev1.Pod) {
	if _, found := pod.Spec.NodeSelector[corev1.LabelOSStable]; !found {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = make(map[string]string)
		}
		pod.Spec.NodeSelector[corev1.LabelOSStable] = "linux"
	}
}

func costCenter(pod *corev1.Pod) {
	if _, found := pod.Labels["cost-center"]; !found {
		if pod.Labels == nil {
			pod.Labels = make(map[string]string)
		}
		pod.Labels["cost-center"] = "unknown"
	}
}

func registryMirror(pod *corev1.Pod) {
	eachContainer(pod, func(c *corev1.Container) {
		if image, found := strings.CutPrefix(c.Image, "docker.io/"); found {
			c.Image = "mirror.example.com/" + image
		}
	})
}

func privilegeEscalation(pod *corev1.Pod) {
	eachContainer(pod, func(c *corev1.Container) {
		if c.SecurityContext == nil {
			c.SecurityContext = new(corev1.SecurityContext)
		}
		if c.SecurityContext.AllowPrivilegeEscalation == nil {
			c.SecurityContext.AllowPrivilegeEscalation = new(false)
		}
	})
}

func gracePeriod(pod *corev1.Pod) {
	const secondsMax = 300
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil && *seconds > secondsMax {
		pod.Spec.TerminationGracePeriodSeconds = new(int64(secondsMax))
	}
}
