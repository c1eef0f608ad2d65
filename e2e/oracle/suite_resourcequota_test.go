package oracle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

// quotaVariants are configurations, each in worlds with quotas.
func quotaVariants() []variant {
	var all []variant
	for _, limited := range []string{
		// The configuration of the tables.
		`{"resource":"services","matchContains":["services.loadbalancers"]},
		 {"resource":"pods","matchScopes":[{"scopeName":"PriorityClass","operator":"In","values":["system-cluster-critical"]}]}`,
		``,
		`{"resource":"pods","matchContains":["cpu","nvidia"]},{"resource":"persistentvolumeclaims","matchContains":["gold"]},` +
			`{"resource":"configmaps","matchContains":["count/"]}`,
		`{"resource":"pods","matchScopes":[{"scopeName":"PriorityClass","operator":"In","values":["high"]},{"scopeName":"BestEffort"},
		  {"scopeName":"CrossNamespacePodAffinity"}]},
		 {"apiGroup":"resource.k8s.io","resource":"resourceclaims","matchContains":["devices"]}`,
		`{"resource":"pods","matchScopes":[{"scopeName":"PriorityClass","operator":"Odd"}]}`,
		`{"resource":"persistentvolumeclaims","matchContains":["storage"],"matchScopes":[{"scopeName":"VolumeAttributesClass",` +
			`"operator":"Exists"}]}`,
	} {
		all = append(all, variant{
			about: limited,
			config: `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[` + limited +
				`]}`,
			options: handlers.DefaultOptions(),
			world:   quotaWorld,
		})
	}
	return all
}

var quotaNamespaces = []string{"shop", "kube-system"}

// quotaWorld generates quotas that most requests fit into for some time, device classes, and
// pods with claims.
func quotaWorld(g *generator) oracle.World {
	var world oracle.World
	for i, name := range []string{"gpu", "nic", "plain"} {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if g.in(2) && name != "plain" {
			class.Spec.ExtendedResourceName = new([]string{"nvidia.com/gpu", "example.com/nic"}[i])
		}
		world.Objects = append(world.Objects, class)
	}
	for _, namespace := range quotaNamespaces {
		for i := range 3 {
			p := g.quotaPod()
			p.Namespace, p.Name, p.UID = namespace, fmt.Sprintf("pod-%d", i), types.UID(fmt.Sprint("uid-", i))
			if g.in(2) {
				p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: g.claimName()}
			}
			world.Objects = append(world.Objects, p)
		}
		for i := range 2 {
			c := &resourcev1.ResourceClaim{ObjectMeta: g.claimMetadata(namespace)}
			c.Name = fmt.Sprintf("claim-%d", i)
			world.Objects = append(world.Objects, c)
		}
		for i := range 1 + g.IntN(3) {
			world.Objects = append(world.Objects, g.aQuota(namespace, fmt.Sprintf("quota-%d", i)))
		}
	}
	return world
}

// quotaNames are names in quotas.
var quotaNames = []corev1.ResourceName{
	"pods", "count/pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory",
	"ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage", "hugepages-2Mi", "requests.hugepages-2Mi",
	"requests.nvidia.com/gpu", "requests.example.com/nic", "requests.deviceclass.resource.kubernetes.io/gpu",
	"requests.deviceclass.resource.kubernetes.io/nic", "requests.hugepages-x.example.com/y", "nvidia.com/gpu",
	"services", "count/services", "services.nodeports", "services.loadbalancers",
	"persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage",
	"gold.storageclass.storage.k8s.io/requests.storage", "gold.storageclass.storage.k8s.io/persistentvolumeclaims",
	"count/resourceclaims.resource.k8s.io", "gpu.deviceclass.resource.k8s.io/devices", "plain.deviceclass.resource.k8s.io/devices",
	"configmaps", "count/configmaps", "secrets", "count/secrets", "count/deployments.apps", "count/pods.example.com",
	"replicationcontrollers", "resourcequotas", "count/leases.coordination.k8s.io", "count/events",
}

func (g *generator) aQuota(namespace, name string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid of " + name),
			Labels: map[string]string{"a": "b"}},
		Status: corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{}, Used: corev1.ResourceList{}},
	}
	of := slices.Clone(quotaNames)
	if !g.in(3) { // few names, so that most requests are allowed
		g.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		of = of[:1+g.IntN(6)]
	}
	for _, name := range of {
		if g.in(4) {
			continue
		}
		q.Status.Hard[name] = resource.MustParse(pick(g, "0", "1", "5", "20", "200", "20k", "2G", "1Gi", "64Gi", "64Gi", "1500m", "1Ti"))
		if !g.in(150) { // otherwise the usage is not known
			q.Status.Used[name] = resource.MustParse(pick(g, "0", "0", "1", "100m", "1Ki", "3"))
		}
	}
	q.Spec.Hard = q.Status.Hard
	if g.in(4) {
		q.Spec.Scopes = append(q.Spec.Scopes, pick(g, corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
			corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass,
			corev1.ResourceQuotaScopeCrossNamespacePodAffinity, corev1.ResourceQuotaScopeVolumeAttributesClass))
	}
	if g.in(4) {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: some(g, 2, g.scope)}
	}
	return q
}

func (g *generator) scope() corev1.ScopedResourceSelectorRequirement {
	r := corev1.ScopedResourceSelectorRequirement{
		ScopeName: pick(g, corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass),
		Operator: pick(g, corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn, corev1.ScopeSelectorOpExists,
			corev1.ScopeSelectorOpDoesNotExist),
	}
	if r.Operator == corev1.ScopeSelectorOpIn || r.Operator == corev1.ScopeSelectorOpNotIn {
		r.Values = pick(g, []string{"high"}, []string{"high", "silver"}, []string{"low"})
	}
	if g.in(30) {
		r.Values = []string{"no label!"}
	}
	if g.in(8) {
		r = corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeTerminating,
			Operator: corev1.ScopeSelectorOpExists}
	}
	return r
}

// quota generates a request that quotas may count.
func (g *generator) quota() *oracle.Case {
	if g.in(20) {
		c := g.other()
		c.Unordered = true
		return c
	}
	w := pick(g, g.quotable()...)
	operation := admission.Create
	if g.in(4) {
		operation = admission.Update
	}
	if w.subresource != "" && !w.createOnly {
		operation = admission.Update
	}
	c := g.request(operation, w.kind, w.resource)
	c.Subresource, c.Unordered = w.subresource, true
	c.Namespace = pick(g, append(quotaNamespaces, "shop", "empty")...)
	c = g.write(c, w.object(), w.object)
	for _, object := range []runtime.Object{c.Object, c.OldObject} {
		if m, ok := object.(metav1.Object); ok {
			m.SetNamespace(c.Namespace) // as an API server does
		}
	}
	if old, ok := c.OldObject.(metav1.Object); ok && !g.in(10) {
		old.SetResourceVersion("7")
	}
	return c
}

func (g *generator) quotable() []writable {
	pod := func() runtime.Object { return g.quotaPod() }
	volume := func() runtime.Object { return g.quotaVolume() }
	service := func() runtime.Object { return g.quotaService() }
	return []writable{
		at("v1 Pod pods", pod), at("v1 Pod pods", pod), at("v1 Pod pods", pod), at("v1 Pod pods", pod), at("v1 Pod pods", pod),
		at("v1 Pod pods/resize", pod), at("v1 Pod pods/status", pod),
		at("v1 Service services", service), at("v1 Service services", service), at("v1 Service services/status", service),
		at("v1 PersistentVolumeClaim persistentvolumeclaims", volume), at("v1 PersistentVolumeClaim persistentvolumeclaims", volume),
		at("v1 PersistentVolumeClaim persistentvolumeclaims/status", volume),
		at("resource.k8s.io/v1 ResourceClaim resourceclaims", func() runtime.Object { return g.quotaClaim() }),
		at("resource.k8s.io/v1 ResourceClaim resourceclaims", func() runtime.Object { return g.quotaClaim() }),
		at("resource.k8s.io/v1 ResourceClaim resourceclaims/status", func() runtime.Object { return g.quotaClaim() }),
		at("resource.k8s.io/v1beta1 ResourceClaim resourceclaims", func() runtime.Object { return g.oldClaim() }),
		at("v1 ConfigMap configmaps", func() runtime.Object { return &corev1.ConfigMap{ObjectMeta: g.metadata()} }),
		at("v1 Secret secrets", func() runtime.Object { return &corev1.Secret{ObjectMeta: g.metadata()} }),
		at("v1 ResourceQuota resourcequotas", func() runtime.Object { return &corev1.ResourceQuota{ObjectMeta: g.metadata()} }),
		at("v1 ReplicationController replicationcontrollers", func() runtime.Object {
			return &corev1.ReplicationController{ObjectMeta: g.metadata(), Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(1))}}
		}),
		at("coordination.k8s.io/v1 Lease leases", func() runtime.Object { return &coordinationv1.Lease{ObjectMeta: g.metadata()} }),
		at("v1 Event events", func() runtime.Object { return &corev1.Event{ObjectMeta: g.metadata()} }),
		at("events.k8s.io/v1 Event events", func() runtime.Object { return &eventsv1.Event{ObjectMeta: g.metadata()} }),
		at("example.com/v1 Pod pods", func() runtime.Object { return g.custom() }),
	}
}

// quantities generates requests or limits in the canonical form of an API server.
func (g *generator) quantities() corev1.ResourceList {
	if g.in(4) {
		return nil
	}
	list := make(corev1.ResourceList)
	for _, name := range []corev1.ResourceName{"cpu", "memory"} {
		if !g.in(5) {
			list[name] = resource.MustParse(pick(g, "0", "100m", "250m", "1", "2", "1Ki", "64Mi", "1G", "1500m"))
		}
	}
	if g.in(3) {
		name := pick[corev1.ResourceName](g, "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "example.com/nic",
			"deviceclass.resource.kubernetes.io/gpu", "requests.example.com/x", "odd", "a b/c", "x.kubernetes.io/y",
			"hugepages-x.example.com/y")
		list[name] = resource.MustParse(pick(g, "1", "2", "4Mi"))
	}
	if g.in(60) {
		list["cpu"] = resource.MustParse("-1")
	}
	return list
}

func (g *generator) quotaResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: g.quantities(), Limits: g.quantities()}
}

func (g *generator) quotaContainer() corev1.Container {
	return corev1.Container{Name: pick(g, "a", "b", "c", "é"), Image: "i", Resources: g.quotaResources()}
}

func (g *generator) quotaStatus() corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: pick(g, "a", "b", "c")}
	if !g.in(3) {
		s.Resources = new(g.quotaResources())
		s.AllocatedResources = g.quantities()
	}
	return s
}

func (g *generator) quotaPod() *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: g.metadata()}
	spec := &p.Spec
	spec.Containers = append(some(g, 2, g.quotaContainer), g.quotaContainer())
	if g.in(3) {
		spec.InitContainers = some(g, 3, func() corev1.Container {
			c := g.quotaContainer()
			if g.in(2) {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			return c
		})
	}
	if g.in(8) {
		spec.Resources = new(g.quotaResources())
	}
	if g.in(8) {
		spec.Overhead = g.quantities()
	}
	if g.in(4) {
		spec.ActiveDeadlineSeconds = new(pick[int64](g, 0, 30, -1))
	}
	spec.PriorityClassName = pick(g, "", "", "high", "low", "no label!")
	if g.in(4) {
		spec.Affinity = new(g.affinity())
		if terms := spec.Affinity.PodAntiAffinity; terms != nil && len(terms.RequiredDuringSchedulingIgnoredDuringExecution) > 0 &&
			g.in(2) {
			terms.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector = &metav1.LabelSelector{}
		} else if terms != nil && len(terms.PreferredDuringSchedulingIgnoredDuringExecution) > 0 && g.in(2) {
			terms.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.Namespaces = []string{"x"}
		} else if terms := spec.Affinity.PodAffinity; terms != nil && len(terms.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
			terms.RequiredDuringSchedulingIgnoredDuringExecution[0].Namespaces = pick(g, []string{}, []string{"x"})
		}
	}
	p.Status.Phase = pick(g, "", corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed,
		corev1.PodSucceeded)
	p.Status.QOSClass = pick(g, "", "", "", corev1.PodQOSBestEffort, corev1.PodQOSGuaranteed)
	if g.in(4) {
		p.Status.ContainerStatuses = some(g, 3, g.quotaStatus)
		p.Status.InitContainerStatuses = some(g, 2, g.quotaStatus)
		p.Status.Conditions = some(g, 2, func() corev1.PodCondition {
			return corev1.PodCondition{Type: pick(g, corev1.PodReady, corev1.PodResizePending),
				Reason: pick(g, corev1.PodReasonInfeasible, corev1.PodReasonDeferred)}
		})
	}
	if g.in(8) {
		p.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(pick(g, -time.Hour, time.Hour)).Truncate(time.Second)))
		p.DeletionGracePeriodSeconds = new(pick[int64](g, 0, 30, 7200+60))
	}
	return p
}

func (g *generator) quotaService() *corev1.Service {
	s := &corev1.Service{ObjectMeta: g.metadata(), Spec: corev1.ServiceSpec{
		Type: pick(g, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer,
			corev1.ServiceTypeExternalName),
	}}
	for i := range g.IntN(4) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: 80, NodePort: pick[int32](g, 0, 30000)})
	}
	if g.in(2) {
		s.Spec.AllocateLoadBalancerNodePorts = new(g.in(2))
	}
	return s
}

func (g *generator) quotaVolume() *corev1.PersistentVolumeClaim {
	size := func() corev1.ResourceList {
		return pick(g, nil, corev1.ResourceList{"storage": resource.MustParse(pick(g, "1Gi", "10", "1500m", "1G", "100Mi", "0"))})
	}
	class := func() *string { return maybe(g, func() string { return pick(g, "", "silver", "high") }) }
	c := &corev1.PersistentVolumeClaim{ObjectMeta: g.metadata(), Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName:          maybe(g, func() string { return pick(g, "", "gold", "bronze") }),
		Resources:                 corev1.VolumeResourceRequirements{Requests: size()},
		VolumeAttributesClassName: class(),
	}}
	if g.in(6) {
		c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: pick(g, "", "gold", "x")}
	}
	c.Status.AllocatedResources = size()
	c.Status.CurrentVolumeAttributesClassName = class()
	if g.in(4) {
		c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: pick(g, "", "silver", "x")}
	}
	return c
}

func (g *generator) claimName() string { return pick(g, "claim-0", "claim-1", "claim-2") }

// claimMetadata generates the metadata of a claim for a pod, or similar ones.
func (g *generator) claimMetadata(namespace string) metav1.ObjectMeta {
	i := pick(g, 0, 0, 0, 1, 2, 3) // pod-3 does not exist
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("uid-", i)),
		Controller: new(true)}
	m := metav1.ObjectMeta{
		Namespace: namespace, Name: g.claimName(),
		CreationTimestamp: metav1.Unix(int64(1e9+g.IntN(2)), 0),
		Annotations:       map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
	}
	switch g.IntN(12) {
	case 0:
		m.Annotations[resourcev1.ExtendedResourceClaimAnnotation] = "false"
	case 1:
		owner.APIVersion = "v2"
	case 2:
		owner.Kind = "Job"
	case 3:
		owner.UID = "uid-0"
	case 4:
		owner.Controller = pick(g, nil, new(false))
	}
	m.OwnerReferences = []metav1.OwnerReference{owner}
	if g.in(4) {
		m.OwnerReferences = slices.Insert(m.OwnerReferences, 0, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "other"})
	}
	return m
}

func (g *generator) quotaClaim() *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: g.metadata()}
	if g.in(2) {
		c.ObjectMeta = g.claimMetadata("")
	}
	mode := func() resourcev1.DeviceAllocationMode {
		return pick(g, resourcev1.DeviceAllocationModeExactCount, resourcev1.DeviceAllocationModeExactCount,
			resourcev1.DeviceAllocationModeAll, "Later")
	}
	class := func() string { return pick(g, "gpu", "nic", "plain", "unknown", "") }
	for i := range g.IntN(3) {
		r := resourcev1.DeviceRequest{Name: fmt.Sprint("r", i)}
		if g.in(3) {
			r.FirstAvailable = some(g, 3, func() resourcev1.DeviceSubRequest {
				return resourcev1.DeviceSubRequest{Name: "s", DeviceClassName: class(), AllocationMode: mode(), Count: int64(g.IntN(4))}
			})
		} else if !g.in(10) {
			r.Exactly = &resourcev1.ExactDeviceRequest{DeviceClassName: class(), AllocationMode: mode(), Count: int64(g.IntN(4))}
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, r)
	}
	return c
}

func (g *generator) oldClaim() *resourcev1beta1.ResourceClaim {
	c := &resourcev1beta1.ResourceClaim{ObjectMeta: g.metadata()}
	for i := range g.IntN(3) {
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourcev1beta1.DeviceRequest{
			Name: fmt.Sprint("r", i), DeviceClassName: pick(g, "gpu", "plain"), Count: int64(g.IntN(3)),
			AllocationMode: pick(g, resourcev1beta1.DeviceAllocationModeExactCount, resourcev1beta1.DeviceAllocationModeAll),
		})
	}
	return c
}

// TestQuotaConfigurations compares which configurations both sides accept.
func TestQuotaConfigurations(t *testing.T) {
	row := tally.Row{Plugin: "ResourceQuota", Test: "configurations"}
	f := accepts(t, &row)
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\n"
	const old = "apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration\n"
	for _, config := range []string{
		"", "rubbish", "{}", "[]", "null", "# nothing\n", head, old,
		"apiVersion: resourcequota.admission.k8s.io/v1alpha1\nkind: Configuration\n",
		"apiVersion: resourcequota.admission.k8s.io/v1\nkind: Configuration\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: Configuration\n",
		"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: ResourceQuotaConfiguration\n",
		"kind: ResourceQuotaConfiguration\n", "apiVersion: apiserver.config.k8s.io/v1\n",
		head + "limitedResources: null", head + "limitedResources: []", head + "limitedResources: {}", head + "limitedResources: [null]",
		head + "limitedResources: [{}]", head + "limitedResources: [{resource: pods}]", head + "limitedResources: [{apiGroup: apps}]",
		head + "limitedResources: [{resource: ''}, {resource: pods}]", head + "limitedResources: [{resource: pods, matchContains: [cpu]}]",
		head + "limitedResources: [{resource: pods, matchContains: cpu}]", head + "limitedResources: [{resource: 1}]",
		head + "limitedResources: [{resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [a]}]}]",
		head + "limitedResources: [{resource: pods, matchScopes: [{scopeName: Odd, operator: Odd}]}]",
		head + "limitedResources: [{resource: pods, matchScopes: [{scope: PriorityClass}]}]",
		head + "limitedResource: []", head + "limitedResources: []\nlimitedResources: []", head + "LimitedResources: []",
		head + "limitedResources: [{resource: pods, resource: pods}]", head + "metadata: {}",
		old + "limitedResources: [{resource: pods, matchContains: [cpu]}]", old + "limitedResources: [{matchContains: [cpu]}]",
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[{"resource":"pods"}]}`,
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[{"resource":"pods"}]} x`,
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedresources":[]}`,
	} {
		f(config, "")
	}
	mustWrite(t, row)
}
