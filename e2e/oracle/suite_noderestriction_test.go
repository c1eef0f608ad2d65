package oracle_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/features"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

func nodeRestriction() suite {
	return suite{
		name: "NodeRestriction", generate: (*generator).ofNode, denies: true,
		// Without the gate, no API server serves the resource, and in-tree denies all
		// requests.
		gate:     features.PodCertificateRequest,
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).nodesWorld}},
	}
}

// nodesWorld generates one or two nodes, with pods of every kind on them.
func (g *generator) nodesWorld() oracle.World {
	world := oracle.World{Authorizer: authorizer.AuthorizerFunc(authorizeSome)}
	add := func(object runtime.Object) { world.Objects = append(world.Objects, object) }
	for _, name := range []string{"n1", "n2"} {
		if !g.in(8) {
			add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: pick(g, "u1", "u1", "u1", g.uid())}})
		}
	}
	for _, namespace := range []string{"shop", "kube-system"} {
		for _, name := range []string{"a", "b", "c"} {
			meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: g.uid()}
			if !g.in(4) {
				add(&corev1.ServiceAccount{ObjectMeta: meta})
			}
			if !g.in(4) {
				add(&corev1.PersistentVolumeClaim{ObjectMeta: meta,
					Spec: corev1.PersistentVolumeClaimSpec{VolumeName: pick(g, "", "a", "b", "c", "d")}})
			}
			if !g.in(4) {
				add(g.podOfNode(meta))
			}
		}
		// The claim that an ephemeral volume of pod a creates.
		add(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-v"},
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: pick(g, "a", "b")},
		})
	}
	for _, name := range []string{"a", "b", "c"} {
		add(g.persistentVolume(name))
	}
	for _, name := range csiDrivers {
		if g.in(3) {
			continue
		}
		add(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{
			TokenRequests: some(g, 2, func() storagev1.TokenRequest { return storagev1.TokenRequest{Audience: g.audience()} }),
		}})
	}
	return world
}

// authorizeSome decides by all attributes, so that a missing one is noticed.
func authorizeSome(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	all := fmt.Sprintf("%q", []any{a.GetUser().GetName(), a.GetUser().GetUID(), a.GetUser().GetGroups(), a.GetUser().GetExtra(),
		a.GetVerb(), a.GetNamespace(),
		a.GetResource(), a.GetSubresource(), a.GetName(), a.GetAPIGroup(), a.GetAPIVersion(), a.IsResourceRequest(), a.GetPath()})
	hash := fnv.New32a()
	hash.Write([]byte(all))
	switch hash.Sum32() % 4 {
	case 0:
		return authorizer.DecisionAllow, "", errors.New("does not matter")
	case 1:
		return authorizer.DecisionDeny, "denied", nil
	case 2:
		return authorizer.DecisionNoOpinion, "", errors.New(all)
	}
	return authorizer.DecisionNoOpinion, "", nil
}

var csiDrivers = []string{"csi.example.com", "secrets.example.com", "ebs.csi.aws.com", "file.csi.azure.com", "disk.csi.azure.com",
	"pd.csi.storage.gke.io", "cinder.csi.openstack.org", "csi.vsphere.vmware.com", "pxd.portworx.com"}

func (g *generator) uid() types.UID       { return types.UID(pick(g, "", "u1", "u1", "u1", "u1", "u2")) }
func (g *generator) someNode() string     { return pick(g, "n1", "n1", "n1", "n1", "n2", "") }
func (g *generator) audience() string     { return pick(g, "", "vault", "vault", "aws", `a"\`) }
func (g *generator) objectName() string   { return pick(g, "a", "b", "c", "d", "") }
func (g *generator) tokenVolumes() string { return pick(g, "a", "b", "c", "missing") }

func (g *generator) podOfNode(meta metav1.ObjectMeta) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta}
	if g.in(4) {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: pick(g, "", "x"), "k": "v"}
	}
	pod.Spec.NodeName = g.someNode()
	pod.Spec.ServiceAccountName = pick(g, "a", "a", g.objectName())
	pod.Spec.Volumes = some(g, 4, g.tokenVolume)
	return pod
}

// tokenVolume generates a volume that requests tokens, perhaps by its driver.
func (g *generator) tokenVolume() corev1.Volume {
	v := corev1.Volume{Name: pick(g, "v", "w")}
	switch g.IntN(5) {
	case 0:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: g.audience(), Path: "token"}},
			{PodCertificate: &corev1.PodCertificateProjection{SignerName: pick(g, "example.com/s", "example.com/t")}},
		}}
	case 1:
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: g.tokenVolumes()}
	case 2:
		v.Ephemeral = &corev1.EphemeralVolumeSource{}
		if !g.in(4) {
			v.Ephemeral.VolumeClaimTemplate = &corev1.PersistentVolumeClaimTemplate{}
		}
	case 3:
		v.CSI = &corev1.CSIVolumeSource{Driver: pick(g, csiDrivers...), ReadOnly: new(true)}
	case 4:
		v.VolumeSource = pick(g,
			corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}},
			corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: g.ebsVolume()}},
			corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}},
			corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{VolumeID: "d"}},
			corev1.VolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "d"}},
			corev1.VolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "d"}},
			corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s", ShareName: "d"}},
			corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", Kind: g.diskKind()}},
		)
	}
	return v
}

func (g *generator) ebsVolume() string {
	return pick(g, "vol-1", "aws://zone/vol-1", "aws://zone/none", "aws://%zz/vol-1")
}

func (g *generator) diskKind() *corev1.AzureDataDiskKind {
	return pick(g, new(corev1.AzureManagedDisk), new(corev1.AzureSharedBlobDisk), nil)
}

func (g *generator) persistentVolume(name string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if g.in(2) {
		pv.Labels = map[string]string{pick(g, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone): pick(g, "us-central1-a",
			"us-central1-a__us-central1-b", "a__b", "")}
	}
	if g.in(2) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn,
				Values: []string{"z"}}}},
		}}}
	}
	if g.in(2) {
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: pick(g, "shop", ""), Name: "a"}
	}
	pv.Spec.PersistentVolumeSource = pick(g,
		corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: pick(g, csiDrivers...)}},
		corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: pick(g, csiDrivers...)}},
		corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
		corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: g.ebsVolume()}},
		corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "d"}},
		corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "d"}},
		corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "d"}},
		corev1.PersistentVolumeSource{PortworxVolume: &corev1.PortworxVolumeSource{VolumeID: "d"}},
		corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", Kind: g.diskKind()}},
		corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s",
			SecretNamespace: pick(g, nil, new("shop"), new(""))}},
	)
	return pv
}

// ofNode generates a request nearly always by a node, about objects that nodes write.
func (g *generator) ofNode() *oracle.Case {
	c := pick(g, g.other, g.mirrorPod, g.mirrorPod, g.mirrorPod, g.podWrite, g.podStatus, g.eviction, g.kubeletNode, g.kubeletNode,
		g.claimStatus, g.token, g.token, g.token,
		g.podCertificate, g.podCertificate, g.nodeLease, g.csiNode, g.resourceSlice, g.kubeletCertificate)()
	c.User = user.DefaultInfo{Name: "system:node:n1", UID: g.word(), Groups: []string{"system:nodes", "system:authenticated"}}
	if g.in(4) {
		c.User.Extra = map[string][]string{"k": {g.word(), ""}}
	}
	if g.in(16) {
		c.User.Name = pick(g, "", "system:node:n2", "system:nodes:n1", "alice", "system:node:n1/x", `system:node:"`)
	}
	if c.Resource == pods && g.in(16) {
		c.User.Name = "system:node:" // in-tree denies everything, and elsewhere no rule selects it
	}
	if g.in(24) {
		c.User.Groups = pick(g, nil, []string{"system:node"}, []string{"a", "system:nodes"})
	}
	return c
}

// mirrorPod creates a pod that a node may create, except for a mistake or two.
func (g *generator) mirrorPod() *oracle.Case {
	c := g.request(admission.Create, podKind, pods)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "static-n1", Namespace: c.Namespace, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "hash"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u1", Controller: new(true)}},
	}}
	pod.Spec.NodeName = "n1"
	pod.Spec.Containers = some(g, 2, g.container)
	owner := &pod.OwnerReferences[0]
	mistakes := []func(){
		func() { pod.Annotations = pick(g, nil, map[string]string{corev1.MirrorPodAnnotationKey: ""}) },
		func() { pod.Spec.NodeName = g.someNode() },
		func() { pod.OwnerReferences = pick(g, nil, []metav1.OwnerReference{*owner, *owner}) },
		func() { owner.APIVersion, owner.Kind = pick(g, "v1", "v2"), pick(g, "Node", "Pod") },
		func() { owner.Name, owner.UID = g.someNode(), g.uid() },
		func() {
			owner.Controller, owner.BlockOwnerDeletion = pick(g, nil, new(false), new(true)), pick(g, new(false), new(true))
		},
	}
	if g.in(3) {
		pick(g, mistakes...)()
	}
	if !g.in(4) {
		g.refer(pod)
	}
	return g.write(c, pod, nil)
}

// refer makes the pod refer to an object, or nearly.
func (g *generator) refer(pod *corev1.Pod) {
	reference := corev1.LocalObjectReference{Name: pick(g, "", "x", "x")}
	spec := &pod.Spec
	switch g.IntN(10) {
	case 0:
		spec.ServiceAccountName = reference.Name
	case 1:
		spec.ImagePullSecrets = []corev1.LocalObjectReference{reference}
	case 2:
		spec.ResourceClaims = pick(g, []corev1.PodResourceClaim{}, []corev1.PodResourceClaim{{Name: "c"}})
	case 3:
		from := pick(g,
			corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: reference}},
			corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: reference}})
		variable := pick(g,
			corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: reference}},
			corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: reference}},
			corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{}})
		common := corev1.Container{EnvFrom: []corev1.EnvFromSource{from}, Env: []corev1.EnvVar{{Name: "plain"}, {ValueFrom: &variable}}}
		switch g.IntN(3) {
		case 0:
			spec.Containers = append(spec.Containers, common)
		case 1:
			spec.InitContainers = append(spec.InitContainers, common)
		case 2:
			spec.EphemeralContainers = []corev1.EphemeralContainer{{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{EnvFrom: common.EnvFrom, Env: common.Env}}}
		}
	default:
		spec.Volumes = some(g, 3, func() corev1.Volume { return g.anyVolume(reference.Name) })
	}
}

// anyVolume generates a volume with one or sometimes two sources, which name objects if they
// can.
func (g *generator) anyVolume(name string) corev1.Volume {
	volume := corev1.Volume{Name: "v"}
	if g.in(6) {
		volume.Projected = &corev1.ProjectedVolumeSource{}
	}
	source := reflect.ValueOf(&volume.VolumeSource).Elem()
	for range pick(g, 0, 1, 1, 1, 1, 2) {
		if volume.Projected != nil && !g.in(4) {
			break
		}
		field := source.Field(g.IntN(source.NumField()))
		field.Set(reflect.New(field.Type().Elem()))
	}
	if volume.Projected != nil {
		volume.Projected.Sources = some(g, 2, func() (from corev1.VolumeProjection) {
			if g.in(8) {
				return from
			}
			field := reflect.ValueOf(&from).Elem().Field(g.IntN(reflect.TypeOf(from).NumField()))
			field.Set(reflect.New(field.Type().Elem()))
			setNames(reflect.ValueOf(&from).Elem(), name)
			return from
		})
	}
	setNames(source, name)
	return volume
}

// setNames sets the names of secrets and config maps, in all fields.
func setNames(v reflect.Value, name string) {
	for i := range v.NumField() {
		field := v.Field(i)
		reference, isReference := field.Interface().(*corev1.LocalObjectReference)
		switch called := v.Type().Field(i).Name; {
		case field.Kind() == reflect.String && (called == "SecretName" || called == "Name"):
			field.SetString(name)
		case isReference && reference == nil:
			field.Set(reflect.ValueOf(&corev1.LocalObjectReference{Name: name}))
		case field.Kind() == reflect.Struct:
			setNames(field, name)
		case field.Kind() == reflect.Pointer && !field.IsNil() && field.Elem().Kind() == reflect.Struct:
			setNames(field.Elem(), name)
		}
	}
}

func (g *generator) podWrite() *oracle.Case {
	c := g.request(pick(g, admission.Delete, admission.Delete, admission.Update, admission.Create), podKind, pods)
	if g.in(4) {
		c.Subresource = pick(g, "status", "resize", "ephemeralcontainers", "binding")
	}
	if c.Operation == admission.Delete {
		c.Name, c.OldObject = g.objectName(), g.aPod()
		c.OldObject.GetObjectKind().SetGroupVersionKind(c.Kind)
		return c
	}
	return g.write(c, g.aPod(), func() runtime.Object { return g.aPod() })
}

func (g *generator) podStatus() *oracle.Case {
	c := g.request(admission.Update, podKind, pods)
	c.Subresource = "status"
	pod := &corev1.Pod{ObjectMeta: g.metadata()}
	pod.Spec.NodeName = g.someNode()
	pod.Status.Phase = corev1.PodRunning
	claims := func() {
		pod.Status.ResourceClaimStatuses = some(g, 2, func() corev1.PodResourceClaimStatus {
			return corev1.PodResourceClaimStatus{Name: g.objectName(), ResourceClaimName: maybe(g, g.objectName)}
		})
	}
	extended := func() {
		pod.Status.ExtendedResourceClaimStatus = pick(g, nil, &corev1.PodExtendedResourceClaimStatus{
			ResourceClaimName: pick(g, "a", "b"),
			RequestMappings: some(g, 1, func() corev1.ContainerExtendedResourceRequest {
				return corev1.ContainerExtendedResourceRequest{ContainerName: g.objectName(), ResourceName: "r", RequestName: "q"}
			}),
		})
	}
	claims()
	extended()
	return g.write(c, pod.DeepCopy(), func() runtime.Object {
		pod.Status.Phase = corev1.PodPending
		if g.in(4) {
			pod.Labels = pick(g, nil, map[string]string{}, map[string]string{"app": g.word()})
		}
		if g.in(4) {
			claims()
		}
		if g.in(4) {
			extended()
		}
		return pod
	})
}

func (g *generator) eviction() *oracle.Case {
	c := g.request(admission.Create, policyv1.SchemeGroupVersion.WithKind("Eviction"), pods)
	c.Subresource = "eviction"
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: g.objectName()}}
	g.write(c, eviction, nil)
	if g.in(8) {
		c.Operation, c.OldObject, c.Options = admission.Update, eviction, &metav1.UpdateOptions{}
	}
	c.Name = pick(g, eviction.Name, eviction.Name, "", "b")
	return c
}

func (g *generator) token() *oracle.Case {
	c := g.request(admission.Create, authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
		corev1.SchemeGroupVersion.WithResource("serviceaccounts"))
	c.Subresource = "token"
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: g.objectName(), UID: g.uid()},
	}}
	bound := request.Spec.BoundObjectRef
	if g.in(12) {
		bound.Kind, bound.APIVersion = pick(g, "Pod", "Node"), pick(g, "v1", "v2", "")
	}
	if g.in(24) {
		request.Spec.BoundObjectRef = nil
	}
	request.Spec.Audiences = pick(g, nil, []string{g.audience()}, []string{g.audience()}, []string{g.audience()}, some(g, 2, g.audience))
	g.write(c, request, nil)
	c.Name = g.objectName()
	return c
}

func (g *generator) nodeLease() *oracle.Case {
	lease := func() runtime.Object {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: g.someNode()}}
	}
	c := g.named(pick(g, admission.Create, admission.Update, admission.Delete), at("coordination.k8s.io/v1 Lease leases", lease))
	c.Namespace = pick(g, "kube-node-lease", "kube-node-lease", "shop", "")
	return c
}

func (g *generator) csiNode() *oracle.Case {
	return g.named(pick(g, admission.Create, admission.Update, admission.Delete),
		at("storage.k8s.io/v1 CSINode csinodes", func() runtime.Object {
			return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: g.someNode()}}
		}))
}

func (g *generator) resourceSlice() *oracle.Case {
	node := maybe(g, g.someNode)
	w := pick(g,
		at("resource.k8s.io/v1 ResourceSlice resourceslices", func() runtime.Object {
			return &resourcev1.ResourceSlice{ObjectMeta: g.metadata(), Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
		}),
		at("resource.k8s.io/v1beta2 ResourceSlice resourceslices", func() runtime.Object {
			return &resourcev1beta2.ResourceSlice{ObjectMeta: g.metadata(), Spec: resourcev1beta2.ResourceSliceSpec{NodeName: node}}
		}),
		at("resource.k8s.io/v1beta1 ResourceSlice resourceslices", func() runtime.Object {
			slice := &resourcev1beta1.ResourceSlice{ObjectMeta: g.metadata()}
			if node != nil {
				slice.Spec.NodeName = *node
			}
			return slice
		}),
	)
	return g.named(pick(g, admission.Create, admission.Delete), w)
}

// named generates a request whose name is mostly that of a node.
func (g *generator) named(operation admission.Operation, w writable) *oracle.Case {
	c := g.request(operation, w.kind, w.resource)
	if operation == admission.Delete {
		c.OldObject = w.object()
		c.OldObject.GetObjectKind().SetGroupVersionKind(c.Kind)
	} else {
		g.write(c, w.object(), w.object)
	}
	if c.Name = g.someNode(); operation == admission.Create && g.in(2) {
		c.Name = ""
	}
	return c
}

// TestListedNodeRestriction has the difference that the plugin's README lists. If it
// disappears, the line there must be removed.
func TestListedNodeRestriction(t *testing.T) {
	s := nodeRestriction()
	upstream, ours := s.implementations(t, &s.variants[0], oracle.World{})
	g := newGenerator(1)
	w := g.writables()[0]
	c := g.write(g.request(admission.Create, w.kind, w.resource), w.object(), nil)
	c.User = user.DefaultInfo{Name: "system:node:", Groups: []string{"system:nodes"}}
	comparison, err := oracle.Compare(c, upstream, ours)
	if err != nil || !strings.Contains(comparison.Difference, "could not determine node from user") {
		t.Errorf("got %v, %v, want Kubernetes to refuse a node without a name anything", comparison, err)
	}
	mustWrite(t, tally.Row{Plugin: "NodeRestriction", Test: "listed differences", Cases: 1,
		Listed: []string{"in-tree refuses every request of a node without a name"}})
}
