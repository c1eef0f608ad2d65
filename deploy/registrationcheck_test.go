package deploy_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestRegistrationCheck checks the Job that waits for the registration: it exists whenever
// fastadmit registers itself, it has the rights of the pods, and nothing selects its pod as one of
// fastadmit's.
func TestRegistrationCheck(t *testing.T) {
	t.Parallel()
	flags := run(t, binary, "await", "--help")
	found := 0
	each(t, func(t *testing.T, _ setting, r release) {
		d := one[appsv1.Deployment](t, r, "Deployment")
		container := &d.Spec.Template.Spec.Containers[0]
		_, managed := argument(container.Args, "cert-secret-name")
		_, byOthers := argument(container.Args, "webhook-configurations")
		jobs := only[batchv1.Job](t, r, "Job")
		if want := managed && !byOthers; want != (len(jobs) == 1) {
			t.Errorf("got %d Jobs, want one: %v", len(jobs), want)
		}
		if len(jobs) == 0 {
			return
		}
		found++
		pod := &jobs[0].Spec.Template.Spec
		job := &pod.Containers[0]
		if job.Image != container.Image || job.Args[0] != "await" || pod.ServiceAccountName != d.Spec.Template.Spec.ServiceAccountName ||
			!reflect.DeepEqual(pod.ImagePullSecrets, d.Spec.Template.Spec.ImagePullSecrets) ||
			pod.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("got pod %v", pod)
		}
		for _, a := range job.Args[1:] {
			if name, _, _ := strings.Cut(a, "="); !regexp.MustCompile(`(?m)^ +` + name + `\b`).MatchString(flags) {
				t.Errorf("%s is no flag of fastadmit await", name)
			}
			if name, _, _ := strings.Cut(a, "="); name != "--timeout" && !slices.Contains(container.Args, a) &&
				name != "--managed-path-token" {
				t.Errorf("got %s, which the Deployment does not have", a)
			}
		}
		_, kept := argument(job.Args, "managed-path-token")
		if asks := slices.ContainsFunc(container.Args, func(a string) bool {
			return regexp.MustCompile("^--(client-ca-file|token-auth-file|basic-auth-file|path-token-file|managed-path-token)=").
				MatchString(a)
		}); asks != kept {
			t.Errorf("got arguments %q where the Deployment has %q", job.Args, container.Args)
		}
		if !reflect.DeepEqual(job.SecurityContext, container.SecurityContext) ||
			!reflect.DeepEqual(pod.SecurityContext, d.Spec.Template.Spec.SecurityContext) {
			t.Errorf("got security contexts %v and %v, want those of the Deployment", job.SecurityContext, pod.SecurityContext)
		}
		checkMounts(t, pod)
		checkApart(t, r, d, jobs[0].Spec.Template.Labels)
	})
	if found == 0 {
		t.Error("no setting has a Job")
	}
}

// checkApart checks that the Job's pod is none of fastadmit's, and that its own NetworkPolicy
// allows its calls.
func checkApart(t *testing.T, r release, d *appsv1.Deployment, pod labels.Set) {
	selectors := []*metav1.LabelSelector{d.Spec.Selector}
	for _, s := range only[corev1.Service](t, r, "Service") {
		selectors = append(selectors, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
	}
	for _, b := range only[policyv1.PodDisruptionBudget](t, r, "PodDisruptionBudget") {
		selectors = append(selectors, b.Spec.Selector)
	}
	policies := only[networkingv1.NetworkPolicy](t, r, "NetworkPolicy")
	if len(policies) > 0 {
		if len(policies) != 2 {
			t.Fatalf("got %d NetworkPolicies, want 2", len(policies))
		}
		theirs, own := policies[0], policies[1]
		selectors = append(selectors, &theirs.Spec.PodSelector)
		if !selected(t, &own.Spec.PodSelector, pod) || len(own.Spec.Ingress) != 0 || len(own.Spec.PolicyTypes) != 2 {
			t.Errorf("got %v, want a NetworkPolicy of the Job's pod", own.Spec)
		}
		if to := own.Spec.Egress; len(to) != 2 || to[0].To[0].IPBlock == nil || to[0].Ports != nil ||
			to[1].Ports[0].Port.StrVal != "webhook" || !selected(t, to[1].To[0].PodSelector, d.Spec.Template.Labels) {
			t.Errorf("got egress %v, want kube-apiserver and the webhook port of the pods", to)
		}
		if !slices.ContainsFunc(theirs.Spec.Ingress[0].From, func(p networkingv1.NetworkPolicyPeer) bool {
			return p.PodSelector != nil && selected(t, p.PodSelector, pod)
		}) {
			t.Errorf("got ingress from %v, want it from the Job's pod, too", theirs.Spec.Ingress[0].From)
		}
	}
	for _, s := range selectors {
		if selected(t, s, pod) {
			t.Errorf("got the Job's pod %v selected by %v", pod, s)
		}
	}
}

func selected(t *testing.T, selector *metav1.LabelSelector, pod labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(pod)
}

// TestRegistrationCheckHooks checks when helm runs the Job, and for how long.
func TestRegistrationCheckHooks(t *testing.T) {
	t.Parallel()
	f := func(values, hook, timeout string, deadline int64) {
		t.Helper()
		job := one[batchv1.Job](t, render(t, somePlugins+values, ""), "Job")
		if got := job.Annotations["helm.sh/hook"]; got != hook {
			t.Errorf("%s: got hook %s, want %s", values, got, hook)
		}
		if got := job.Annotations["helm.sh/hook-delete-policy"]; got != "before-hook-creation,hook-succeeded" {
			t.Errorf("%s: got hook-delete-policy %s", values, got)
		}
		if got, _ := argument(job.Spec.Template.Spec.Containers[0].Args, "timeout"); got != timeout ||
			*job.Spec.ActiveDeadlineSeconds != deadline {
			t.Errorf("%s: got --timeout=%s and %d s, want %s and %d s", values, got, *job.Spec.ActiveDeadlineSeconds, timeout, deadline)
		}
	}
	f("", "post-install,post-upgrade,post-rollback,test", "180s", 240) // helm waits 300 s
	f("registrationCheck: {enabled: false}", "test", "180s", 240)
	f("registrationCheck: {timeoutSeconds: 20}", "post-install,post-upgrade,post-rollback,test", "20s", 80)
	// Manifests for kubectl must not have objects that only helm would delete.
	for _, object := range parse(t, run(t, tool(t, "helm"), append(helm(t, "template", somePlugins, ""), "--skip-tests")...)) {
		if object.GetKind() == "Job" {
			t.Error("got the Job with --skip-tests")
		}
	}
}
