package cluster

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/schedulingv1alpha2"
)

// Kinds returns the kinds that the built-in plugins use.
func Kinds() []*Kind {
	return []*Kind{
		CSIDrivers.Kind,
		DeviceClasses.Kind,
		IngressClasses.Kind,
		LimitRanges.Kind,
		MutatingAdmissionPolicies.Kind,
		MutatingAdmissionPolicyBindings.Kind,
		MutatingWebhookConfigurations.Kind,
		Namespaces.Kind,
		Nodes.Kind,
		PersistentVolumeClaims.Kind,
		PersistentVolumes.Kind,
		PodGroups.Kind,
		Pods.Kind,
		PolicyExceptions.Kind,
		PriorityClasses.Kind,
		ResourceClaims.Kind,
		ResourceQuotas.Kind,
		RuntimeClasses.Kind,
		ServiceAccounts.Kind,
		Services.Kind,
		StorageClasses.Kind,
		SubjectAccessReviews.Kind,
		ValidatingAdmissionPolicies.Kind,
		ValidatingAdmissionPolicyBindings.Kind,
		ValidatingWebhookConfigurations.Kind,
		Workloads.Kind,
	}
}

// lastApplied is kubectl's copy of the whole object, which no plugin reads
// (k8s.io/api/core/v1 LastAppliedConfigAnnotation).
const lastApplied = corev1.LastAppliedConfigAnnotation

// trimMeta returns the metadata that identify an object and its version.
func trimMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:              meta.Name,
		Namespace:         meta.Namespace,
		UID:               meta.UID,
		ResourceVersion:   meta.ResourceVersion,
		DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// trimAnnotated is trimMeta with the annotations.
func trimAnnotated(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	delete(meta.Annotations, lastApplied)
	trimmed := trimMeta(meta)
	trimmed.Annotations = meta.Annotations
	return trimmed
}

// trimClass is trimAnnotated with creationTimestamp: of several default classes, the
// newest is used.
func trimClass(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	trimmed := trimAnnotated(meta)
	trimmed.CreationTimestamp = meta.CreationTimestamp
	return trimmed
}

// Namespaces are the namespaces, with all fields that expressions of policies can read
// in namespaceObject (k8s.io/apiserver pkg/admission/plugin/cel CreateNamespaceObject),
// except kubectl's copy of the object.
var Namespaces = Define(Definition{
	Version: "v1", Resource: "namespaces", Kind: "Namespace",
}, Type[*corev1.Namespace]{
	List: &corev1.NamespaceList{},
	Fields: []string{
		"metadata.annotations", "metadata.labels", "metadata.generateName", "metadata.generation", "metadata.deletionGracePeriodSeconds",
		"metadata.finalizers", "spec", "status",
	},
	SetDefaults: setDefaultsNamespace,
	Keep: func(n *corev1.Namespace) *corev1.Namespace {
		trimmed := &corev1.Namespace{ObjectMeta: trimAnnotated(&n.ObjectMeta), Spec: n.Spec, Status: n.Status}
		trimmed.GenerateName, trimmed.Generation, trimmed.Labels = n.GenerateName, n.Generation, n.Labels
		trimmed.CreationTimestamp, trimmed.DeletionGracePeriodSeconds = n.CreationTimestamp, n.DeletionGracePeriodSeconds
		trimmed.Finalizers = n.Finalizers
		return trimmed
	},
})

// setDefaultsNamespace sets the defaults of k8s.io/kubernetes pkg/apis/core/v1
// SetDefaults_Namespace and SetDefaults_NamespaceStatus.
func setDefaultsNamespace(n *corev1.Namespace) {
	if n.Labels == nil {
		n.Labels = make(map[string]string)
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
	if n.Status.Phase == "" {
		n.Status.Phase = corev1.NamespaceActive
	}
}

// StorageClasses are the storage classes, with annotations, creation time and
// allowVolumeExpansion.
var StorageClasses = Define(Definition{
	Group: storagev1.GroupName, Version: "v1", Resource: "storageclasses", Kind: "StorageClass",
}, Type[*storagev1.StorageClass]{
	List:   &storagev1.StorageClassList{},
	Fields: []string{"metadata.annotations", "allowVolumeExpansion"},
	Keep: func(c *storagev1.StorageClass) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: trimClass(&c.ObjectMeta), AllowVolumeExpansion: c.AllowVolumeExpansion}
	},
})

// IngressClasses are the ingress classes, with annotations and creation time.
var IngressClasses = Define(Definition{
	Group: networkingv1.GroupName, Version: "v1", Resource: "ingressclasses", Kind: "IngressClass",
}, Type[*networkingv1.IngressClass]{
	List:   &networkingv1.IngressClassList{},
	Fields: []string{"metadata.annotations"},
	Keep: func(c *networkingv1.IngressClass) *networkingv1.IngressClass {
		return &networkingv1.IngressClass{ObjectMeta: trimClass(&c.ObjectMeta)}
	},
})

// PriorityClasses are the priority classes, with all fields except the description.
var PriorityClasses = Define(Definition{
	Group: schedulingv1.GroupName, Version: "v1", Resource: "priorityclasses", Kind: "PriorityClass",
}, Type[*schedulingv1.PriorityClass]{
	List:   &schedulingv1.PriorityClassList{},
	Fields: []string{"metadata.annotations", "value", "globalDefault", "preemptionPolicy"},
	SetDefaults: func(c *schedulingv1.PriorityClass) { // pkg/apis/scheduling/v1 SetDefaults_PriorityClass
		if c.PreemptionPolicy == nil {
			c.PreemptionPolicy = new(corev1.PreemptLowerPriority)
		}
	},
	Keep: func(c *schedulingv1.PriorityClass) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{
			ObjectMeta: trimClass(&c.ObjectMeta), Value: c.Value, GlobalDefault: c.GlobalDefault, PreemptionPolicy: c.PreemptionPolicy,
		}
	},
})

// RuntimeClasses are the runtime classes, with overhead and scheduling.
var RuntimeClasses = Define(Definition{
	Group: nodev1.GroupName, Version: "v1", Resource: "runtimeclasses", Kind: "RuntimeClass",
}, Type[*nodev1.RuntimeClass]{
	List:   &nodev1.RuntimeClassList{},
	Fields: []string{"overhead", "scheduling"},
	Keep: func(c *nodev1.RuntimeClass) *nodev1.RuntimeClass {
		return &nodev1.RuntimeClass{ObjectMeta: trimMeta(&c.ObjectMeta), Overhead: c.Overhead, Scheduling: c.Scheduling}
	},
})

// LimitRanges are the LimitRanges, with their limits.
var LimitRanges = Define(Definition{
	Version: "v1", Resource: "limitranges", Kind: "LimitRange", Namespaced: true,
}, Type[*corev1.LimitRange]{
	List:   &corev1.LimitRangeList{},
	Fields: []string{"spec"},
	SetDefaults: func(r *corev1.LimitRange) {
		for i := range r.Spec.Limits {
			setDefaultsLimitRangeItem(&r.Spec.Limits[i])
		}
	},
	Keep: func(r *corev1.LimitRange) *corev1.LimitRange {
		return &corev1.LimitRange{ObjectMeta: trimMeta(&r.ObjectMeta), Spec: r.Spec}
	},
})

// setDefaultsLimitRangeItem sets the defaults of k8s.io/kubernetes pkg/apis/core/v1
// SetDefaults_LimitRangeItem and SetDefaults_ResourceList.
func setDefaultsLimitRangeItem(item *corev1.LimitRangeItem) {
	fill := func(into *corev1.ResourceList, from corev1.ResourceList) {
		if *into == nil {
			*into = make(corev1.ResourceList)
		}
		for name, quantity := range from {
			if _, ok := (*into)[name]; !ok {
				(*into)[name] = quantity.DeepCopy()
			}
		}
	}
	if item.Type == corev1.LimitTypeContainer {
		fill(&item.Default, item.Max)
		fill(&item.DefaultRequest, item.Default)
		fill(&item.DefaultRequest, item.Min)
	}
	for _, list := range []corev1.ResourceList{item.Max, item.Min, item.Default, item.DefaultRequest, item.MaxLimitRequestRatio} {
		for name, quantity := range list {
			quantity.RoundUp(resource.Milli)
			list[name] = quantity
		}
	}
}

// ResourceQuotas are the ResourceQuotas, with all fields except managedFields. A write
// of the status must contain the complete metadata, because kube-apiserver stores the
// metadata that it gets, except managedFields (k8s.io/kubernetes
// pkg/registry/core/resourcequota/strategy.go).
var ResourceQuotas = Define(Definition{
	Version: "v1", Resource: "resourcequotas", Kind: "ResourceQuota", Namespaced: true,
}, Type[*corev1.ResourceQuota]{
	List: &corev1.ResourceQuotaList{},
	Keep: func(q *corev1.ResourceQuota) *corev1.ResourceQuota {
		q.ManagedFields = nil
		return q
	},
})

// DeviceClasses are the device classes, with the name of their extended resource.
var DeviceClasses = Define(Definition{
	Group: resourcev1.GroupName, Version: "v1", Resource: "deviceclasses", Kind: "DeviceClass", Optional: true,
}, Type[*resourcev1.DeviceClass]{
	List:   &resourcev1.DeviceClassList{},
	Fields: []string{"spec.extendedResourceName"},
	Keep: func(c *resourcev1.DeviceClass) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{
			ObjectMeta: trimMeta(&c.ObjectMeta), Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: c.Spec.ExtendedResourceName},
		}
	},
})

// ResourceClaims are the resource claims, with their owners.
var ResourceClaims = Define(Definition{
	Group: resourcev1.GroupName, Version: "v1", Resource: "resourceclaims", Kind: "ResourceClaim", Namespaced: true,
}, Type[*resourcev1.ResourceClaim]{
	List:   &resourcev1.ResourceClaimList{},
	Fields: []string{"metadata.annotations", "metadata.ownerReferences"},
	Keep: func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
		trimmed := &resourcev1.ResourceClaim{ObjectMeta: trimClass(&c.ObjectMeta)}
		trimmed.OwnerReferences = c.OwnerReferences
		return trimmed
	},
})

// EnforceMountableSecretsAnnotation is the annotation of a service account whose pods
// may use only the secrets that the account names, if its value is "true"
// (k8s.io/kubernetes plugin/pkg/admission/serviceaccount).
const EnforceMountableSecretsAnnotation = "kubernetes.io/enforce-mountable-secrets"

// ServiceAccounts are the service accounts, with the names of their secrets, the
// annotation EnforceMountableSecretsAnnotation and automountServiceAccountToken.
var ServiceAccounts = Define(Definition{
	Version: "v1", Resource: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true,
}, Type[*corev1.ServiceAccount]{
	List:   &corev1.ServiceAccountList{},
	Fields: []string{"metadata.annotations", "secrets.name", "imagePullSecrets", "automountServiceAccountToken"},
	Keep: func(a *corev1.ServiceAccount) *corev1.ServiceAccount {
		trimmed := &corev1.ServiceAccount{
			ObjectMeta: trimMeta(&a.ObjectMeta), Secrets: a.Secrets, ImagePullSecrets: a.ImagePullSecrets,
			AutomountServiceAccountToken: a.AutomountServiceAccountToken,
		}
		if value, ok := a.Annotations[EnforceMountableSecretsAnnotation]; ok {
			trimmed.Annotations = map[string]string{EnforceMountableSecretsAnnotation: value}
		}
		return trimmed
	},
})

// Nodes are the nodes, with labels, declared features, and allocatable CPU and memory.
var Nodes = Define(Definition{
	Version: "v1", Resource: "nodes", Kind: "Node",
}, Type[*corev1.Node]{
	List:   &corev1.NodeList{},
	Fields: []string{"metadata.labels", "status.declaredFeatures", "status.allocatable"},
	Keep: func(n *corev1.Node) *corev1.Node {
		trimmed := &corev1.Node{ObjectMeta: trimMeta(&n.ObjectMeta)}
		trimmed.Labels = n.Labels
		trimmed.Status.DeclaredFeatures = n.Status.DeclaredFeatures
		for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if amount, ok := n.Status.Allocatable[name]; ok {
				if trimmed.Status.Allocatable == nil {
					trimmed.Status.Allocatable = make(corev1.ResourceList)
				}
				trimmed.Status.Allocatable[name] = amount
			}
		}
		return trimmed
	},
})

// Pods are the pods, with all fields. Use the kind only for requests (Called). A plugin
// that watches pods must define its own kind, with only the fields that it reads,
// because a cluster has many pods.
var Pods = Define(Definition{
	Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true,
}, Type[*corev1.Pod]{List: &corev1.PodList{}})

// PersistentVolumeClaims are the claims, with the name of their volume.
var PersistentVolumeClaims = Define(Definition{
	Version: "v1", Resource: "persistentvolumeclaims", Kind: "PersistentVolumeClaim", Namespaced: true,
}, Type[*corev1.PersistentVolumeClaim]{
	List:   &corev1.PersistentVolumeClaimList{},
	Fields: []string{"spec.volumeName"},
	Keep: func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: trimMeta(&c.ObjectMeta), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: c.Spec.VolumeName},
		}
	},
})

// PersistentVolumes are the volumes, with the name of their CSI driver. Volumes of an
// in-tree type that a CSI driver mounts have the fields from which Kubernetes derives
// the volume of the driver.
var PersistentVolumes = Define(Definition{
	Version: "v1", Resource: "persistentvolumes", Kind: "PersistentVolume",
}, Type[*corev1.PersistentVolume]{
	List:   &corev1.PersistentVolumeList{},
	Fields: []string{"metadata.labels", "spec"},
	Keep:   trimVolume,
})

// CSIDrivers are the CSI drivers, with their token requests.
var CSIDrivers = Define(Definition{
	Group: storagev1.GroupName, Version: "v1", Resource: "csidrivers", Kind: "CSIDriver",
}, Type[*storagev1.CSIDriver]{
	List:   &storagev1.CSIDriverList{},
	Fields: []string{"spec.tokenRequests"},
	Keep: func(d *storagev1.CSIDriver) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{
			ObjectMeta: trimMeta(&d.ObjectMeta), Spec: storagev1.CSIDriverSpec{TokenRequests: d.Spec.TokenRequests},
		}
	},
})

// PodGroups are the pod groups, with their owners and scheduling policy. API servers
// serve them only with the feature gate GenericWorkload.
var PodGroups = Define(Definition{
	Group: schedulingv1alpha2.SchemeGroupVersion.Group, Version: "v1alpha2", Resource: "podgroups", Kind: "PodGroup", Namespaced: true, Optional: true,
}, Type[*schedulingv1alpha2.PodGroup]{
	Fields: []string{"metadata.ownerReferences", "spec.schedulingPolicy"},
	Keep: func(g *schedulingv1alpha2.PodGroup) *schedulingv1alpha2.PodGroup {
		trimmed := &schedulingv1alpha2.PodGroup{ObjectMeta: trimMeta(&g.ObjectMeta)}
		trimmed.OwnerReferences = g.OwnerReferences
		trimmed.Spec.SchedulingPolicy = g.Spec.SchedulingPolicy
		return trimmed
	},
})

// Workloads are the workloads, with the names of their pod group templates. API servers
// that serve PodGroups also serve Workloads.
var Workloads = Define(Definition{
	Group: schedulingv1alpha2.SchemeGroupVersion.Group, Version: "v1alpha2", Resource: "workloads", Kind: "Workload", Namespaced: true, Optional: true,
}, Type[*schedulingv1alpha2.Workload]{
	Fields: []string{"spec.podGroupTemplates.name"},
	Keep: func(w *schedulingv1alpha2.Workload) *schedulingv1alpha2.Workload {
		trimmed := &schedulingv1alpha2.Workload{ObjectMeta: trimMeta(&w.ObjectMeta)}
		for i := range w.Spec.PodGroupTemplates {
			trimmed.Spec.PodGroupTemplates = append(trimmed.Spec.PodGroupTemplates,
				schedulingv1alpha2.PodGroupTemplate{Name: w.Spec.PodGroupTemplates[i].Name})
		}
		return trimmed
	},
})

// SubjectAccessReviews ask the API server whether a user has a permission. A plugin
// creates one; the answer is in the status of the returned object.
var SubjectAccessReviews = Define(Definition{
	Group: authorizationv1.GroupName, Version: "v1", Resource: "subjectaccessreviews", Kind: "SubjectAccessReview", NotStored: true,
}, Type[*authorizationv1.SubjectAccessReview]{})
