package oracle_test

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
)

// resources requests names that are extended resources, or nearly.
func (g *generator) resources() corev1.ResourceRequirements {
	list := func() corev1.ResourceList {
		if g.in(2) {
			return nil
		}
		list := make(corev1.ResourceList)
		for range g.IntN(4) {
			list[corev1.ResourceName(g.resourceName())] = *resource.NewQuantity(int64(g.IntN(2)), resource.DecimalSI)
		}
		return list
	}
	return corev1.ResourceRequirements{Requests: list(), Limits: list()}
}

func (g *generator) resourceName() string {
	switch g.IntN(4) {
	case 0:
		return pick(g, "cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "attachable-volumes-x", "gpu", "")
	case 1:
		return pick(g, "example.com/gpu", "example.com/nic", "a/b", "example.com/A_b.c-d", "x.y.z/0")
	case 2:
		return pick(g, "kubernetes.io/gpu", "requests.example.com/gpu", "requests.x/y", "sub.kubernetes.io/x",
			"xkubernetes.io/gpu", "example.com/kubernetes.io/gpu", "requests.", "/", "/x", "x/", "a/b/c", "-a/b", "a-/b", "a..b/c",
			".a/b", "a./b", "A/b", "a_b/c", "a/-b", "a/b-", "a/_", "é/x", "a/é", "a b/c", "a/b\n", `a/"`)
	}
	// Lengths around the maximum, with the prefix of quotas and without.
	return strings.Repeat("d", 240+g.IntN(16)) + "/" + strings.Repeat("n", 61+g.IntN(4))
}

// other generates a request that is not a write of a Pod.
func (g *generator) other() *oracle.Case {
	switch g.IntN(8) {
	case 0:
		return g.connect()
	case 1, 2:
		return g.delete()
	}
	w := pick(g, g.writables()...)
	c := g.request(g.writes(), w.kind, w.resource)
	c.Subresource = w.subresource
	if w.createOnly {
		c = g.request(admission.Create, w.kind, w.resource)
		c.Subresource = w.subresource
	}
	return g.write(c, w.object(), w.object)
}

func (g *generator) delete() *oracle.Case {
	w := pick(g, g.writables()...)
	c := g.request(admission.Delete, w.kind, w.resource)
	c.OldObject = w.object()
	c.OldObject.GetObjectKind().SetGroupVersionKind(c.Kind)
	c.Name = pick(g, "", "a", "from-url")
	return c
}

func (g *generator) connect() *oracle.Case {
	c := g.request(admission.Connect, schema.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, pods)
	c.Subresource = "exec"
	c.Object = &corev1.PodExecOptions{Command: some(g, 2, g.word), Container: g.word()}
	switch g.IntN(3) {
	case 0:
		c.Kind.Kind, c.Subresource, c.Object = "PodAttachOptions", "attach", &corev1.PodAttachOptions{TTY: g.in(2)}
	case 1:
		c.Kind.Kind, c.Subresource, c.Object = "ServiceProxyOptions", "proxy", &corev1.ServiceProxyOptions{Path: g.word()}
		c.Resource = services
	}
	c.Object.GetObjectKind().SetGroupVersionKind(c.Kind)
	c.Name = pick(g, "a", "from-url") // from the URL, so it is always set
	return c
}

// A writable is a kind of object, and the resource to which it is written.
type writable struct {
	kind        schema.GroupVersionKind
	resource    schema.GroupVersionResource
	subresource string
	createOnly  bool
	object      func() runtime.Object
}

// at describes the resource in short
func at(where string, object func() runtime.Object) writable {
	fields := strings.Fields(where)
	gv, err := schema.ParseGroupVersion(fields[0])
	if err != nil {
		panic(err)
	}
	name, sub, _ := strings.Cut(fields[2], "/")
	return writable{
		kind: gv.WithKind(fields[1]), resource: gv.WithResource(name), subresource: sub, object: object,
	}
}

func (w writable) created() writable { w.createOnly = true; return w }

func (g *generator) writables() []writable {
	return []writable{
		at("v1 ConfigMap configmaps", func() runtime.Object {
			return &corev1.ConfigMap{ObjectMeta: g.metadata(), Data: map[string]string{"k": g.word()}}
		}),
		at("apps/v1 Deployment deployments", func() runtime.Object {
			return &appsv1.Deployment{ObjectMeta: g.metadata(),
				Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: g.aPod().Spec}}}
		}),
		// The internal scheme of the API server has this kind only under the resource that
		// it is written to.
		at("autoscaling/v1 Scale deployments/scale", func() runtime.Object {
			return &autoscalingv1.Scale{ObjectMeta: g.metadata()}
		}),
		at("v1 Service services/status", func() runtime.Object { return g.aService() }),
		at("v1 Service services", func() runtime.Object { return g.aService() }),
		at("v1 Namespace namespaces", func() runtime.Object { return &corev1.Namespace{ObjectMeta: g.metadata()} }),
		at("v1 PersistentVolume persistentvolumes", func() runtime.Object {
			return &corev1.PersistentVolume{ObjectMeta: g.metadata()}
		}),
		at("v1 PersistentVolumeClaim persistentvolumeclaims", func() runtime.Object {
			return &corev1.PersistentVolumeClaim{ObjectMeta: g.metadata()}
		}),
		at("rbac.authorization.k8s.io/v1 ClusterRole clusterroles", func() runtime.Object {
			return &rbacv1.ClusterRole{ObjectMeta: g.metadata()}
		}),
		at("admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy validatingadmissionpolicies", func() runtime.Object {
			return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: g.metadata()}
		}),
		at("example.com/v1 Pod pods", func() runtime.Object { return g.custom() }),
		at("v1 Binding pods/binding", func() runtime.Object { return &corev1.Binding{ObjectMeta: g.metadata()} }).created(),
		at("policy/v1 Eviction pods/eviction", func() runtime.Object {
			return &policyv1.Eviction{ObjectMeta: g.metadata()}
		}).created(),
		at("authentication.k8s.io/v1 TokenRequest serviceaccounts/token", func() runtime.Object {
			return &authenticationv1.TokenRequest{}
		}).created(),
		at("authorization.k8s.io/v1 SelfSubjectAccessReview selfsubjectaccessreviews", func() runtime.Object {
			return &authorizationv1.SelfSubjectAccessReview{}
		}).created(),
	}
}

// custom returns a custom resource with the name of Pods in another group.
func (g *generator) custom() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"containers":  []any{map[string]any{"image": g.word()}},
			"tolerations": g.word(),
			"externalIPs": []any{g.word()},
		},
	}}
	m := g.metadata()
	// An API server sets managed fields before admission, so metadata always exist. The
	// labels replace them.
	u.SetLabels(map[string]string{"app": g.word()})
	u.SetName(m.Name)
	u.SetGenerateName(m.GenerateName)
	u.SetFinalizers(m.Finalizers)
	return u
}

func (g *generator) aService() *corev1.Service {
	ip := func() string {
		return pick(g, "", "1.1.1.1", "2.2.2.2", "3.3.3.3", "1.1.1.1 ", "::1", "0:0::1", `"`)
	}
	s := &corev1.Service{ObjectMeta: g.metadata(), Spec: corev1.ServiceSpec{
		ExternalIPs: some(g, 3, ip),
		Type:        pick(g, "", corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName),
	}}
	if g.in(8) {
		s.Spec.ExternalIPs = []string{}
	}
	return s
}

func (g *generator) service() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	c := g.request(g.writes(), schema.GroupVersionKind{Version: "v1", Kind: "Service"}, services)
	service := g.aService()
	return g.write(c, service, func() runtime.Object {
		if g.in(2) {
			return g.aService()
		}
		old := service.DeepCopy()
		g.Shuffle(len(old.Spec.ExternalIPs), func(i, j int) {
			ips := old.Spec.ExternalIPs
			ips[i], ips[j] = ips[j], ips[i]
		})
		return old
	})
}

// storage generates a request for the objects that StorageObjectInUseProtection protects.
func (g *generator) storage() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	vac := func() runtime.Object { return &storagev1.VolumeAttributesClass{ObjectMeta: g.metadata()} }
	w := pick(g,
		at("v1 PersistentVolume persistentvolumes", func() runtime.Object {
			return &corev1.PersistentVolume{ObjectMeta: g.metadata()}
		}),
		at("v1 PersistentVolumeClaim persistentvolumeclaims", func() runtime.Object {
			return &corev1.PersistentVolumeClaim{ObjectMeta: g.metadata()}
		}),
		at("storage.k8s.io/v1 VolumeAttributesClass volumeattributesclasses", vac),
		at("storage.k8s.io/v1beta1 VolumeAttributesClass volumeattributesclasses", func() runtime.Object {
			return &storagev1beta1.VolumeAttributesClass{ObjectMeta: g.metadata()}
		}),
	)
	operation := admission.Create
	if g.in(4) {
		operation = admission.Update
	}
	c := g.request(operation, w.kind, w.resource)
	if w.kind.Version == "v1beta1" {
		c.AsKind, c.AsResource = w.kind, w.resource
		c.AsKind.Version, c.AsResource.Version = "v1", "v1"
	} else if w.kind.Group == "" && g.in(8) {
		c.Subresource = "status"
	}
	return g.write(c, w.object(), w.object)
}

// event generates a request for Events. Each part of a key names its place, so that two keys never
// have the same text.
func (g *generator) event() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	core := schema.GroupVersionKind{Version: "v1", Kind: "Event"}
	resource := core.GroupVersion().WithResource("events")
	of := func(kind string) string {
		if g.in(8) {
			return pick(g, "", kind+"2;")
		}
		return kind + "1;"
	}
	event := func() runtime.Object {
		return &corev1.Event{ObjectMeta: g.metadata(),
			Source: corev1.EventSource{Component: of("c"), Host: of("h")},
			InvolvedObject: corev1.ObjectReference{Kind: of("k"), Namespace: of("ns"), Name: of("n" + strings.Repeat("x", 400*g.IntN(2))),
				UID: "u", APIVersion: of("v")}}
	}
	if !g.in(6) {
		return g.write(g.request(g.writes(), core, resource), event(), event)
	}
	// Created as events.k8s.io, sent in the core group.
	c := g.request(g.writes(), eventsv1.SchemeGroupVersion.WithKind("Event"), eventsv1.SchemeGroupVersion.WithResource("events"))
	c.AsKind, c.AsResource = core, resource
	other := func() runtime.Object {
		return &eventsv1.Event{ObjectMeta: g.metadata(), DeprecatedSource: corev1.EventSource{Component: of("c")}}
	}
	return g.write(c, other(), other)
}
