package resourcequota

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// services is the evaluator of Services (k8s.io/kubernetes
// pkg/quota/v1/evaluator/core/services.go).
type services struct{}

var serviceCount = countOf("", "services")

func (services) handles(review *codec.Review) bool { return review.SubResource() == "" }

func (services) tracked(names []corev1.ResourceName) []corev1.ResourceName {
	own := []corev1.ResourceName{serviceCount, corev1.ResourceServices, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers}
	return only(names, func(name corev1.ResourceName) bool { return slices.Contains(own, name) })
}

func (services) measure(_ context.Context, _ *codec.Review, object codec.Value) (item, error) {
	spec := object.Get("spec")
	nodePorts, balancers := 0, 0
	switch corev1.ServiceType(spec.Get("type").String()) {
	case corev1.ServiceTypeNodePort:
		nodePorts = spec.Get("ports").Len()
	case corev1.ServiceTypeLoadBalancer:
		balancers = 1
		allocate := spec.Get("allocateLoadBalancerNodePorts")
		if !allocate.IsSet() || allocate.Bool() {
			nodePorts = spec.Get("ports").Len() // a port without a node port gets one
			break
		}
		for _, port := range spec.Get("ports").Elements() {
			if n, ok := port.Get("nodePort").Int64(); ok && n != 0 {
				nodePorts++
			}
		}
	}
	return unscoped{
		serviceCount: count(1), corev1.ResourceServices: count(1),
		corev1.ResourceServicesNodePorts: count(int64(nodePorts)), corev1.ResourceServicesLoadBalancers: count(int64(balancers)),
	}, nil
}
