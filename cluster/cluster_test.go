package cluster

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/internal/allocs"
)

func TestRules(t *testing.T) {
	rules, err := json.Marshal(Rules(Namespaces.Watched(), ResourceQuotas.CalledStatus("update"), Discovered(),
		Namespaces.Called("create", "get"),
		Discovered(), DiscoveredSchemas(), DiscoveredSchemas(), Dynamic(), SubjectAccessReviews.Called("create")))
	if err != nil {
		t.Fatal(err)
	}
	if want := `[{"verbs":["get","list","watch","create"],"apiGroups":[""],"resources":["namespaces"]},` +
		`{"verbs":["update"],"apiGroups":[""],"resources":["resourcequotas/status"]},` +
		`{"verbs":["get"],"nonResourceURLs":["/api/*","/apis/*"]},` +
		`{"verbs":["get"],"nonResourceURLs":["/openapi/v3","/openapi/v3/*"]},` +
		`{"verbs":["create"],"apiGroups":["authorization.k8s.io"],"resources":["subjectaccessreviews"]}]`; string(rules) != want {
		t.Errorf("got  %s\nwant %s", rules, want)
	}
}

// TestKinds checks that each Kind is complete.
func TestKinds(t *testing.T) {
	seen := make(map[string]bool)
	for _, kind := range Kinds() {
		types, _, err := newScheme(kind).ObjectKinds(kind.object)
		if err != nil || len(types) != 1 || types[0] != kind.version.WithKind(kind.name) {
			t.Errorf("%s: its object is a %v, %v, want a %s of %s", kind, types, err, kind.name, kind.version)
		}
		if kind.list == nil {
			continue // all fields may be dropped
		}
		types, _, err = newScheme(kind).ObjectKinds(kind.list)
		if err != nil || len(types) != 1 || types[0] != kind.version.WithKind(kind.name+"List") {
			t.Errorf("%s: its list is a %v, %v", kind, types, err)
		}
		if kind.trim == nil || seen[kind.String()] {
			t.Errorf("%s: it is not whole, or there twice", kind)
		}
		seen[kind.String()] = true
		once, err := kind.trim(kind.object.DeepCopyObject())
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := kind.trim(once); err != nil { // as the reflector does
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("one", "team", "a"))
	a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "c"}})
	s := a.newState(Options{})
	run(t, s)
	n, c := namespacesIn(s), configMap.In(s.View(followed()...))
	ctx := t.Context()
	if got := allocs.PerRun(1000, func() {
		if got, err := n.Get(ctx, "", "one"); err != nil || got.Labels["team"] != "a" {
			t.Error(got, err)
		}
		_, ok := c.Cached("one", "c")
		if !ok || len(all(c.List("one"))) != 1 || len(all(c.List("two"))) != 0 || len(all(n.List(""))) != 1 {
			t.Error("the cache lacks something")
		}
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
	}); got != 0 {
		t.Errorf("got %v allocations, want none", got)
	}
}

func BenchmarkGet(b *testing.B) {
	s, err := New(Options{Embedded: true})
	if err != nil {
		b.Fatal(err)
	}
	n := namespacesIn(s)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.Get(ctx, "", "default"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCache reports how many bytes of the heap an object takes that was decoded from a
// list: trimmed, and not trimmed.
func BenchmarkCache(b *testing.B) {
	f := func(kind *Kind, objects int, wire func(i int) wired) {
		measure := func(name string, kind *Kind) {
			b.Run(kind.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					cached := newStore(kind, nil)
					b.ReportMetric(heapPerObject(b, cached, objects, wire), "B/object")
					runtime.KeepAlive(cached)
				}
			})
		}
		whole := *kind
		whole.trim = func(o kruntime.Object) (kruntime.Object, error) { return o, nil }
		measure("kept", kind)
		measure("whole", &whole)
	}
	f(Namespaces.Kind, 10_000, func(i int) wired { return wireNamespace(i) })
	f(ServiceAccounts.Kind, 20_000, func(i int) wired { return wireServiceAccount(i) })
	f(StorageClasses.Kind, 1000, func(i int) wired { return wireStorageClass(i) })
	f(IngressClasses.Kind, 1000, func(i int) wired { return wireIngressClass(i) })
	f(Nodes.Kind, 5000, func(i int) wired { return wireNode(i) })
	f(PersistentVolumeClaims.Kind, 10_000, func(i int) wired { return wireClaim(i) })
	f(PersistentVolumes.Kind, 10_000, func(i int) wired { return wireVolume(i) })
	f(PriorityClasses.Kind, 1000, func(i int) wired { return wirePriorityClass(i) })
	f(RuntimeClasses.Kind, 1000, func(i int) wired { return wireRuntimeClass(i) })
	f(LimitRanges.Kind, 10_000, func(i int) wired { return wireLimitRange(i) })
	f(Nodes.Kind, 5000, func(i int) wired { return wireNode(i) })
}

// wired is an object that can be encoded as protobuf.
type wired interface {
	Marshal() ([]byte, error)
	Unmarshal(wire []byte) error
}

// heapPerObject returns by how much the heap grows per object.
func heapPerObject(b *testing.B, cached *store, objects int, wire func(i int) wired) float64 {
	heap := func() uint64 {
		var stats runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := heap()
	for i := range objects {
		sent, err := wire(i).Marshal()
		if err != nil {
			b.Fatal(err)
		}
		arrived := cached.kind.object.DeepCopyObject().(wired)
		if err := arrived.Unmarshal(sent); err != nil {
			b.Fatal(err)
		}
		if err := cached.Add(arrived); err != nil {
			b.Fatal(err)
		}
	}
	return float64(heap()-before) / float64(objects)
}

// wireNamespace returns a namespace as written by kubectl apply, in a cluster with Pod
// security and some annotations.
func wireNamespace(i int) *corev1.Namespace {
	n := namespace(fmt.Sprintf("team-%05d-production", i),
		"team", fmt.Sprintf("team-%05d", i), "environment", "production",
		"pod-security.kubernetes.io/enforce", "restricted", "pod-security.kubernetes.io/enforce-version", "latest")
	n.UID = "5b3f0b4e-6a5e-4d0e-9d6e-8f6f1f0e2a11"
	n.ResourceVersion = fmt.Sprint(100_000 + i)
	n.Annotations = map[string]string{
		"scheduler.alpha.kubernetes.io/node-selector": "pool=general",
		"owner": fmt.Sprintf("team-%05d@example.com", i),
		corev1.LastAppliedConfigAnnotation: `{"apiVersion":"v1","kind":"Namespace",` +
			`"metadata":{"annotations":{"owner":"team"},"labels":{"environment":"production"},"name":"team"}}`,
	}
	n.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl-client-side-apply", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},` +
			`"f:kubectl.kubernetes.io/last-applied-configuration":{},"f:owner":{}},"f:labels":{".":{},"f:environment":{},` +
			`"f:kubernetes.io/metadata.name":{},"f:team":{}}}}`),
	}}
	return n
}

// wireServiceAccount returns an account of a workload with permissions in a cloud, as a
// chart creates it; there are two in each namespace.
func wireServiceAccount(i int) *corev1.ServiceAccount {
	meta := wireNamespace(i / 2).ObjectMeta
	meta.Name, meta.Namespace = fmt.Sprintf("account-%d", i%2), meta.Name
	meta.Annotations["iam.example.com/role"] = fmt.Sprintf("projects/team-%05d/roles/production", i)
	return &corev1.ServiceAccount{
		ObjectMeta: meta, Secrets: []corev1.ObjectReference{{Name: "account-token"}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
	}
}

// wireStorageClass returns a class as the chart of a CSI driver creates it.
func wireStorageClass(i int) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:           wireClassMeta(i, "storageclass.kubernetes.io/is-default-class"),
		Provisioner:          "csi.example.com",
		Parameters:           map[string]string{"type": "ssd", "csi.storage.k8s.io/fstype": "ext4", "encrypted": "true"},
		ReclaimPolicy:        new(corev1.PersistentVolumeReclaimDelete),
		AllowVolumeExpansion: new(true),
		VolumeBindingMode:    new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

// wireIngressClass returns a class as the chart of an ingress controller creates it.
func wireIngressClass(i int) *networkingv1.IngressClass {
	return &networkingv1.IngressClass{
		ObjectMeta: wireClassMeta(i, networkingv1.AnnotationIsDefaultIngressClass),
		Spec:       networkingv1.IngressClassSpec{Controller: "example.com/ingress"},
	}
}

func wireClassMeta(i int, isDefault string) metav1.ObjectMeta {
	meta := wireNamespace(i).ObjectMeta
	meta.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	meta.Annotations[isDefault] = "false"
	return meta
}

func TestNewest(t *testing.T) {
	class := func(name string, second, nano int64) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, nano)}}
	}
	f := func(want string, classes ...*storagev1.StorageClass) {
		t.Helper()
		got, ok := Newest(classes, func(c *storagev1.StorageClass) bool { return c.Name != "no" })
		if ok != (want != "") || ok && got.Name != want {
			t.Errorf("got %v, %v, want %q", got, ok, want)
		}
	}
	f("")
	f("", class("no", 1, 0))
	f("a", class("a", 1, 0), class("b", 1, 0), class("no", 2, 0))
	f("b", class("a", 1, 0), class("b", 2, 0))
	f("a", class("a", 2, 1), class("b", 2, 0), class("c", 1, 9))
	f("b", &storagev1.StorageClass{}, class("b", 0, 0)) // the zero time is older
	f("a", class("no", 1, 0), class("a", -7_000_000_000, 0))
}
