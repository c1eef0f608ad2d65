// Package published makes a client of an API server that publishes OpenAPI documents. It is a package of its own, which
// only commands import, because Discovery has another type in newer releases.
package published

import (
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
)

// Client returns a client with these documents. A fake client has none.
func Client(c kubernetes.Interface, documents openapi.Client) kubernetes.Interface {
	return client{c, documents}
}

type client struct {
	kubernetes.Interface
	documents openapi.Client
}

// Discovery implements kubernetes.Interface.
func (c client) Discovery() discovery.DiscoveryInterface {
	return discovered{c.Interface.Discovery(), c.documents}
}

type discovered struct {
	discovery.DiscoveryInterface
	documents openapi.Client
}

// OpenAPIV3 implements discovery.DiscoveryInterface.
func (d discovered) OpenAPIV3() openapi.Client { return d.documents }
