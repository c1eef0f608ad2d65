package resourcequota

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// initContainersFew is the maximum number of init containers for which resourcehelper is
// called. For each init container it sums up the sidecar containers before it, which takes
// quadratic time.
const initContainersFew = 16

// withOneInitContainer returns a Pod with one init container and the same requests as p. The
// sidecar containers become one container. It takes linear time.
func withOneInitContainer(p *corev1.Pod, options resourcehelper.PodResourcesOptions) *corev1.Pod {
	statuses := make(map[string]*corev1.ContainerStatus)
	for _, all := range [...][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range all {
			statuses[all[i].Name] = &all[i] // if there are several, the last one counts
		}
	}
	running, starting := newSums(), newSums()
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways {
			own := newSums()
			own.add(&c.Resources)
			own.addKnown(running)
			starting.raise(own, own)
			continue
		}
		alone := &corev1.Pod{Status: corev1.PodStatus{Conditions: p.Status.Conditions}}
		alone.Spec.Containers = []corev1.Container{{Name: c.Name, Resources: c.Resources}}
		if status, ok := statuses[c.Name]; ok {
			alone.Status.ContainerStatuses = []corev1.ContainerStatus{*status}
		}
		needs := &corev1.ResourceRequirements{
			Requests: resourcehelper.AggregateContainerRequests(alone, options),
			Limits:   resourcehelper.AggregateContainerLimits(alone, options),
		}
		running.add(needs)
		starting.raise(sums(*needs), running)
	}
	flat := *p
	flat.Spec.Containers = append(flat.Spec.Containers[:len(flat.Spec.Containers):len(flat.Spec.Containers)],
		corev1.Container{Name: noName, Resources: corev1.ResourceRequirements(running)})
	flat.Spec.InitContainers = []corev1.Container{{Name: noName, Resources: corev1.ResourceRequirements(starting)}}
	return &flat
}

// noName is not a valid name of a container, so that no status belongs to it.
const noName = "/"

// sums are the requests and limits of several containers. They do not share quantities with
// them.
type sums corev1.ResourceRequirements

func newSums() sums {
	return sums{Requests: make(corev1.ResourceList), Limits: make(corev1.ResourceList)}
}

// add adds the resources of a container.
func (s sums) add(needs *corev1.ResourceRequirements) {
	addTo(s.Requests, needs.Requests)
	addTo(s.Limits, needs.Limits)
}

func addTo(sum, list corev1.ResourceList) {
	for name, quantity := range list {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// addKnown adds the amounts of others, for the resources in s.
func (s sums) addKnown(others sums) {
	for _, both := range [...][2]corev1.ResourceList{{s.Requests, others.Requests}, {s.Limits, others.Limits}} {
		for name, total := range both[0] {
			total.Add(both[1][name])
			both[0][name] = total
		}
	}
}

// raise raises the amounts in s to those of others, for the resources in of. All other
// resources are unchanged since s was last raised.
func (s sums) raise(of, others sums) {
	raiseTo(s.Requests, of.Requests, others.Requests)
	raiseTo(s.Limits, of.Limits, others.Limits)
}

func raiseTo(most, of, list corev1.ResourceList) {
	for name := range of {
		quantity := list[name]
		if known, ok := most[name]; !ok || quantity.Cmp(known) > 0 {
			most[name] = quantity.DeepCopy()
		}
	}
}
