package upgrade

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/stream"
)

const (
	checks  = "checks" // the namespace in which decisions are compared
	allowed = "allowed"
)

// differing are the plugins of the differences.
var differing = []string{"PodSecurity", "PodTolerationRestriction", "ResourceQuota", "ValidatingAdmissionPolicy"}

// A difference is what plugins decide otherwise since a minor release.
type difference struct {
	about string
	since string
	// before and then are parts of the decision before that release, and then.
	before, then string
	decide       func(c kubernetes.Interface) string
}

var differences = []difference{
	{
		"ResourceQuota of a claim as an extended resource", "1.36",
		allowed, "exceeded quota: claims, requested: requests.deviceclass.resource.kubernetes.io/gpu=1", claim,
	},
	{
		"PodTolerationRestriction of a Pod with empty resources", "1.37",
		"no toleration", corev1.TaintNodeMemoryPressure, func(c kubernetes.Interface) string {
			return pod(c, func(spec *corev1.PodSpec) { spec.Resources = &corev1.ResourceRequirements{} })
		},
	},
	{
		"PodSecurity of a sysctl", "1.37",
		`violates PodSecurity "baseline:latest": forbidden sysctls`, allowed, func(c kubernetes.Interface) string {
			return pod(c, func(spec *corev1.PodSpec) {
				spec.SecurityContext = &corev1.PodSecurityContext{
					Sysctls: []corev1.Sysctl{{Name: "net.ipv4.tcp_slow_start_after_idle", Value: "0"}},
				}
			})
		},
	},
	{
		"the costs of startsWith in a policy", "1.37",
		"cost limit exceeded", allowed, configMap,
	},
}

// objects are what the differences need in the cluster.
var objects = fmt.Sprintf(`
{apiVersion: v1, kind: Namespace, metadata: {name: %s}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: %[2]s, labels: {pod-security.kubernetes.io/enforce: baseline}}}
---
{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: claims, namespace: %[2]s},
 spec: {hard: {requests.deviceclass.resource.kubernetes.io/gpu: "0"}}}
`, stream.Tenant, checks)

// policies are what fastadmit has in a file, and an API server in the cluster. The expression reads text of 700 kB, of
// which every tenth byte costs one until 1.36: more than the 1,000,000 that an expression may cost.
var policies = fmt.Sprintf(`
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: costs}, spec: {
 matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]},
 validations: [{expression: "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20].all(i, object.data.text.startsWith('x'))"}]}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: costs}, spec: {
 policyName: costs, validationActions: [Deny],
 matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}}}
`, checks)

const textLength = 700_000

// prepare creates the objects, and does the work of the quota controller.
func prepare(t *testing.T, api *cluster.APIServer) {
	t.Helper()
	api.MustKubectl(t, objects, "apply", "-f", "-")
	client := api.Client.CoreV1().ResourceQuotas(checks)
	quota, err := client.Get(context.Background(), "claims", metav1.GetOptions{})
	if err == nil {
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard}
		_, err = client.UpdateStatus(context.Background(), quota, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// decided returns an error unless the API server decides all differences as the release does.
func decided(api *cluster.APIServer, release admission.Version) error {
	for _, d := range differences {
		want := d.before
		if release.Has(d.since) {
			want = d.then
		}
		if got := d.decide(api.Client); !strings.Contains(got, want) {
			return fmt.Errorf("%s: got %q, want %q, as in %s", d.about, got, want, release)
		}
	}
	return nil
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

func decision(err error) string {
	if err != nil {
		return err.Error()
	}
	return allowed
}

// pod creates a Pod whose container asks for CPU. If it is allowed, the decision names its toleration for memory
// pressure.
func pod(c kubernetes.Interface, change func(*corev1.PodSpec)) string {
	p := stream.NewPod("p", false)
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	change(&p.Spec)
	stored, err := c.CoreV1().Pods(checks).Create(context.Background(), p, dryRun)
	if err != nil {
		return decision(err)
	}
	for _, toleration := range stored.Spec.Tolerations {
		if toleration.Key == corev1.TaintNodeMemoryPressure {
			return allowed + ", toleration " + toleration.Key
		}
	}
	return allowed + ", no toleration"
}

func claim(c kubernetes.Interface) string {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	gpu := resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &gpu}}
	_, err := c.ResourceV1().ResourceClaims(checks).Create(context.Background(), claim, dryRun)
	return decision(err)
}

func configMap(c kubernetes.Interface) string {
	_, err := c.CoreV1().ConfigMaps(checks).Create(context.Background(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"text": strings.Repeat("x", textLength)},
	}, dryRun)
	return decision(err)
}
