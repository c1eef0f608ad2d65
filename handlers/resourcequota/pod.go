package resourcequota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// pods is the evaluator of Pods (k8s.io/kubernetes
// pkg/quota/v1/evaluator/core/pods.go).
type pods struct{ version admission.Version }

func (pods) handles(review *codec.Review) bool {
	switch review.SubResource() {
	case "":
		if review.Operation() == codec.Create {
			return true
		}
		return review.OldObject.Root().IsSet() && isTerminating(review.Object.Root()) != isTerminating(review.OldObject.Root())
	case "resize":
		return review.Operation() == codec.Update
	}
	return false
}

// isTerminating reports whether a Pod has a deadline.
func isTerminating(pod codec.Value) bool {
	seconds, ok := pod.Get("spec", "activeDeadlineSeconds").Int64()
	return ok && seconds >= 0
}

var podCount = countOf("", "pods")

// podResources are the names of the resources of Pods in quotas.
var podResources = []corev1.ResourceName{
	podCount, corev1.ResourcePods,
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

// mustSpecify are the resources that each container must specify if a quota limits them.
var mustSpecify = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
}

func (e pods) tracked(names []corev1.ResourceName) []corev1.ResourceName {
	tracked := only(names, func(name corev1.ResourceName) bool { return slices.Contains(podResources, name) })
	for _, name := range names {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
			strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) {
			tracked = append(tracked, name)
		}
		if isExtended(name, e.version) { // a name may occur twice, and is then twice in the message
			tracked = append(tracked, name)
		}
	}
	return tracked
}

func (e pods) measure(_ context.Context, _ *codec.Review, object codec.Value) (item, error) {
	p, err := readPod(object, e.version)
	if err != nil {
		return nil, err
	}
	p.used = podUsage(&p.Pod, e.version)
	return p, nil
}

// A pod has the fields of a Pod that quotas depend on.
type pod struct {
	corev1.Pod
	version        admission.Version
	crossNamespace bool // has cross-namespace pod affinity or anti-affinity
	used           corev1.ResourceList
}

func (p *pod) usage() corev1.ResourceList { return p.used }

func (p *pod) matches(selector corev1.ScopedResourceSelectorRequirement) (bool, error) {
	terminating := p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds >= 0
	switch selector.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return terminating, nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return !terminating, nil
	case corev1.ResourceQuotaScopeBestEffort:
		return p.isBestEffort(), nil
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !p.isBestEffort(), nil
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return p.crossNamespace, nil
	case corev1.ResourceQuotaScopePriorityClass:
		class := p.Spec.PriorityClassName
		if selector.Operator == corev1.ScopeSelectorOpExists {
			return class != "", nil
		}
		if class == "" {
			return selects(selector)
		}
		return selects(selector, class)
	}
	return false, nil
}

func (p *pod) constraints(limited []corev1.ResourceName) error {
	if resourcehelper.IsPodLevelResourcesSet(&p.Pod) {
		return nil
	}
	limited = only(limited, func(name corev1.ResourceName) bool { return slices.Contains(mustSpecify, name) })
	missing := make(map[corev1.ResourceName][]string) // names of containers
	for _, containers := range [...][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			specified := computeUsage(c.Resources.Requests, c.Resources.Limits, p.version)
			for _, name := range limited {
				if _, ok := specified[name]; !ok {
					missing[name] = append(missing[name], c.Name)
				}
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(missing[name]), ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

// isBestEffort reports whether a Pod requests nothing (k8s.io/kubernetes
// pkg/apis/core/v1/helper/qos GetPodQOS). Until 1.36, resources of the pod itself count also if they
// name neither CPU nor memory.
func (p *pod) isBestEffort() bool {
	if p.Status.QOSClass != "" {
		return p.Status.QOSClass == corev1.PodQOSBestEffort
	}
	if own := p.Spec.Resources; own != nil && (!p.version.AtLeast(1, 37) || resourcehelper.IsPodLevelResourcesSet(&p.Pod)) {
		return !p.asksFor(own)
	}
	asks := func(c corev1.Container) bool { return p.asksFor(&c.Resources) }
	return !slices.ContainsFunc(p.Spec.Containers, asks) && !slices.ContainsFunc(p.Spec.InitContainers, asks)
}

// asksFor reports whether there is a request or limit of a resource that determines the QoS
// class. A negative one, which is invalid, counts since 1.37.
func (p *pod) asksFor(r *corev1.ResourceRequirements) bool {
	for _, list := range [...]corev1.ResourceList{r.Requests, r.Limits} {
		for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if quantity, ok := list[name]; ok && (quantity.Sign() > 0 || quantity.Sign() < 0 && p.version.AtLeast(1, 37)) {
				return true
			}
		}
	}
	return false
}

// podUsage returns the usage of a Pod (upstream's PodUsageFunc).
func podUsage(p *corev1.Pod, version admission.Version) corev1.ResourceList {
	used := corev1.ResourceList{podCount: count(1)}
	if hasEnded(p) {
		return used
	}
	// The feature gates have the defaults of v1.37. A status that says nothing about resources changes
	// nothing, and without it resourcehelper makes one sum instead of three.
	options := resourcehelper.PodResourcesOptions{
		UseStatusResources: len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses)+len(p.Status.Conditions) > 0,
	}
	if options.UseStatusResources && !version.AtLeast(1, 37) {
		p, options.UseStatusResources = withStatus(p), false
	}
	if len(p.Spec.Containers)+len(p.Spec.InitContainers) > containersFew {
		p = merged(p)
	}
	return add(used, computeUsage(resourcehelper.PodRequests(p, options), resourcehelper.PodLimits(p, options), version))
}

// hasEnded reports whether a Pod counts only as an object: it has run to completion, or its
// grace period is over (upstream's QuotaV1Pod).
func hasEnded(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return true
	}
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return false
	}
	grace := time.Duration(*p.DeletionGracePeriodSeconds) * time.Second
	return time.Now().After(p.DeletionTimestamp.Add(grace))
}

// computeUsage returns the usage for requests and limits (upstream's podComputeUsageHelper).
func computeUsage(requests, limits corev1.ResourceList, version admission.Version) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: count(1)}
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if request, ok := requests[name]; ok {
			used[name], used["requests."+name] = request, request
		}
		if limit, ok := limits[name]; ok {
			used["limits."+name] = limit
		}
	}
	for name, request := range requests {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			used[name], used["requests."+name] = request, request
		}
		if isExtendedRequest(string(name), version) {
			used["requests."+name] = request
		}
	}
	return used
}

// isExtendedRequest reports whether a container may request the resource as a device
// (pkg/scheduler/util IsDRAExtendedResourceName). Those of device classes count since v1.35.
func isExtendedRequest(name string, version admission.Version) bool {
	if version.AtLeast(1, 35) && strings.HasPrefix(name, resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return !isNative(name) && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
