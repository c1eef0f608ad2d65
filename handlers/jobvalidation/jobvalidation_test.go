package jobvalidation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/schedulingv1alpha2"
)

const jobs = "batch/v1/jobs"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// group returns a PodGroup, a gang or not. A Job with the UID owns it, unless the UID is
// empty.
func group(name string, gang bool, uid types.UID, controls bool) *schedulingv1alpha2.PodGroup {
	g := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.SchedulingPolicy.Basic = &schedulingv1alpha2.BasicSchedulingPolicy{}
	if gang {
		g.Spec.SchedulingPolicy = schedulingv1alpha2.PodGroupSchedulingPolicy{Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: 4}}
	}
	if uid != "" {
		g.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: uid, Controller: new(controls)}}
	}
	return g
}

// job returns a Job with these values in JSON.
func job(uid, parallelism, podGroupName string) string {
	return fmt.Sprintf(`{"metadata":{"name":"j","namespace":"default","uid":%s},"spec":{"parallelism":%s,`+
		`"template":{"spec":{"schedulingGroup":{"podGroupName":%s}}}}}`,
		uid, parallelism, podGroupName)
}

// TestValidate has Kubernetes' own cases and more.
func TestValidate(t *testing.T) {
	elsewhere := group("elsewhere", true, "u", true)
	elsewhere.Namespace = "other"
	chain := admissiontest.MustChain(t, Plugin(), "", group("gang", true, "", false), group("basic", false, "", false), elsewhere,
		group("owned-gang", true, "u1", true), group("owned-basic", false, "u2", true), group("uncontrolled", true, "u3", false))
	f := func(body []byte, wantGroup string) {
		t.Helper()
		got := string(admissiontest.Answer(t, chain, admission.Validate, body))
		want := `"allowed":true`
		if wantGroup != "" {
			want = `"message":"jobs.batch \"name\" is forbidden: cannot change parallelism for a Job referencing ` +
				`gang-scheduled PodGroup \"` + wantGroup + `\""`
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
	}
	update := func(object, old string) []byte { return admissiontest.UpdateBody(jobs, object, old) }
	f(update(job(`"u"`, "2", `"gang"`), job(`"u"`, "4", `"gang"`)), "gang")
	f(update(job(`"u"`, "4", `"gang"`), job(`"u"`, "4", `"gang"`)), "")
	f(update(job(`"u"`, "2", `"basic"`), job(`"u"`, "4", `"basic"`)), "")
	f(update(job(`"u"`, "2", `"missing"`), job(`"u"`, "4", `"missing"`)), "")
	f(update(job(`"u"`, "2", `"elsewhere"`), job(`"u"`, "4", `"elsewhere"`)), "")
	f(update(job(`"u"`, "2", `""`), job(`"u1"`, "4", `""`)), "")
	f(update(job(`"u"`, "2", `"a/b"`), job(`"u1"`, "4", `"a/b"`)), "")

	// The group of the old Job counts.
	f(update(job(`"u"`, "2", `"basic"`), job(`"u"`, "4", `"gang"`)), "gang")
	f(update(job(`"u"`, "2", `"gang"`), job(`"u"`, "4", `"basic"`)), "")

	// Groups that the Job controls.
	f(update(job(`"u"`, "2", `null`), job(`"u"`, "4", `null`)), "")
	f(update(job(`"u"`, "2", `null`), job(`"u1"`, "4", `null`)), "owned-gang")
	f(update(job(`"u1"`, "2", `null`), job(`"u"`, "4", `null`)), "")
	f(update(job(`"u2"`, "2", `null`), job(`"u2"`, "4", `null`)), "")
	f(update(job(`"u3"`, "2", `null`), job(`"u3"`, "4", `null`)), "")
	f(update(job(`null`, "2", `null`), job(`null`, "4", `null`)), "")

	// Parallelisms that are not set.
	f(update(job(`"u"`, "null", `"gang"`), job(`"u"`, "0", `"gang"`)), "gang")
	f(update(job(`"u"`, "0", `"gang"`), job(`"u"`, "null", `"gang"`)), "gang")
	f(update(job(`"u"`, "null", `"gang"`), strings.Replace(job(`"u"`, "null", `"gang"`), `"parallelism":null,`, "", 1)), "")

	// Requests that the plugin ignores.
	f(admissiontest.Body(codec.Create, jobs, job(`"u"`, "2", `"gang"`)), "")
	f(admissiontest.Body(codec.Delete, jobs, job(`"u"`, "2", `"gang"`)), "")
	f(update("null", job(`"u"`, "4", `"gang"`)), "")
	f(update(job(`"u"`, "4", `"gang"`), "null"), "")
	f(admissiontest.UpdateBody("batch/v1/cronjobs", job(`"u"`, "2", `"gang"`), job(`"u"`, "4", `"gang"`)), "")
	status := strings.Replace(string(update(job(`"u"`, "2", `"gang"`), job(`"u"`, "4", `"gang"`))), `"operation"`,
		`"subResource":"status","operation"`, 1)
	f([]byte(status), "")
}

// TestEnds has a namespace with many groups and a context that has ended: the plugin stops.
func TestEnds(t *testing.T) {
	f := func(groups int, ends bool) {
		t.Helper()
		var objects []runtime.Object
		for i := range groups {
			objects = append(objects, group(fmt.Sprint("g", i), true, "u", true))
		}
		state, err := cluster.New(cluster.Options{Objects: objects})
		if err == nil {
			err = state.Follow(t.Context(), Plugin().Needs...)
		}
		if err != nil {
			t.Fatal(err)
		}
		handler, err := Plugin().New(admission.Setup{Cluster: state.View(Plugin().Needs...)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(admissiontest.UpdateBody(jobs, job(`"other"`, "2", `null`), job(`"other"`, "4", `null`))); err != nil {
			t.Fatal(err)
		}
		if got := handler.Validate(ctx, review); errors.Is(got.Err, context.Canceled) != ends || got.Denial != nil {
			t.Errorf("%d groups: got %v, want that it ends %v", groups, got, ends)
		}
	}
	f(lookEvery-1, false)
	f(lookEvery, true)
	f(lookEvery+1, true)
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", group("basic", false, "u", true))
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed,
		admissiontest.UpdateBody(jobs, job(`"u"`, "4", `null`), job(`"u"`, "4", `null`)))
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed,
		admissiontest.UpdateBody(jobs, job(`"u"`, "2", `null`), job(`"u"`, "4", `null`)))
}

func BenchmarkValidate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", group("basic", false, "u", true))
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed,
		admissiontest.UpdateBody(jobs, job(`"u"`, "2", `null`), job(`"u"`, "4", `null`)))
}
