package limitranger

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// An amount is a quantity in an object; if it is not set, it is zero.
type amount struct {
	resource.Quantity
	given bool
}

// add adds an amount. Later changes of the sum do not change the argument.
func (a *amount) add(b amount) {
	switch {
	case !b.given:
	case !a.given:
		*a = amount{b.DeepCopy(), true}
	default:
		a.Add(b.Quantity)
	}
}

// raise sets a to the larger of both.
func (a *amount) raise(b amount) {
	if b.given && (!a.given || b.Cmp(a.Quantity) > 0) {
		*a = amount{b.DeepCopy(), true}
	}
}

// read reads the amount of a resource in the field requests or limits of
// resources.
func read(resources codec.Value, field, name string) (amount, error) {
	value := resources.Get(field, name)
	if !value.Exists() {
		return amount{}, nil
	}
	parsed, err := quantity.Parse(value)
	if err != nil {
		return amount{}, fmt.Errorf("resources.%s[%s]: got %s, want a quantity: %w", field, name, value.JSON(), err)
	}
	return amount{parsed, true}, nil
}

// containerAmounts are the amounts in the field resources of a container, or of the spec
// of a claim.
type containerAmounts struct{ codec.Value }

func (c containerAmounts) request(name string) (request, limit amount, err error) {
	request, err = read(c.Get("resources"), "requests", name)
	return request, amount{}, err
}

func (c containerAmounts) both(name string) (request, limit amount, err error) {
	resources := c.Get("resources")
	if request, err = read(resources, "requests", name); err != nil {
		return request, limit, err
	}
	limit, err = read(resources, "limits", name)
	return request, limit, err
}

// podAmounts are the amounts of a pod with this spec. own says that the resources of the pod itself
// count.
type podAmounts struct {
	spec codec.Value
	own  bool
}

func (p podAmounts) both(name string) (request, limit amount, err error) {
	if request, err = p.of("requests", name); err != nil {
		return request, limit, err
	}
	limit, err = p.of("limits", name)
	return request, limit, err
}

// of returns how much of a resource the pod needs while it starts or while it runs,
// whichever is more. Init containers run one after the other, together with sidecar
// containers, which continue to run (podRequests and podLimits there). For CPU and memory,
// the resources of the pod itself have priority.
func (p podAmounts) of(field, name string) (amount, error) {
	if p.own && (name == string(corev1.ResourceCPU) || name == string(corev1.ResourceMemory)) {
		if whole, err := read(p.spec.Get("resources"), field, name); err != nil || whole.given {
			return whole, err
		}
	}
	var running, restarting, starting amount
	for _, container := range p.spec.Get("containers").Elements() {
		needs, err := read(container.Get("resources"), field, name)
		if err != nil {
			return amount{}, err
		}
		running.add(needs)
	}
	for _, container := range p.spec.Get("initContainers").Elements() {
		needs, err := read(container.Get("resources"), field, name)
		if err != nil {
			return amount{}, err
		}
		if container.Get("restartPolicy").EqualString(string(corev1.ContainerRestartPolicyAlways)) {
			running.add(needs)
			restarting.add(needs)
			needs = restarting
		} else {
			needs.add(restarting)
		}
		starting.raise(needs)
	}
	running.raise(starting)
	return running, nil
}
