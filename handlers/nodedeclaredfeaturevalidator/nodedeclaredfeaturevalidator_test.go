package nodedeclaredfeaturevalidator

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

const (
	initFeature = "InPlacePodVerticalScalingInitContainers"
	podFeature  = "InPlacePodLevelResourcesVerticalScaling"
)

// pod returns a Pod on a node with these additional fields of its spec.
func pod(generation int, node, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":"p","generation":%d},"spec":{"nodeName":%q%s}}`, generation, node, spec)
}

// initial returns a field of a spec: an init container with this request.
func initial(more, cpu string) string {
	return `,"initContainers":[{"name":"i",` + more + `"resources":{"requests":{"cpu":"` + cpu + `"}}}]`
}

// whole returns a field of a spec: the requests of the whole pod.
func whole(cpu string) string { return `,"resources":{"requests":{"cpu":"` + cpu + `"}}` }

func of(body []byte, subResource string) []byte {
	return bytes.Replace(body, []byte(`"operation"`), []byte(`"subResource":"`+subResource+`","operation"`), 1)
}

func chain(t testing.TB) *admission.Chain {
	node := func(name string, features ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{DeclaredFeatures: features}}
	}
	return admissiontest.MustChain(t, Plugin(), "", node("none"), node("both", podFeature, initFeature),
		node("init", "Another", initFeature), node("pod", podFeature, "X"))
}

// TestValidate has Kubernetes' own cases with features that exist, and more.
func TestValidate(t *testing.T) {
	chain := chain(t)
	check := func(body []byte, want string) {
		t.Helper()
		got := string(admissiontest.Answer(t, chain, admission.Validate, body))
		if want == "" {
			want = `"allowed":true`
		} else {
			want = `"message":"pods \"name\" is forbidden: ` + want + `"`
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
	}
	f := func(node, spec, old, want string) {
		t.Helper()
		body := admissiontest.UpdateBody("v1/pods", pod(2, node, spec), pod(1, node, old))
		check(body, want)
		check(of(body, "resize"), want)
		check(of(body, "status"), "")
		check(admissiontest.UpdateBody("v1/pods", pod(2, node, spec), pod(2, node, old)), "")
	}
	lacks := func(features, node string) string {
		return "pod update requires features " + features + ` which are not available on node \"` + node + `\"`
	}
	f("", initial("", "2"), initial("", "1"), "")
	f("missing", initial("", "2"), initial("", "1"), `node \"missing\" not found`)
	f("a/b", initial("", "2"), initial("", "1"), `node \"a/b\" not found`)
	f("missing", initial("", "1"), initial("", "1"), "")
	f("init", initial("", "2"), initial("", "1"), "")
	f("both", initial("", "2"), initial("", "1"), "")
	f("none", initial("", "2"), initial("", "1"), lacks(initFeature, "none"))
	f("pod", initial("", "2"), initial("", "1"), lacks(initFeature, "pod"))
	f("none", initial(`"restartPolicy":"Always",`, "2"), initial(`"restartPolicy":"Always",`, "1"), "")
	f("none", initial(`"image":"b",`, "1"), initial(`"image":"a",`, "1"), "")
	f("none", whole("2"), whole("1"), lacks(podFeature, "none"))
	f("none", whole("1000m"), whole("1"), "")
	f("none", whole("2"), "", lacks(podFeature, "none"))
	f("none", "", whole("2"), lacks(podFeature, "none"))
	f("pod", whole("2"), whole("1"), "")
	f("init", whole("2"), whole("1"), lacks(podFeature, "init"))
	f("none", whole("2")+initial("", "2"), whole("1")+initial("", "1"), lacks(podFeature+", "+initFeature, "none"))
	f("pod", whole("2")+initial("", "2"), whole("1")+initial("", "1"), lacks(initFeature, "pod"))
	f("none", initial("", "1"), "", "")
	f("none", "", initial("", "1"), "failed to infer pod capability requirements: init containers cannot be removed")

	// Requests that the plugin ignores.
	changed, old := pod(2, "none", whole("2")), pod(1, "none", "")
	check(admissiontest.Body(codec.Create, "v1/pods", changed), "")
	check(admissiontest.Body(codec.Delete, "v1/pods", changed), "")
	check(admissiontest.UpdateBody("apps/v1/pods", changed, old), "")
	check(of(admissiontest.UpdateBody("v1/pods", changed, old), "ephemeralcontainers"), "")
	check(admissiontest.UpdateBody("v1/pods", "null", old), "")
}

// inMemory returns a field of a spec: a volume in memory of this size.
func inMemory(size string) string {
	return `,"volumes":[{"name":"v","emptyDir":{"medium":"Memory","sizeLimit":"` + size + `"}}]`
}

// TestVersions changes the resources of an init container and of a whole Pod. v1.35 does not know the feature
// for init containers (k8s.io/component-helpers nodedeclaredfeatures/features/registry.go of v0.35.4).
func TestVersions(t *testing.T) {
	f := func(version, before, after string, want admission.Outcome, features ...string) {
		t.Helper()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Status: corev1.NodeStatus{DeclaredFeatures: features}}
		chain := admissiontest.MustChain(t, admissiontest.Emulating(t, Plugin(), version), "", node)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want,
			admissiontest.UpdateBody("v1/pods", pod(2, "none", after), pod(1, "none", before)))
	}
	f("1.35", initial("", "1"), initial("", "2"), admission.OutcomeAllowed)
	f("1.36", initial("", "1"), initial("", "2"), admission.OutcomeDenied)
	f("1.35", whole("1"), whole("2"), admission.OutcomeDenied)
	f("1.36", whole("1"), whole("2"), admission.OutcomeDenied)
	f("1.36", inMemory("1"), inMemory("2"), admission.OutcomeAllowed)
	f("1.37", inMemory("1"), inMemory("2"), admission.OutcomeDenied)
	// Kubelets sort the list, which 1.36 relies on.
	f("1.35", whole("1"), whole("2"), admission.OutcomeAllowed, "Z", podFeature)
	f("1.36", whole("1"), whole("2"), admission.OutcomeDenied, "Z", podFeature)
}

// TestNoPod has reviews that no API server sends.
func TestNoPod(t *testing.T) {
	chain := chain(t)
	f := func(object, old, want string) {
		t.Helper()
		if got := string(admissiontest.Answer(t, chain, admission.Validate,
			admissiontest.UpdateBody("v1/pods", object, old))); !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", object, got, want)
		}
	}
	f(pod(2, "none", ""), "null", "expected an old pod but got a \\u003cnil\\u003e")
	f(pod(2, "none", whole("much")), pod(1, "none", ""), `"code":400`)
}

func TestNoAllocations(t *testing.T) {
	admissiontest.NoAllocations(t, chain(t), admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-update-v1-1.json"))
}

func BenchmarkValidate(b *testing.B) {
	body := admissiontest.UpdateBody("v1/pods", pod(2, "both", initial("", "2")), pod(1, "both", initial("", "1")))
	admissiontest.Benchmark(b, chain(b), admission.Validate, admission.OutcomeAllowed, body)
}
