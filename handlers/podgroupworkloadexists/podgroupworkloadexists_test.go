package podgroupworkloadexists

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/schedulingv1alpha2"
)

const groups = "scheduling.k8s.io/v1alpha2/podgroups"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func workload(name string, templates ...string) *schedulingv1alpha2.Workload {
	w := &schedulingv1alpha2.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "namespace", Name: name}}
	for _, template := range templates {
		w.Spec.PodGroupTemplates = append(w.Spec.PodGroupTemplates, schedulingv1alpha2.PodGroupTemplate{Name: template})
	}
	return w
}

// group returns the review of a PodGroup with this reference to a template, both parts as
// JSON.
func group(workload, template string) []byte {
	return admissiontest.Body(codec.Create, groups,
		`{"spec":{"podGroupTemplateRef":{"workload":{"workloadName":`+workload+`,"podGroupTemplateName":`+template+`}}}}`)
}

// TestValidate has Kubernetes' own cases and more.
func TestValidate(t *testing.T) {
	deleted := workload("deleted", "worker")
	deleted.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
	elsewhere := workload("elsewhere", "worker")
	elsewhere.Namespace = "other"
	chain := admissiontest.MustChain(t, Plugin(), "", workload("w", "worker", "driver"), workload("bare"), deleted, elsewhere)
	f := func(body []byte, want string) {
		t.Helper()
		got := string(admissiontest.Answer(t, chain, admission.Validate, body))
		if want != "" {
			want = `"message":"` + want + `"`
		}
		if !strings.Contains(got, want) || strings.Contains(got, `"allowed":true`) != (want == "") {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
	}
	const rejected = `podgroups.scheduling.k8s.io \"name\" is forbidden: PodGroup rejected: `
	f(group(`"w"`, `"worker"`), "")
	f(group(`"w"`, `"driver"`), "")
	f(group(`"w"`, `"other"`), rejected+`PodGroupTemplate \"other\" not found in Workload \"w\"`)
	f(group(`"w"`, `null`), rejected+`PodGroupTemplate \"\" not found in Workload \"w\"`)
	f(group(`"bare"`, `""`), rejected+`PodGroupTemplate \"\" not found in Workload \"bare\"`)
	f(group(`"missing"`, `"worker"`), rejected+`Workload \"missing\" not found`)
	f(group(`"elsewhere"`, `"worker"`), rejected+`Workload \"elsewhere\" not found`)
	f(group(`"deleted"`, `"worker"`), rejected+`Workload \"deleted\" is being deleted`)

	// Names that are invalid for Workloads.
	f(group(`"UPPER"`, `"worker"`), rejected+`Workload \"UPPER\" not found`)
	f(group(`""`, `"worker"`), "Internal error occurred: resource name may not be empty")
	f(group(`null`, `"worker"`), "Internal error occurred: resource name may not be empty")
	f(group(`"a/b"`, `"worker"`), `Internal error occurred: invalid resource name \"a/b\": [may not contain '/']`)

	// Without a template.
	for _, spec := range []string{`null`, `{}`, `{"podGroupTemplateRef":null}`, `{"podGroupTemplateRef":{}}`,
		`{"podGroupTemplateRef":{"workload":null}}`} {
		f(admissiontest.Body(codec.Create, groups, `{"spec":`+spec+`}`), "")
	}

	// Requests that the plugin ignores.
	object := `{"spec":{"podGroupTemplateRef":{"workload":{"workloadName":"missing"}}}}`
	f(admissiontest.UpdateBody(groups, object, object), "")
	f(admissiontest.Body(codec.Delete, groups, object), "")
	f(admissiontest.Body(codec.Create, "scheduling.k8s.io/v1alpha2/workloads", object), "")
	f([]byte(strings.Replace(string(admissiontest.Body(codec.Create, groups, object)), `"operation"`,
		`"subResource":"status","operation"`, 1)), "")
}

// TestLive has Workloads that are not in the cache.
func TestLive(t *testing.T) {
	f := func(answer func(w http.ResponseWriter), isDenied, fails bool) {
		t.Helper()
		var asked []string
		handler := admissiontest.LiveHandler(t, Plugin(), func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			answer(w)
		})
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(group(`"w"`, `"worker"`)); err != nil {
			t.Fatal(err)
		}
		got := handler.Validate(t.Context(), review)
		if (got.Denial != nil) != isDenied || (got.Err != nil) != fails {
			t.Errorf("got %v, want a denial %v, a failure %v", got, isDenied, fails)
		}
		if len(asked) == 0 || asked[0] != "/apis/scheduling.k8s.io/v1alpha2/namespaces/namespace/workloads/w" {
			t.Errorf("asked %q", asked)
		}
	}
	f(func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"kind":"Workload","apiVersion":"scheduling.k8s.io/v1alpha2","metadata":{"name":"w",`+
			`"namespace":"namespace"},"spec":{"podGroupTemplates":[{"name":"worker"}]}}`)
	}, false, false)
	f(func(w http.ResponseWriter) { admissiontest.Failure(w, http.StatusNotFound, "NotFound") }, true, false)
	f(func(w http.ResponseWriter) { admissiontest.Failure(w, http.StatusInternalServerError, "InternalError") }, false, true)
}

func BenchmarkValidate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", workload("w", "worker"))
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, group(`"w"`, `"worker"`))
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", workload("w", "worker"))
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, group(`"w"`, `"worker"`))
}
