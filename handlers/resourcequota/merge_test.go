package resourcequota

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/fastadmit/fastadmit/admission"
)

// TestMerged compares the usage of Pods with that of resourcehelper.
func TestMerged(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	negative := false // no API server allows these: the sum is right then, but may have another format
	list := func() corev1.ResourceList {
		list := make(corev1.ResourceList)
		for range r.IntN(3) {
			text := []string{"0", "0Ki", "1", "250m", "1Ki", "1024", "1G", "3"}[r.IntN(8)]
			if negative && r.IntN(4) == 0 {
				text = "-" + text
			}
			list[corev1.ResourceName([]string{"cpu", "memory", "example.com/a"}[r.IntN(3)])] = resource.MustParse(text)
		}
		return list
	}
	needs := func() corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: list(), Limits: list()}
	}
	containers := func(n int) (all []corev1.Container) {
		for range n {
			c := corev1.Container{Name: fmt.Sprint("c", r.IntN(6)), Resources: needs()}
			switch r.IntN(6) {
			case 0, 1, 2:
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			case 3:
				c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
			}
			all = append(all, c)
		}
		return all
	}
	statuses := func() (all []corev1.ContainerStatus) {
		for range r.IntN(4) {
			s := corev1.ContainerStatus{Name: fmt.Sprint("c", r.IntN(6)), AllocatedResources: list()}
			if r.IntN(3) > 0 {
				s.Resources = new(needs())
			}
			all = append(all, s)
		}
		return all
	}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	for i := range 5000 {
		negative = i%4 == 0
		p := new(corev1.Pod)
		p.Spec.Containers, p.Spec.InitContainers = containers(r.IntN(3)), containers(r.IntN(8))
		p.Status.ContainerStatuses, p.Status.InitContainerStatuses = statuses(), statuses()
		if r.IntN(3) == 0 {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
		}
		if i%5 == 0 {
			p.Status = corev1.PodStatus{}
		}
		always := add(corev1.ResourceList{podCount: count(1)},
			computeUsage(resourcehelper.PodRequests(p, options), resourcehelper.PodLimits(p, options), admission.Version{}))
		if got := podUsage(p, admission.Version{}); !apiequality.Semantic.DeepEqual(got, always) {
			t.Fatalf("%+v\n%+v\ngot usage %s\nwant %s", p.Spec, p.Status, show(got), show(always))
		}
		flat := merged(p.DeepCopy())
		for _, f := range []func(*corev1.Pod,
			resourcehelper.PodResourcesOptions) corev1.ResourceList{resourcehelper.PodRequests, resourcehelper.PodLimits} {
			got, want := f(flat, options), f(p, options)
			if !apiequality.Semantic.DeepEqual(got, want) || !negative && show(got) != show(want) {
				t.Fatalf("%+v\n%+v\ngot  %s\nwant %s", p.Spec, p.Status, show(got), show(want))
			}
		}
	}
}
