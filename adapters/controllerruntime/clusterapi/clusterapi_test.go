package clusterapi

import (
	"encoding/json"
	"fmt"
	"maps"
	mathrand "math/rand"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conversion"

	"github.com/fastadmit/fastadmit/adapters/controllerruntime/internal/compare"
	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// object is an object of one of the kinds.
type object = map[string]any

// kinds are the kinds of the webhooks, with a value to generate.
var kinds = map[schema.GroupVersionKind]func() any{
	bootstrapv1.GroupVersion.WithKind("KubeadmConfig"):          func() any { return new(bootstrapv1.KubeadmConfig) },
	bootstrapv1.GroupVersion.WithKind("KubeadmConfigTemplate"):  func() any { return new(bootstrapv1.KubeadmConfigTemplate) },
	controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"): func() any { return new(controlplanev1.KubeadmControlPlane) },
	controlplanev1.GroupVersion.WithKind("KubeadmControlPlaneTemplate"): func() any {
		return new(controlplanev1.KubeadmControlPlaneTemplate)
	},
}

// paths are the paths of a kind's webhooks, empty if it has none.
func paths(kind schema.GroupVersionKind) map[string]admission.Phase {
	name := strings.ReplaceAll(kind.Group, ".", "-") + "-" + kind.Version + "-" + strings.ToLower(kind.Kind)
	return map[string]admission.Phase{"/mutate-" + name: admission.Mutate, "/validate-" + name: admission.Validate}
}

// review returns a review of an object. Each may be nil.
func review(t testing.TB, operation admissionv1.Operation, kind schema.GroupVersionKind, now, old object,
	change func(*admissionv1.AdmissionRequest)) []byte {
	t.Helper()
	resource := metav1.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: strings.ToLower(kind.Kind) + "s"}
	request := &admissionv1.AdmissionRequest{
		UID: "1", Kind: metav1.GroupVersionKind(kind), Resource: resource, RequestKind: new(metav1.GroupVersionKind(kind)),
		RequestResource: &resource, Name: "name", Namespace: "default", Operation: operation,
		UserInfo: authenticationv1.UserInfo{Username: "jane", Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}},
		DryRun:   new(false), Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
	}
	for raw, o := range map[*runtime.RawExtension]object{&request.Object: now, &request.OldObject: old} {
		if o != nil {
			raw.Raw = marshal(t, o)
		}
	}
	if change != nil {
		change(request)
	}
	return marshal(t, admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"}, Request: request,
	})
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A tally counts the answers of webhooks, so that a test can check that it saw enough.
type tally struct{ allowed, changed, denied int }

// same compares the webhooks of a kind on a review.
func (n *tally) same(t testing.TB, all webhooks, kind schema.GroupVersionKind, body []byte, now object) {
	t.Helper()
	for path, phase := range paths(kind) {
		w := all[path]
		if w == nil {
			continue
		}
		answer := compare.Same(t, w, phase, body)
		switch {
		case !answer.Allowed:
			n.denied++
		case phase == admission.Mutate && string(marshal(t, answer.Object)) != string(marshal(t, now)):
			n.changed++
		default:
			n.allowed++
		}
	}
}

func (n *tally) check(t testing.TB, least int) {
	t.Helper()
	t.Logf("%d allowed, %d changed, %d denied", n.allowed, n.changed, n.denied)
	if min(n.allowed, n.changed, n.denied) < least {
		t.Errorf("got %d allowed, %d changed and %d denied, want %d of each", n.allowed, n.changed, n.denied, least)
	}
}

var fence = regexp.MustCompile("(?ms)^ *```ya?ml *\n(.*?)^ *```")

// documented returns the objects of the kinds in Cluster API's own documentation.
func documented(t testing.TB) map[schema.GroupVersionKind][]object {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[schema.GroupVersionKind][]object)
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(dir)), "docs", "book", "src"),
		func(name string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".md" {
				return err
			}
			text, err := os.ReadFile(name)
			for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
				for _, document := range strings.Split(block[1], "\n---\n") {
					var o object
					if yaml.Unmarshal([]byte(document), &o) != nil {
						continue // a part of an object
					}
					kind := schema.FromAPIVersionAndKind(fmt.Sprint(o["apiVersion"]), fmt.Sprint(o["kind"]))
					if kinds[kind] != nil {
						found[kind] = append(found[kind], o)
					}
				}
			}
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestDocumented compares the webhooks on the objects of the documentation: their
// creation, deletion, and the update of each to each.
func TestDocumented(t *testing.T) {
	all, found := setUp(t), documented(t)
	objects := 0
	var n tally
	for kind, list := range found {
		objects += len(list)
		for _, o := range list {
			n.same(t, all, kind, review(t, admissionv1.Create, kind, o, nil, nil), o)
			n.same(t, all, kind, review(t, admissionv1.Delete, kind, nil, o, nil), nil)
			for _, old := range list {
				n.same(t, all, kind, review(t, admissionv1.Update, kind, o, old, nil), o)
			}
			planned := clone(t, o)
			metadata, _ := planned["metadata"].(object)
			metadata["annotations"] = object{clusterv1.TopologyDryRunAnnotation: ""}
			n.same(t, all, kind, review(t, admissionv1.Create, kind, planned, nil,
				func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }), planned)
		}
	}
	if t.Logf("%d objects", objects); objects < 8 {
		t.Errorf("got %d objects, want 8", objects)
	}
	n.check(t, 3) // the webhooks default little of what is documented
}

func clone(t testing.TB, o object) (copied object) {
	t.Helper()
	if err := json.Unmarshal(marshal(t, o), &copied); err != nil {
		t.Fatal(err)
	}
	return copied
}

// TestGenerated compares the webhooks on generated objects, and on objects of the documentation
// with parts of generated ones and a field that the types do not have.
func TestGenerated(t *testing.T) {
	all, found := setUp(t), documented(t)
	random := seed.Rand(t)
	filler := conversion.GetFuzzer(runtime.NewScheme()).NumElements(0, 2).MaxDepth(8).RandSource(mathrand.NewSource(random.Int64()))
	var n tally
	for _, kind := range slices.SortedFunc(maps.Keys(kinds),
		func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		value := kinds[kind]
		next := func() object {
			v := value()
			filler.Fill(v)
			generated := clone(t, toObject(t, v))
			generated["apiVersion"], generated["kind"] = kind.ToAPIVersionAndKind()
			list := found[kind]
			if len(list) == 0 || random.IntN(4) == 0 {
				return generated
			}
			o := clone(t, list[random.IntN(len(list))])
			for range 1 + random.IntN(2) {
				graft(random, o, generated)
			}
			if spec, ok := o["spec"].(object); ok {
				spec["fieldOfTomorrow"] = object{"a": []any{1, nil}}
			}
			return o
		}
		for range 60 {
			o := next()
			n.same(t, all, kind, review(t, admissionv1.Create, kind, o, nil, nil), o)
			old := clone(t, o)
			graft(random, old, next())
			n.same(t, all, kind, review(t, admissionv1.Update, kind, o, old, nil), o)
		}
	}
	n.check(t, 8)
}

func toObject(t testing.TB, v any) (o object) {
	t.Helper()
	if err := json.Unmarshal(marshal(t, v), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// graft copies a part of another object's spec.
func graft(random *rand.Rand, o, from object) {
	key := "spec"
	for {
		inner, isObject := from[key].(object)
		target, has := o[key].(object)
		if !isObject || !has || len(inner) == 0 || random.IntN(6) == 0 && key != "spec" {
			if part, ok := from[key]; ok && key != "spec" {
				o[key] = part
			}
			return
		}
		o, from = target, inner
		names := slices.Sorted(maps.Keys(inner))
		key = names[random.IntN(len(names))]
	}
}

// TestScale compares the handler of a subresource, which reads an object.
func TestScale(t *testing.T) {
	stacked := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "stacked", Namespace: "default"}}
	external := &controlplanev1.KubeadmControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "external", Namespace: "default"}}
	external.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.Endpoints = []string{"https://127.0.0.1"}
	w := setUp(t, stacked, external)["/validate-scale-controlplane-cluster-x-k8s-io-v1beta2-kubeadmcontrolplane"]
	kind := controlplanev1.GroupVersion.WithKind("KubeadmControlPlane")
	f := func(name string, replicas int32, code int32) {
		t.Helper()
		scale := autoscalingv1.Scale{
			TypeMeta:   metav1.TypeMeta{Kind: "Scale", APIVersion: "autoscaling/v1"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
		}
		body := review(t, admissionv1.Update, kind, toObject(t, scale), nil,
			func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" })
		if got := compare.Same(t, w, admission.Validate, body); got.Status.Code != code {
			t.Errorf("%s, %d: got %v, want code %d", name, replicas, got, code)
		}
	}
	f("stacked", 3, 0)
	f("stacked", 2, 403)
	f("stacked", 0, 403)
	f("external", 2, 0)
	f("missing", 1, 500)
	body := review(t, admissionv1.Update, kind, object{"kind": "Scale", "apiVersion": "v1", "spec": 1}, nil, nil)
	if got := compare.Same(t, w, admission.Validate, body); got.Status.Code != 400 {
		t.Errorf("got %v, want code 400", got)
	}
}
