//go:build linux

package handlers_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers/limitranger"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionwebhook"
	"github.com/fastadmit/fastadmit/handlers/priority"
	"github.com/fastadmit/fastadmit/handlers/resourcequota"
	"github.com/fastadmit/fastadmit/handlers/runtimeclass"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionwebhook"
)

// sized are the sizes of a benchmark: 1/100, 1/10 and the whole.
func sized(whole int) [3]int { return [...]int{whole / 100, whole / 10, whole} }

// benchmarkSize measures the review of the recorded Pod, from the body to the result of the handler, in processor time of
// the process: on a busy machine, the time that passes says little.
func benchmarkSize(b *testing.B, ask func(*testing.B, *codec.Review) admission.Result) {
	body := corpus.MustRead("pods-create-v1-1.json")
	for _, field := range []string{`,"priorityClassName":"high"`, `,"priority":100000`, `,"preemptionPolicy":"PreemptLowerPriority"`} {
		body = bytes.Replace(body, []byte(field), nil, 1) // so that the Pod gets the default class
	}
	b.ReportAllocs()
	begun := processTime()
	for b.Loop() {
		review := codec.Acquire()
		if err := review.Decode(body); err != nil {
			b.Fatal(err)
		}
		if result := ask(b, review); result.Denial != nil || result.Err != nil {
			b.Fatalf("%+v", result)
		}
		review.Release()
	}
	b.ReportMetric(float64(processTime()-begun)/float64(b.N), "cpu-ns/op")
}

func processTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// benchmarkHandler is benchmarkSize for both phases of a plugin.
func benchmarkHandler(b *testing.B, name string, plugin admission.Plugin, manifest string, objects ...runtime.Object) {
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "shop"}}}
	handler := admissiontest.ManifestsHandler(b, plugin, []admission.File{{Name: "all.yaml", Content: []byte(manifest)}},
		append([]runtime.Object{home}, objects...)...)
	if handler.Admit != nil {
		b.Run(name+"/mutate", func(b *testing.B) {
			benchmarkSize(b, func(b *testing.B, r *codec.Review) admission.Result { return handler.Admit(b.Context(), r) })
		})
	}
	if handler.Validate != nil {
		b.Run(name+"/validate", func(b *testing.B) {
			benchmarkSize(b, func(b *testing.B, r *codec.Review) admission.Result { return handler.Validate(b.Context(), r) })
		})
	}
}

// BenchmarkWebhooks has many webhooks, of which none is called for the Pod, because of their rules, their selectors
// or their match conditions.
func BenchmarkWebhooks(b *testing.B) {
	for _, by := range []struct{ name, resource, more string }{
		{"rules", "services", ""},
		{"namespaceSelector", "pods", `namespaceSelector: {matchLabels: {team: team%d}}`},
		{"objectSelector", "pods", `objectSelector: {matchLabels: {team: team%d}}`},
		{"NotIn", "pods", `namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [shop, team%d]}]}`},
		{"conditions", "pods", `matchConditions: [{name: a, expression: "request.userInfo.username == 'user%d'"}]`},
		{"equal conditions", "pods", `matchConditions: [{name: a, expression: "object.metadata.namespace.startsWith('kube-')"}]`},
	} {
		for _, n := range sized(200) {
			name := fmt.Sprintf("%s=%d", by.name, n)
			benchmarkHandler(b, name, mutatingadmissionwebhook.Plugin(), webhooksOf(n, "Mutating", by.resource, by.more))
			benchmarkHandler(b, name, validatingadmissionwebhook.Plugin(), webhooksOf(n, "Validating", by.resource, by.more))
		}
	}
}

// webhooksOf returns a manifest with n webhooks for new objects of a resource, and one for Pods that a match condition
// leaves out. %d in more is the number of the webhook.
func webhooksOf(n int, kind, resource, more string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: admissionregistration.k8s.io/v1\nkind: %sWebhookConfiguration\nmetadata: {name: c}\nwebhooks:\n", kind)
	add := func(i int, resource, more string) {
		if strings.Contains(more, "%d") {
			more = fmt.Sprintf(more, i)
		}
		fmt.Fprintf(&text, `
- name: w%d.example.com
  clientConfig: {url: "https://localhost"}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [%s]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  %s
`, i, resource, more)
	}
	for i := range n {
		add(i, resource, more)
	}
	add(n, "pods", `matchConditions: [{name: a, expression: "false"}]`)
	return text.String()
}

// BenchmarkLimitRanges has many LimitRanges in the namespace of the Pod.
func BenchmarkLimitRanges(b *testing.B) {
	for _, n := range sized(500) {
		var all []runtime.Object
		for i := range n {
			all = append(all, &corev1.LimitRange{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("l%03d", i)},
				Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
					{Type: corev1.LimitTypeContainer, DefaultRequest: amounts(0, "1m"), Default: amounts(0, "4T"), Max: amounts(0, "5T")},
					{Type: corev1.LimitTypePod, Max: amounts(0, "50T")},
				}},
			})
		}
		benchmarkHandler(b, fmt.Sprint(n), limitranger.Plugin(), "", all...)
	}
}

// BenchmarkResourceQuotas has many ResourceQuotas in the namespace of the Pod: they count Pods, or other objects, or Pods
// of other priority classes.
func BenchmarkResourceQuotas(b *testing.B) {
	for _, of := range []struct {
		name, resource, class string
	}{{"pods", "pods", ""}, {"services", "services", ""}, {"scopes", "pods", "other"}} {
		for _, n := range sized(500) {
			var all []runtime.Object
			for i := range n {
				q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("q%03d", i), UID: "u"}}
				q.Spec.Hard = corev1.ResourceList{corev1.ResourceName(of.resource): resource.MustParse("1T")}
				q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceName(of.resource): resource.MustParse("0")}
				if of.class != "" {
					q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
						{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{of.class}},
					}}
				}
				all = append(all, q)
			}
			benchmarkHandler(b, fmt.Sprintf("%s=%d", of.name, n), resourcequota.Plugin(), "", all...)
		}
	}
}

// BenchmarkClasses has many RuntimeClasses and PriorityClasses.
func BenchmarkClasses(b *testing.B) {
	for _, n := range sized(5000) {
		var runtimes, priorities []runtime.Object
		for i := range n {
			meta := metav1.ObjectMeta{Name: fmt.Sprintf("c%04d", i)}
			runtimes = append(runtimes, &nodev1.RuntimeClass{ObjectMeta: meta, Handler: "h"})
			priorities = append(priorities, &schedulingv1.PriorityClass{ObjectMeta: meta, Value: int32(i)})
		}
		benchmarkHandler(b, fmt.Sprintf("RuntimeClass=%d", n), runtimeclass.Plugin(), "", runtimes...)
		benchmarkHandler(b, fmt.Sprintf("PriorityClass=%d", n), priority.Plugin(), "", priorities...)
	}
}
