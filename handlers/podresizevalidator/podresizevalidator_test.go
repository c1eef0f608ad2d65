package podresizevalidator

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// pod returns a Pod with these fields of its spec.
func pod(generation int, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":"p","generation":%d},"spec":{%s}}`, generation, spec)
}

// on returns fields of a spec: the node, and containers with these requests.
func on(node string, requests ...string) string {
	var containers []string
	for _, r := range requests {
		containers = append(containers, `{"name":"c","resources":{"requests":{`+r+`}}}`)
	}
	return `"nodeName":"` + node + `","containers":[` + strings.Join(containers, ",") + `]`
}

func of(body []byte, subResource string) []byte {
	return bytes.Replace(body, []byte(`"operation"`), []byte(`"subResource":"`+subResource+`","operation"`), 1)
}

func resize(spec string) []byte {
	return of(admissiontest.UpdateBody("v1/pods", pod(2, spec), pod(1, `"nodeName":"n"`)), "resize")
}

func node(name, system string, allocatable corev1.ResourceList) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: allocatable}}
	if system != "" {
		n.Labels = map[string]string{corev1.LabelOSStable: system}
	}
	return n
}

func chain(t testing.TB) *admission.Chain {
	allocatable := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
		"pods": resource.MustParse("0")}
	return admissiontest.MustChain(t, Plugin(), "", node("linux", "linux", allocatable), node("unlabelled", "", allocatable),
		node("windows", "windows", allocatable), node("empty", "linux", nil))
}

// TestValidate has Kubernetes' own cases and more.
func TestValidate(t *testing.T) {
	chain := chain(t)
	f := func(body []byte, want, wantCause string) {
		t.Helper()
		got := string(admissiontest.Answer(t, chain, admission.Validate, body))
		if want == "" {
			want = `"allowed":true`
		} else {
			want = `"message":"pods \"name\" is forbidden: ` + want + `"`
		}
		if wantCause != "" {
			wantCause = `"causes":[{"reason":"` + wantCause + `"}]`
		}
		if !strings.Contains(got, want) || !strings.Contains(got, wantCause) {
			t.Errorf("%s\ngot  %s\nwant %s, %s", body, got, want, wantCause)
		}
	}
	const capacity, lacks = "NodeCapacity", "node didn't have enough allocatable resources: "
	f(resize(on("linux", `"cpu":"2","memory":"1Gi"`)), "", "")
	f(resize(on("linux", `"cpu":"1","memory":"2Gi"`)), "", "")
	f(resize(on("linux", `"cpu":"4","memory":"8Gi"`)), "", "")
	f(resize(on("linux", `"cpu":"10"`)), lacks+"cpu, requested: 10000, allocatable: 4000", capacity)
	f(resize(on("linux", `"cpu":"4001m"`)), lacks+"cpu, requested: 4001, allocatable: 4000", capacity)
	f(resize(on("linux", `"memory":"10Gi"`)), lacks+"memory, requested: 10737418240, allocatable: 8589934592", capacity)
	f(resize(on("linux", `"cpu":"10","memory":"10Gi"`)),
		lacks+"cpu, requested: 10000, allocatable: 4000; memory, requested: 10737418240, allocatable: 8589934592", capacity)
	f(resize(on("windows", `"cpu":"1"`)), `pod resize is only supported on linux nodes, node \"windows\" is \"windows\"`,
		"UnsupportedPlatform")
	f(resize(on("unlabelled", `"cpu":"4"`)), "", "")
	f(resize(on("unlabelled", `"cpu":"5"`)), lacks+"cpu, requested: 5000, allocatable: 4000", capacity)
	f(resize(on("missing", `"cpu":"1"`)), `node \"missing\" not found`, "")
	f(resize(on("a/b", `"cpu":"1"`)), `node \"a/b\" not found`, "")
	f(resize(on("empty", `"cpu":"1m"`)), lacks+"cpu, requested: 1, allocatable: 0", capacity)
	f(resize(on("empty")), "", "")

	// The requests of a pod.
	f(resize(on("linux", `"cpu":"2"`, `"cpu":"2"`)), "", "")
	f(resize(on("linux", `"cpu":"2"`, `"cpu":"3"`)), lacks+"cpu, requested: 5000, allocatable: 4000", capacity)
	f(resize(on("linux", `"cpu":"2","pods":"7","example.com/gpu":"9"`)), "", "")
	f(resize(on("linux", `"cpu":"3"`)+`,"overhead":{"cpu":"2"}`), lacks+"cpu, requested: 5000, allocatable: 4000", capacity)
	f(resize(on("linux", `"cpu":"1"`)+`,"resources":{"requests":{"cpu":"5"}}`), lacks+"cpu, requested: 5000, allocatable: 4000", capacity)
	f(resize(on("linux", `"cpu":"5"`)+`,"resources":{"requests":{"cpu":"1"}}`), "", "")
	initial := func(restart string) string {
		return on("linux", `"cpu":"2"`) + `,"initContainers":[{"name":"i",` + restart +
			`"resources":{"requests":{"cpu":"3","x.y/z":"1"}}}]`
	}
	f(resize(initial("")), "", "")
	f(resize(initial(`"restartPolicy":"Always",`)), lacks+"cpu, requested: 5000, allocatable: 4000", capacity)

	// Requests that the plugin ignores.
	much := pod(2, on("linux", `"cpu":"10"`))
	f(admissiontest.UpdateBody("v1/pods", much, pod(1, "")), "", "")
	f(of(admissiontest.UpdateBody("v1/pods", much, pod(1, "")), "status"), "", "")
	f(of(admissiontest.UpdateBody("v1/pods", much, pod(2, "")), "resize"), "", "")
	f(of(admissiontest.UpdateBody("v1/pods", strings.Replace(much, "linux", "", 1), pod(1, "")), "resize"), "", "")
	f(of(admissiontest.Body(codec.Create, "v1/pods", much), "resize"), "", "")
	f(of(admissiontest.UpdateBody("apps/v1/pods", much, pod(1, "")), "resize"), "", "")
}

// TestNoPod has reviews that no API server sends.
func TestNoPod(t *testing.T) {
	chain := chain(t)
	f := func(body []byte, want string) {
		t.Helper()
		if got := string(admissiontest.Answer(t, chain, admission.Validate, of(body, "resize"))); !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
	}
	f(admissiontest.UpdateBody("v1/pods", pod(2, on("linux")), "null"), `"code":400`)
	f(admissiontest.UpdateBody("v1/pods", pod(2, on("linux")), "null"), "expected an old pod but got a \\u003cnil\\u003e")
	f(admissiontest.UpdateBody("v1/pods", "null", pod(1, on("linux"))), `"allowed":true`)
	f(admissiontest.UpdateBody("v1/pods", pod(2, on("linux", `"cpu":"much"`)), pod(1, "")), `"code":400`)
}

func BenchmarkValidate(b *testing.B) {
	admissiontest.Benchmark(b, chain(b), admission.Validate, admission.OutcomeAllowed, resize(on("linux", `"cpu":"2","memory":"1Gi"`)))
}
