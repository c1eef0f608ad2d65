package resourcequota

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// home is the namespace of admissiontest.Body.
const home = "namespace"

// resources returns a list of "name", "quantity", and so on.
func resources(list ...string) corev1.ResourceList {
	made := make(corev1.ResourceList)
	for i := 0; i < len(list); i += 2 {
		made[corev1.ResourceName(list[i])] = resource.MustParse(list[i+1])
	}
	return made
}

// quota returns a quota whose usage has been counted.
func quota(namespace, name string, hard, used corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid of " + name)},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
		Status:     corev1.ResourceQuotaStatus{Hard: hard, Used: used},
	}
}

const podBody = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"500m"}}}]}}`

// TestWrongTypes has objects that no API server sends.
func TestWrongTypes(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", quota(home, "q",
		resources("pods", "10", "services", "10", "persistentvolumeclaims", "10", "requests.storage", "10Gi",
			"count/resourceclaims.resource.k8s.io", "10"),
		resources("pods", "0", "services", "0", "persistentvolumeclaims", "0", "requests.storage", "0",
			"count/resourceclaims.resource.k8s.io", "0")))
	f := func(want admission.Outcome, resource, object string) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(codec.Create, resource, object))
	}
	for _, resource := range []string{"v1/pods", "v1/services", "v1/persistentvolumeclaims", "resource.k8s.io/v1/resourceclaims"} {
		for _, object := range []string{`null`, `{}`, `{"spec":null}`, `{"spec":[]}`,
			`{"spec":{"containers":{},"ports":1,"devices":[]},"metadata":1,"status":true}`} {
			f(admission.OutcomeAllowed, resource, object)
		}
	}
	for _, object := range []string{
		`{"metadata":{"deletionTimestamp":"yesterday"}}`,
		`{"spec":{"overhead":{"cpu":null}}}`,
		`{"spec":{"resources":{"requests":{"cpu":true}}}}`,
		`{"spec":{"resources":{"limits":{"cpu":""}}}}`,
		`{"spec":{"containers":[{"resources":{"limits":{"cpu":[]}}}]}}`,
		`{"spec":{"initContainers":[{"resources":{"requests":{"cpu":"1x"}}}]}}`,
		`{"status":{"containerStatuses":[{"resources":{"requests":{"cpu":"1x"}}}]}}`,
		`{"status":{"initContainerStatuses":[{"allocatedResources":{"cpu":"1x"}}]}}`,
	} {
		f(admission.OutcomeErrored, "v1/pods", object)
	}
	f(admission.OutcomeErrored, "v1/persistentvolumeclaims", `{"spec":{"resources":{"requests":{"storage":{}}}}}`)
	f(admission.OutcomeErrored, "v1/persistentvolumeclaims",
		`{"spec":{"resources":{"requests":{"storage":"1"}}},"status":{"allocatedResources":{"storage":"?"}}}`)
	f(admission.OutcomeErrored, "resource.k8s.io/v1/resourceclaims", `{"metadata":{"creationTimestamp":"now"}}`)
}

// TestRules has requests that the rules do not select, in a namespace where the plugin would
// deny them.
func TestRules(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", quota(home, "q",
		resources("count/pods", "0", "count/services", "0", "count/leases.coordination.k8s.io", "0", "count/namespaces", "0"),
		resources("count/pods", "0", "count/services", "0", "count/leases.coordination.k8s.io", "0", "count/namespaces", "0")))
	f := func(want admission.Outcome, operation codec.Operation, resource string) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(operation, resource, `{}`))
	}
	f(admission.OutcomeDenied, codec.Create, "v1/pods")
	f(admission.OutcomeDenied, codec.Create, "coordination.k8s.io/v1/leases")
	f(admission.OutcomeDenied, codec.Update, "v1/services") // without an old object
	f(admission.OutcomeAllowed, codec.Update, "v1/pods")
	f(admission.OutcomeAllowed, codec.Update, "coordination.k8s.io/v1/leases")
	f(admission.OutcomeAllowed, codec.Create, "v1/namespaces")
	f(admission.OutcomeAllowed, codec.Delete, "v1/pods")
	f(admission.OutcomeAllowed, codec.Connect, "v1/pods")
}

func TestNoAllocations(t *testing.T) {
	body := corpus.MustRead("pods-create-v1-1.json")
	for name, chain := range map[string]*admission.Chain{
		"no quota": admissiontest.MustChain(t, Plugin(), ""),
		"in another namespace": admissiontest.MustChain(t, Plugin(), "",
			quota("elsewhere", "q", resources("pods", "1"), resources("pods", "1"))),
		"empty configuration":   admissiontest.MustChain(t, Plugin(), head),
		"configured, no limits": admissiontest.MustChain(t, Plugin(), head+"limitedResources: []\n"),
	} {
		t.Run(name, func(t *testing.T) {
			admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, body)
		})
	}
}

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\n"

func TestConfiguration(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		c, err := loadConfiguration([]byte(content))
		if err != nil {
			t.Fatalf("%s\ngot error %v", content, err)
		}
		if got := fmt.Sprint(c.LimitedResources); got != want {
			t.Errorf("%s\ngot %s, want %s", content, got, want)
		}
	}
	const limited = `limitedResources: [{apiGroup: apps, resource: deployments, matchContains: [count/], matchScopes: ` +
		`[{scopeName: PriorityClass, operator: In, values: [a]}]}]`
	const want = `[{apps deployments [count/] [{PriorityClass In [a]}]}]`
	f(head+limited, want)
	f("apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration\n"+limited, want)
	f("apiVersion: resourcequota.admission.k8s.io/v1alpha1\nkind: Configuration\n"+limited, want)
	f(head, "[]")
	f("{\n\t\"apiVersion\": \"apiserver.config.k8s.io/v1\",\n\t\"kind\": \"ResourceQuotaConfiguration\"\n}", "[]") // JSON may contain tabs
	const twice = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","kind":"ResourceQuotaConfiguration"}`
	if _, err := loadConfiguration([]byte(twice)); err == nil || err.Error() != `duplicate field "kind"` {
		t.Errorf("got %v", err)
	}
	if _, err := loadConfiguration([]byte("a: [")); err == nil || !strings.HasPrefix(err.Error(), "cannot decode configuration: yaml: ") {
		t.Errorf("got %v", err)
	}
	if c, err := loadConfiguration(nil); err != nil || len(c.LimitedResources) > 0 {
		t.Errorf("without a file: got %v, %v", c, err)
	}
}

func BenchmarkNoQuota(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", quota("elsewhere", "q", resources("pods", "1"), resources("pods", "1")))
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}

// benchmarked returns the namespace of the recorded Pod.
func benchmarked(b *testing.B) string {
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(corpus.MustRead("pods-create-v1-1.json")); err != nil {
		b.Fatal(err)
	}
	return string(append([]byte(nil), review.Namespace()...))
}

func BenchmarkDenied(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", quota(benchmarked(b), "q", resources("pods", "1"), resources("pods", "1")))
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeDenied, corpus.MustRead("pods-create-v1-1.json"))
}

// BenchmarkCharged has no API server to wait for.
func BenchmarkCharged(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", quota(benchmarked(b), "q", resources("pods", "1T"), resources("pods", "1")))
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}

// BenchmarkCache reports how many bytes of the heap one of 10,000 quotas takes, with a usual
// number of limits.
func BenchmarkCache(b *testing.B) {
	const quotas = 10_000
	hard := resources("pods", "100", "requests.cpu", "40", "requests.memory", "100Gi", "limits.cpu", "80", "limits.memory",
		"200Gi", "requests.storage", "1Ti")
	a := newAPIServer(b)
	for i := range quotas {
		q := quota(fmt.Sprintf("team-%05d-production", i), fmt.Sprintf("quota-%d", i), hard, hard)
		q.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: fmt.Sprint(q.Spec.Hard)}
		a.put(q)
	}
	for b.Loop() {
		before := admissiontest.LiveHeap()
		chain := a.replica()
		b.ReportMetric(float64(admissiontest.LiveHeap()-before)/quotas, "B/quota")
		runtime.KeepAlive(chain)
	}
}
