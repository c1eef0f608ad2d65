package cluster

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/internal/schedulingv1alpha2"
)

// TestDefinitions has the names of each kind in the API, and whether it is namespaced
// (k8s.io/kubernetes pkg/apis).
func TestDefinitions(t *testing.T) {
	type definition struct {
		kind                 string
		namespaced, optional bool
	}
	want := map[string]definition{
		"storage.k8s.io/v1, Resource=csidrivers":                 {kind: "CSIDriver"},
		"resource.k8s.io/v1, Resource=deviceclasses":             {kind: "DeviceClass", optional: true},
		"networking.k8s.io/v1, Resource=ingressclasses":          {kind: "IngressClass"},
		"/v1, Resource=limitranges":                              {kind: "LimitRange", namespaced: true},
		"/v1, Resource=namespaces":                               {kind: "Namespace"},
		"/v1, Resource=nodes":                                    {kind: "Node"},
		"/v1, Resource=persistentvolumeclaims":                   {kind: "PersistentVolumeClaim", namespaced: true},
		"/v1, Resource=persistentvolumes":                        {kind: "PersistentVolume"},
		"/v1, Resource=pods":                                     {kind: "Pod", namespaced: true},
		"scheduling.k8s.io/v1, Resource=priorityclasses":         {kind: "PriorityClass"},
		"scheduling.k8s.io/v1alpha2, Resource=podgroups":         {kind: "PodGroup", namespaced: true, optional: true},
		"scheduling.k8s.io/v1alpha2, Resource=workloads":         {kind: "Workload", namespaced: true, optional: true},
		"resource.k8s.io/v1, Resource=resourceclaims":            {kind: "ResourceClaim", namespaced: true},
		"/v1, Resource=resourcequotas":                           {kind: "ResourceQuota", namespaced: true},
		"node.k8s.io/v1, Resource=runtimeclasses":                {kind: "RuntimeClass"},
		"/v1, Resource=serviceaccounts":                          {kind: "ServiceAccount", namespaced: true},
		"/v1, Resource=services":                                 {kind: "Service", namespaced: true},
		"storage.k8s.io/v1, Resource=storageclasses":             {kind: "StorageClass"},
		"authorization.k8s.io/v1, Resource=subjectaccessreviews": {kind: "SubjectAccessReview"},

		"policies.fastadmit.io/v1, Resource=mutatingadmissionpolicies":         {kind: "MutatingAdmissionPolicy"},
		"policies.fastadmit.io/v1, Resource=mutatingadmissionpolicybindings":   {kind: "MutatingAdmissionPolicyBinding"},
		"policies.fastadmit.io/v1, Resource=validatingadmissionpolicies":       {kind: "ValidatingAdmissionPolicy"},
		"policies.fastadmit.io/v1, Resource=validatingadmissionpolicybindings": {kind: "ValidatingAdmissionPolicyBinding"},

		"policies.fastadmit.io/v1, Resource=policyexceptions": {kind: "PolicyException", optional: true},

		"policies.fastadmit.io/v1, Resource=policyreplicas": {kind: "PolicyReplica", optional: true},

		"webhooks.fastadmit.io/v1, Resource=mutatingwebhookconfigurations":   {kind: "MutatingWebhookConfiguration"},
		"webhooks.fastadmit.io/v1, Resource=validatingwebhookconfigurations": {kind: "ValidatingWebhookConfiguration"},
	}
	got := make(map[string]definition)
	for _, kind := range append(Kinds(), PolicyReplicas.Kind) {
		got[kind.GroupVersionResource().String()] = definition{kind.GroupVersionKind().Kind, kind.IsNamespaced(), kind.optional}
		isJSON := strings.HasSuffix(kind.GroupVersionResource().Group, "fastadmit.io") || // custom resources have no protobuf
			kind.GroupVersionResource().Version == "v1alpha2" // types of internal/schedulingv1alpha2
		if (kind.list == nil) != (kind == SubjectAccessReviews.Kind) || kind.protobuf == isJSON {
			t.Errorf("%s: got list %T, protobuf %v", kind, kind.list, kind.protobuf)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}

	d := Definition{Group: "example.com", Version: "v1", Resource: "geese", Kind: "Goose"}
	if k := newKind(d); k.listName != "GooseList" {
		t.Errorf("got a list %s", k.listName)
	}
	d.ListKind = "Flock"
	if k := newKind(d); k.listName != "Flock" {
		t.Errorf("got a list %s", k.listName)
	}
	if DefineJSON(d).protobuf || Define(d, Type[*corev1.Pod]{List: &unstructured.UnstructuredList{}}).protobuf ||
		!Define(d, Type[*corev1.Pod]{}).protobuf || !Define(d, Type[*corev1.Pod]{List: &corev1.PodList{}}).protobuf {
		t.Error("JSON is read from protobuf, or protobuf is not")
	}
}

// meta returns metadata with all fields.
func fullMeta() metav1.ObjectMeta {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return metav1.ObjectMeta{
		Name: "n", Namespace: "s", UID: "u", ResourceVersion: "7", DeletionTimestamp: &at, CreationTimestamp: at,
		GenerateName: "g", Generation: 3,
		DeletionGracePeriodSeconds: new(int64(9)), Labels: map[string]string{"l": "v"},
		Annotations:     map[string]string{lastApplied: "{}", EnforceMountableSecretsAnnotation: "true", "k": "v"},
		OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, Finalizers: []string{"f"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}
}

// checkKept gives the object got all metadata, and checks that the cache reduces it to the object
// want. want gets the metadata that are cached for all kinds, and the fields that metadata names.
func checkKept(t *testing.T, kind *Kind, got, want Object, metadata ...string) {
	t.Helper()
	full := fullMeta()
	meta := metav1.ObjectMeta{Name: full.Name, Namespace: full.Namespace, UID: full.UID,
		ResourceVersion: full.ResourceVersion, DeletionTimestamp: full.DeletionTimestamp}
	from, to := reflect.ValueOf(&full).Elem(), reflect.ValueOf(&meta).Elem()
	for _, field := range metadata {
		to.FieldByName(field).Set(from.FieldByName(field))
	}
	if meta.Annotations != nil {
		meta.Annotations = map[string]string{EnforceMountableSecretsAnnotation: "true", "k": "v"}
	}
	reflect.ValueOf(want).Elem().FieldByName("ObjectMeta").Set(reflect.ValueOf(meta))
	reflect.ValueOf(got).Elem().FieldByName("ObjectMeta").Set(reflect.ValueOf(fullMeta()))
	trimmed, err := kind.trim(got)
	if err != nil || !apiequality.Semantic.DeepEqual(trimmed, want) {
		t.Errorf("%s:\n got %+v, %v\nwant %+v", kind, trimmed, err, want)
	}
}

// TestCachedFields checks which fields of objects are cached.
func TestCachedFields(t *testing.T) {
	f := func(kind *Kind, got, want Object, metadata ...string) {
		t.Helper()
		checkKept(t, kind, got, want, metadata...)
	}
	annotated, class := "Annotations", []string{"Annotations", "CreationTimestamp"}
	spec, status := corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"k"}}, corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	f(Namespaces.Kind, &corev1.Namespace{Spec: spec, Status: status}, &corev1.Namespace{Spec: spec, Status: status},
		annotated, "GenerateName", "Generation", "Labels", "CreationTimestamp", "DeletionGracePeriodSeconds", "Finalizers")
	f(StorageClasses.Kind, &storagev1.StorageClass{Provisioner: "p", AllowVolumeExpansion: new(true)},
		&storagev1.StorageClass{AllowVolumeExpansion: new(true)}, class...)
	f(IngressClasses.Kind, &networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "c"}},
		&networkingv1.IngressClass{}, class...)
	f(PriorityClasses.Kind, &schedulingv1.PriorityClass{Value: 7, GlobalDefault: true, Description: "d",
		PreemptionPolicy: new(corev1.PreemptNever)},
		&schedulingv1.PriorityClass{Value: 7, GlobalDefault: true, PreemptionPolicy: new(corev1.PreemptNever)}, class...)
	overhead := &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	scheduling := &nodev1.Scheduling{NodeSelector: map[string]string{"a": "b"}}
	f(RuntimeClasses.Kind, &nodev1.RuntimeClass{Handler: "h", Overhead: overhead, Scheduling: scheduling},
		&nodev1.RuntimeClass{Overhead: overhead, Scheduling: scheduling})
	limits := corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePod}}}
	f(LimitRanges.Kind, &corev1.LimitRange{Spec: limits}, &corev1.LimitRange{Spec: limits})
	f(DeviceClasses.Kind, &resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{
		ExtendedResourceName: new("x.y/z"), Selectors: []resourcev1.DeviceSelector{{}},
	}},
		&resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new("x.y/z")}})
	devices := resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{}}}
	f(ResourceClaims.Kind, &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: devices}},
		&resourcev1.ResourceClaim{}, annotated, "CreationTimestamp", "OwnerReferences")
	f(Nodes.Kind, &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "c"}}, &corev1.Node{}, "Labels")
	allocatable := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi")}
	more := maps.Clone(allocatable)
	more["pods"] = resource.MustParse("110")
	f(Nodes.Kind, &corev1.Node{Status: corev1.NodeStatus{Allocatable: more, Capacity: more, DeclaredFeatures: []string{"F"}}},
		&corev1.Node{Status: corev1.NodeStatus{Allocatable: allocatable, DeclaredFeatures: []string{"F"}}}, "Labels")
	policy := schedulingv1alpha2.PodGroupSchedulingPolicy{Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 2}}
	f(PodGroups.Kind, &schedulingv1alpha2.PodGroup{Spec: schedulingv1alpha2.PodGroupSpec{
		SchedulingPolicy: policy, PodGroupTemplateRef: new(schedulingv1alpha2.PodGroupTemplateReference),
	}},
		&schedulingv1alpha2.PodGroup{Spec: schedulingv1alpha2.PodGroupSpec{SchedulingPolicy: policy}}, "OwnerReferences")
	workload := func(template schedulingv1alpha2.PodGroupTemplate) *schedulingv1alpha2.Workload {
		templates := []schedulingv1alpha2.PodGroupTemplate{template}
		return &schedulingv1alpha2.Workload{Spec: schedulingv1alpha2.WorkloadSpec{PodGroupTemplates: templates}}
	}
	f(Workloads.Kind, workload(schedulingv1alpha2.PodGroupTemplate{Name: "t", SchedulingPolicy: policy}),
		workload(schedulingv1alpha2.PodGroupTemplate{Name: "t"}))
	f(PersistentVolumeClaims.Kind,
		&corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v", StorageClassName: new("c")}},
		&corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v"}})
	tokens := []storagev1.TokenRequest{{Audience: "a"}}
	f(CSIDrivers.Kind, &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: new(true), TokenRequests: tokens}},
		&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{TokenRequests: tokens}})
}

// TestCachedMetadata checks exactly which fields are cached of objects with different metadata.
func TestCachedMetadata(t *testing.T) {
	account := func(metadata metav1.ObjectMeta) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metadata, Secrets: []corev1.ObjectReference{{Name: "a"}},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "b"}}, AutomountServiceAccountToken: new(false)}
	}
	quota := func(metadata metav1.ObjectMeta) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{ObjectMeta: metadata,
			Spec:   corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1")}},
			Status: corev1.ResourceQuotaStatus{Used: corev1.ResourceList{"pods": resource.MustParse("1")}}}
	}
	whole := fullMeta()
	whole.ManagedFields = nil
	small := metav1.ObjectMeta{Name: "n", Annotations: map[string]string{EnforceMountableSecretsAnnotation: "true"}}
	for _, c := range []struct {
		kind      *Kind
		got, want Object
	}{
		{ServiceAccounts.Kind, account(metav1.ObjectMeta{Name: "n", Labels: whole.Labels, Annotations: fullMeta().Annotations}),
			account(small)},
		{ServiceAccounts.Kind, account(metav1.ObjectMeta{Name: "n", Annotations: map[string]string{"k": "v"}}),
			account(metav1.ObjectMeta{Name: "n"})},
		{ResourceQuotas.Kind, quota(fullMeta()), quota(whole)},
		{PriorityClasses.Kind, &schedulingv1.PriorityClass{Value: 7}, &schedulingv1.PriorityClass{Value: 7}},
	} {
		if trimmed, err := c.kind.trim(c.got); err != nil || !reflect.DeepEqual(trimmed, c.want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", c.kind, trimmed, err, c.want)
		}
	}
	if got, err := Nodes.trim(&corev1.Pod{}); err == nil {
		t.Errorf("got %v of a Pod as a Node", got)
	}
}

// TestListOf reads a list from protobuf.
func TestListOf(t *testing.T) {
	sent := &corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", RemainingItemCount: new(int64(3))},
		Items:    []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {}, {Spec: corev1.PodSpec{NodeName: "n"}}},
	}
	wire, err := sent.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	list := &listOf[*corev1.Pod]{ListMeta: metav1.ListMeta{Continue: "c"}, Items: []*corev1.Pod{{}}}
	list.Reset()
	if err := list.Unmarshal(wire); err != nil || !reflect.DeepEqual(list.ListMeta, sent.ListMeta) || len(list.Items) != 3 {
		t.Fatalf("got %+v, %v", list, err)
	}
	for i, got := range list.Items {
		if !apiequality.Semantic.DeepEqual(got, &sent.Items[i]) {
			t.Errorf("got %+v, want %+v", got, &sent.Items[i])
		}
	}
	for n := range wire {
		if err := new(listOf[*corev1.Pod]).Unmarshal(wire[:n]); err == nil && n == len(wire)-1 {
			t.Error("got no error for a list that is cut off")
		}
	}
}

// TestKeptWhole has an object that returns copies of its annotations.
func TestKeptWhole(t *testing.T) {
	object := func(annotations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"annotations": annotations}}}
	}
	got := object(map[string]any{lastApplied: "{}", "k": "v"})
	got.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}})
	if keepWhole(got); !reflect.DeepEqual(got, object(map[string]any{"k": "v"})) {
		t.Errorf("got %v", got)
	}
}

// TestDefaults has the defaults of kube-apiserver (k8s.io/kubernetes
// pkg/apis/core/v1/defaults.go, pkg/apis/scheduling/v1/defaults.go).
func TestDefaults(t *testing.T) {
	list := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	f := func(item, want corev1.LimitRangeItem) {
		t.Helper()
		limits := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePod}, item}}}
		LimitRanges.setDefaults(limits)
		if got := limits.Spec.Limits[1]; !apiequality.Semantic.DeepEqual(got, want) {
			t.Errorf("%+v:\n got %+v\nwant %+v", item, got, want)
		}
	}
	const container, pod = corev1.LimitTypeContainer, corev1.LimitTypePod
	f(corev1.LimitRangeItem{Type: container},
		corev1.LimitRangeItem{Type: container, Default: corev1.ResourceList{}, DefaultRequest: corev1.ResourceList{}})
	f(corev1.LimitRangeItem{Type: container, Max: list("4")},
		corev1.LimitRangeItem{Type: container, Max: list("4"), Default: list("4"), DefaultRequest: list("4")})
	f(corev1.LimitRangeItem{Type: container, Min: list("1")},
		corev1.LimitRangeItem{Type: container, Min: list("1"), Default: corev1.ResourceList{}, DefaultRequest: list("1")})
	f(corev1.LimitRangeItem{Type: container, Max: list("4"), Min: list("1")},
		corev1.LimitRangeItem{Type: container, Max: list("4"), Min: list("1"), Default: list("4"), DefaultRequest: list("4")})
	f(corev1.LimitRangeItem{Type: container, Max: list("4"), Min: list("1"), Default: list("3"), DefaultRequest: list("2")},
		corev1.LimitRangeItem{Type: container, Max: list("4"), Min: list("1"), Default: list("3"), DefaultRequest: list("2")})
	f(corev1.LimitRangeItem{Type: pod, Max: list("4"), Min: list("1")}, corev1.LimitRangeItem{Type: pod, Max: list("4"), Min: list("1")})
	small := "100u" // less than a thousandth
	f(corev1.LimitRangeItem{Type: pod, Max: list(small), Min: list(small), Default: list(small), DefaultRequest: list(small),
		MaxLimitRequestRatio: list(small)},
		corev1.LimitRangeItem{Type: pod, Max: list("1m"), Min: list("1m"), Default: list("1m"), DefaultRequest: list("1m"),
			MaxLimitRequestRatio: list("1m")})

	for _, given := range []*corev1.PreemptionPolicy{nil, new(corev1.PreemptNever)} {
		class, want := &schedulingv1.PriorityClass{PreemptionPolicy: given}, corev1.PreemptLowerPriority
		if given != nil {
			want = *given
		}
		if PriorityClasses.setDefaults(class); *class.PreemptionPolicy != want {
			t.Errorf("got %s, want %s", *class.PreemptionPolicy, want)
		}
	}
	n := namespace("shop", "team", "a")
	n.Status.Phase = corev1.NamespaceTerminating
	if Namespaces.setDefaults(n); n.Labels["team"] != "a" || n.Labels[corev1.LabelMetadataName] != "shop" ||
		n.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("got %+v", n)
	}
}

// TestNeeds checks the properties of needs.
func TestNeeds(t *testing.T) {
	needs := []Need{Namespaces.Watched(), Namespaces.Called("create", "get", "update"), ResourceQuotas.CalledStatus("update"),
		SubjectAccessReviews.Called("create"),
		Namespaces.Called("update").InBackground()}
	got, want := KindsOf(needs...), []*Kind{Namespaces.Kind, ResourceQuotas.Kind, SubjectAccessReviews.Kind}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for i, want := range [][]string{nil, {"create", "update"}, {"update"}, nil, nil} {
		if got := needs[i].Writes(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s: writes with %q, want %q", needs[i], needs[i].Verbs, got, want)
		}
	}
	s, err := New(Options{Embedded: true, Kinds: []*Kind{configMap.Kind, configMap.Kind, Pods.Kind, discovered}})
	if err != nil {
		t.Fatal(err)
	}
	s.Kinds()[0] = nil // a copy
	if got, want := s.Kinds(), append(Kinds(), configMap.Kind); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, ok := SubjectAccessReviews.object.(*authorizationv1.SubjectAccessReview); !ok {
		t.Errorf("got %T", SubjectAccessReviews.object)
	}
}
