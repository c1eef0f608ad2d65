package oracle_test

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

// namespacesMax is the number of namespaces in requests, so large that requests in missing namespaces
// occur throughout a world.
const namespacesMax = 40

// somewhere generates a request of any kind, in one of many namespaces.
func (g *generator) somewhere() *oracle.Case {
	c := g.other()
	if g.in(2) {
		c = g.pod()
	}
	switch {
	case g.in(8):
		w := at("authorization.k8s.io/v1 LocalSubjectAccessReview localsubjectaccessreviews",
			func() runtime.Object { return &authorizationv1.LocalSubjectAccessReview{} })
		c = g.write(g.request(admission.Create, w.kind, w.resource), w.object(), w.object)
	case g.in(6):
		c = g.aboutNamespace()
		return c
	}
	if !g.in(8) {
		c.Namespace = fmt.Sprint("ns-", g.IntN(namespacesMax))
	}
	return c
}

// aboutNamespace generates a request about a namespace. As in an API server, its namespace
// is its name.
func (g *generator) aboutNamespace() *oracle.Case {
	w := at(pick(g, "v1 Namespace namespaces", "v1 Namespace namespaces", "v1 Namespace namespaces/status",
		"v1 Namespace namespaces/finalize"),
		func() runtime.Object { return &corev1.Namespace{ObjectMeta: g.metadata()} })
	c := g.request(pick(g, admission.Create, admission.Update, admission.Delete, admission.Delete), w.kind, w.resource)
	c.Subresource = w.subresource
	if c.Operation == admission.Delete {
		c.Subresource = ""
		c.OldObject = w.object()
		c.OldObject.GetObjectKind().SetGroupVersionKind(c.Kind)
	} else {
		c = g.write(c, w.object(), w.object)
	}
	c.Name = pick(g, "", "default", "kube-system", "kube-public", "kube-node-lease", "ns-0", "ns-1", "ns-2")
	c.Namespace = c.Name
	return c
}

// phasesWorld generates half of the namespaces, some of them terminating.
func phasesWorld(g *generator) oracle.World {
	var world oracle.World
	for i := range namespacesMax {
		if g.in(2) {
			continue
		}
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ns-", i)}}
		n.Status.Phase = pick(g, corev1.NamespaceActive, corev1.NamespaceActive, corev1.NamespaceTerminating, "")
		world.Objects = append(world.Objects, n)
	}
	return world
}

func phasesVariants() []variant {
	return []variant{{options: handlers.DefaultOptions(), world: phasesWorld}}
}
