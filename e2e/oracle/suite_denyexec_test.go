package oracle_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func denyExec(name string) suite {
	return suite{
		name: name, generate: (*generator).connection, denies: true, removed: "../.cache/kubernetes-v1.19",
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).podsToConnectTo}},
	}
}

// connection generates a request that connects to a Pod, which may not exist.
func (g *generator) connection() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	c := g.connect()
	c.Namespace = pick(g, "shop", "kube-system")
	return c
}

// podsToConnectTo generates a cluster with pods to connect to.
func (g *generator) podsToConnectTo() oracle.World {
	var world oracle.World
	for _, namespace := range []string{"shop", "kube-system"} {
		for _, name := range []string{"a", "from-url"} {
			if g.in(5) {
				continue
			}
			pod := g.aPod()
			pod.SetGroupVersionKind(podKind)
			pod.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name}
			pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC = g.in(6), g.in(6), g.in(6)
			for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for i := range containers {
					containers[i].SecurityContext = maybe(g, g.securityContext)
				}
			}
			world.Objects = append(world.Objects, pod)
		}
	}
	return world
}
