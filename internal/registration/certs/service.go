package certs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
)

func servicesPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/services" }

// A service is a port of a Service that webhooks name.
type service struct {
	namespace, name string
	port            int32
}

func (s service) String() string { return s.namespace + "/" + s.name }

// dial connects to an endpoint as kube-apiserver does.
func (m *Manager) dial(ctx context.Context, e endpoint) (net.Conn, error) {
	if e.service == (service{}) {
		return m.o.Dial(ctx, "tcp", e.address)
	}
	address, err := m.resolve(ctx, e.service)
	if err != nil {
		return nil, err
	}
	conn, err := m.o.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to Service %s: %w", e.service, err)
	}
	return conn, nil
}

// resolve returns the address of a Service. It caches the address for the rest of the pass.
func (m *Manager) resolve(ctx context.Context, s service) (string, error) {
	if address := m.addresses[s]; address != "" {
		return address, nil
	}
	found := new(corev1.Service)
	text, err := m.client.get(ctx, servicesPath(s.namespace), s.name)
	if err == nil && text == nil {
		return "", fmt.Errorf("there is no Service %s: create it, or name another one in clientConfig", s)
	}
	if err == nil {
		err = json.UnmarshalCaseSensitivePreserveInts(text, found)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read Service %s: %w", s, err)
	}
	address, err := s.addressOf(found)
	if err != nil {
		return "", fmt.Errorf("kube-apiserver cannot call Service %s: %w", s, err)
	}
	m.addresses[s] = address
	return address, nil
}

// addressOf returns where kube-apiserver connects to for the Service. It uses no
// cluster DNS, so neither must a registration wait for it. The rules are those
// of ResolveCluster in k8s.io/apiserver pkg/util/proxy, which
// k8s.io/kube-aggregator pkg/apiserver/resolvers.go uses. With its flag
// --enable-aggregator-routing, kube-apiserver picks an address of the Service's
// EndpointSlices instead, which is the same pods without kube-proxy between.
func (s service) addressOf(found *corev1.Service) (string, error) {
	host := found.Spec.ClusterIP
	switch found.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return net.JoinHostPort(found.Spec.ExternalName, strconv.Itoa(int(s.port))), nil
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		return "", fmt.Errorf("got type %q, want ClusterIP, NodePort, LoadBalancer or ExternalName", found.Spec.Type)
	}
	if host == corev1.ClusterIPNone {
		return "", errors.New("got clusterIP None, want one with a cluster IP: kube-apiserver uses no DNS for webhooks")
	}
	if host == "" {
		return "", errors.New("got no clusterIP, want kube-apiserver to allocate one")
	}
	var ports []int32
	for _, p := range found.Spec.Ports {
		if p.Port == s.port {
			return net.JoinHostPort(host, strconv.Itoa(int(s.port))), nil
		}
		ports = append(ports, p.Port)
	}
	return "", fmt.Errorf("got ports %d, want port %d, which clientConfig names", ports, s.port)
}

// services returns the Services in the configurations, each once.
func services(configurations []*configuration) (all []service) {
	for _, c := range configurations {
		for _, e := range c.endpoints {
			s := service{e.service.namespace, e.service.name, 0} // RBAC does not know ports
			if s != (service{}) && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}
