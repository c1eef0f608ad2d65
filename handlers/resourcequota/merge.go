package resourcequota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// containersFew is the maximum number of containers for which resourcehelper is called. It looks
// for the status of each container among all statuses, and for each init container it sums up
// the sidecar containers before it, which takes quadratic time.
const containersFew = 16

// withStatus returns a copy of p whose containers ask for what counted until v1.36: for each of
// them the largest of what it asks for, what the node has allocated and what runs. The status of
// an init container that ends did not count (k8s.io/component-helpers v0.36.3
// resource/helpers.go determineEffectiveRequests, determineEffectiveLimits).
func withStatus(p *corev1.Pod) *corev1.Pod {
	statuses := make(map[string]*corev1.ContainerStatus)
	for _, all := range [...][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range all {
			statuses[all[i].Name] = &all[i] // if there are several, the last one counts
		}
	}
	infeasible := resourcehelper.IsPodResizeInfeasible(p)
	raised := func(c corev1.Container) corev1.Container {
		status := statuses[c.Name]
		if status == nil || status.Resources == nil {
			return c
		}
		all := newSums()
		if !infeasible {
			all.add(&c.Resources)
		}
		all.raise(status.Resources, sums(*status.Resources))
		raiseTo(all.Requests, status.AllocatedResources, status.AllocatedResources)
		c.Resources = corev1.ResourceRequirements(all)
		return c
	}
	copied := *p
	copied.Spec.Containers = slices.Clone(p.Spec.Containers)
	for i, c := range p.Spec.Containers {
		copied.Spec.Containers[i] = raised(c)
	}
	copied.Spec.InitContainers = slices.Clone(p.Spec.InitContainers)
	for i, c := range p.Spec.InitContainers {
		if isSidecar(&c) {
			copied.Spec.InitContainers[i] = raised(c)
		}
	}
	return &copied
}

// isSidecar reports whether an init container runs as long as the Pod.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// merged returns a Pod with one container, one init container and the same requests and limits
// as p. It takes linear time.
//
// resourcehelper sums up what the containers ask for, what the node has allocated and what
// runs, and takes the largest of the three sums (k8s.io/component-helpers resource/helpers.go).
func merged(p *corev1.Pod) *corev1.Pod {
	statuses := make(map[string]*corev1.ContainerStatus)
	for _, all := range [...][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range all {
			if statuses[all[i].Name] == nil { // if there are several, the first one counts
				statuses[all[i].Name] = &all[i]
			}
		}
	}
	infeasible := resourcehelper.IsPodResizeInfeasible(p)
	merge := func(of func(*needs)) (running, starting sums) {
		running, starting = newSums(), newSums()
		for i := range p.Spec.Containers {
			running.add(needed(&p.Spec.Containers[i], statuses, infeasible, of))
		}
		sidecars := newSums()
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			own := needed(c, statuses, infeasible, of)
			if isSidecar(c) {
				running.add(own)
				sidecars.add(own)
				starting.raise(own, sidecars)
				continue
			}
			together := newSums()
			together.add(own)
			together.addKnown(sidecars)
			starting.raise((*corev1.ResourceRequirements)(&together), together)
		}
		return running, starting
	}
	running, starting := merge(func(*needs) {})
	flat := *p
	flat.Spec.Containers = []corev1.Container{{Name: "running", Resources: corev1.ResourceRequirements(running)}}
	flat.Spec.InitContainers = []corev1.Container{{Name: "starting", Resources: corev1.ResourceRequirements(starting)}}
	allocatedRunning, allocatedStarting := merge((*needs).allocated)
	actualRunning, actualStarting := merge((*needs).actual)
	flat.Status.InitContainerStatuses = nil
	flat.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "running", AllocatedResources: allocatedRunning.Requests, Resources: (*corev1.ResourceRequirements)(&actualRunning)},
		{Name: "starting", AllocatedResources: allocatedStarting.Requests, Resources: (*corev1.ResourceRequirements)(&actualStarting)},
	}
	return &flat
}

// needs are the requests and limits of a container. They begin as those of the specification.
type needs struct {
	corev1.ResourceRequirements

	status     *corev1.ContainerStatus // nil if there is none
	infeasible bool                    // the node cannot give what the specification asks for
}

func needed(c *corev1.Container, statuses map[string]*corev1.ContainerStatus, infeasible bool, of func(*needs)) *corev1.ResourceRequirements {
	n := needs{c.Resources, statuses[c.Name], infeasible}
	of(&n)
	return &n.ResourceRequirements
}

// allocated makes n what the node has allocated. There are no such limits.
func (n *needs) allocated() {
	switch {
	case n.status != nil && n.status.AllocatedResources != nil:
		n.Requests = n.status.AllocatedResources
	case n.infeasible:
		n.Requests = nil
	}
}

// actual makes n what runs.
func (n *needs) actual() {
	n.allocated()
	if n.infeasible {
		n.Limits = nil
	}
	if n.status == nil || n.status.Resources == nil {
		return
	}
	if n.status.Resources.Requests != nil {
		n.Requests = n.status.Resources.Requests
	}
	if n.status.Resources.Limits != nil {
		n.Limits = n.status.Resources.Limits
	}
}

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
func (s sums) raise(of *corev1.ResourceRequirements, others sums) {
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
