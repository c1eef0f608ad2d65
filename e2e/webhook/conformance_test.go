package webhook

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// conformance runs Kubernetes' own suite (test/e2e/apimachinery/webhook.go), with plugins of the
// test server instead of its webhook.
func (s *stand) conformance(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, namespace string){
		"deny-pod-and-configmap":  s.denyPodAndConfigMap,
		"deny-attach":             s.denyAttach,
		"unreachable":             s.unreachable,
		"mutate-configmap":        s.mutateConfigMap,
		"mutate-pod":              s.mutatePod,
		"deny-crd":                s.denyCRD,
		"configurations":          s.configurations,
		"timeouts":                s.timeouts,
		"object-selector":         s.objectSelector,
		"namespace-selector":      s.namespaceSelector,
		"match-conditions":        s.matchConditions,
		"hanging-pod":             s.hangingPod,
		"deny-custom-resource":    s.denyCustomResource,
		"mutate-custom-resource":  s.mutateCustomResource,
		"custom-resource-storage": s.otherStorage,
	} {
		t.Run(name, func(t *testing.T) { test(t, s.namespace(t, name)) })
	}
}

// denied checks that the error is a denial by webhook i, or its failure, and contains the text.
func denied(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got error %v, want one with %q", err, text)
	}
}

func allowed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("got error %v, want none", err)
	}
}

func config(namespace, name, data string) string {
	return `{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + name + `, namespace: ` + namespace + `}, data: {` + data + `}}`
}

func pod(namespace, container string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ` + namespace + `}, spec: {containers: [{name: ` +
		container + `, image: i}]}}`
}

func (s *stand) denyPodAndConfigMap(t *testing.T, namespace string) {
	s.validating(t, s.hook("/validate/DenyUnwanted"))
	_, err := s.create(t, pod(namespace, "webhook-disallow"))
	denied(t, err, cluster.Prefix(0)+`DenyUnwanted: pods "p" is forbidden: the pod contains unwanted container name`)
	_, err = s.create(t, config(namespace, "c", "webhook-e2e-test: webhook-disallow"))
	denied(t, err, "the data contains unwanted key and value")

	allowedOne := s.mustCreate(t, config(namespace, "c", "k: v"))
	unstructured.SetNestedField(allowedOne.Object, "webhook-disallow", "data", "webhook-e2e-test")
	resource, err := s.Resource(allowedOne)
	if err != nil {
		t.Fatal(err)
	}
	_, err = resource.Update(context.Background(), allowedOne, metav1.UpdateOptions{})
	denied(t, err, "the data contains unwanted key and value")
	_, err = resource.Patch(context.Background(), "c", types.MergePatchType, []byte(`{"data":{"webhook-e2e-test":"webhook-disallow"}}`),
		metav1.PatchOptions{})
	denied(t, err, "the data contains unwanted key and value")
}

func (s *stand) denyAttach(t *testing.T, namespace string) {
	s.mustCreate(t, pod(namespace, "c"))
	s.validating(t, s.hook("/validate/DenyAttach"))
	uri := "/api/v1/namespaces/" + namespace + "/pods/p/"
	err := s.Client.CoreV1().RESTClient().Post().RequestURI(uri + "attach?stdout=true").Do(context.Background()).Error()
	denied(t, err, "attaching to pod 'to-be-attached-pod' is not allowed")
	err = s.Client.CoreV1().RESTClient().Post().RequestURI(uri + "exec?command=ls&stdout=true").Do(context.Background()).Error()
	denied(t, err, "pod p does not have a host assigned")
}

func (s *stand) unreachable(t *testing.T, namespace string) {
	s.validating(t, cluster.Webhook{URL: "https://127.0.0.1:1/validate", CA: s.authority.PEM,
		Rules: cluster.Rules("CREATE", "", "v1", "configmaps")})
	_, err := s.create(t, config(namespace, "c", "k: v"))
	if !apierrors.IsInternalError(err) {
		t.Errorf("got error %v, want an internal one", err)
	}
}

func (s *stand) mutateConfigMap(t *testing.T, namespace string) {
	s.mutating(t, s.hook("/mutate/StageOne"), s.hook("/mutate/StageTwo"))
	data, _, _ := unstructured.NestedStringMap(s.mustCreate(t, config(namespace, "c", `mutation-start: "yes"`)).Object, "data")
	if len(data) != 3 || data["mutation-stage-1"] != "yes" || data["mutation-stage-2"] != "yes" {
		t.Errorf("got data %v, want both stages", data)
	}
}

func (s *stand) mutatePod(t *testing.T, namespace string) {
	hook := s.hook("/mutate/AddInitContainer")
	hook.Rules = cluster.Rules("CREATE", "", "v1", "pods")
	s.mutating(t, hook)
	containers, _, _ := unstructured.NestedSlice(s.mustCreate(t, pod(namespace, "c")).Object, "spec", "initContainers")
	if len(containers) != 1 {
		t.Fatalf("got init containers %v, want one", containers)
	}
	got := containers[0].(map[string]any)
	if got["name"] != "webhook-added-init-container" || got["terminationMessagePolicy"] != "File" || got["imagePullPolicy"] != "Always" {
		t.Errorf("got init container %v, want the one added, with defaults", got)
	}
}

func (s *stand) denyCRD(t *testing.T, _ string) {
	s.validating(t, s.hook("/validate/DenyUnwanted"))
	_, err := s.create(t, strings.Replace(definition("denied", "v1"), "metadata: {",
		"metadata: {labels: {webhook-e2e-test: webhook-disallow}, ", 1))
	denied(t, err, "the labels contain unwanted values")
}

// configurations checks that users cannot lock themselves out.
func (s *stand) configurations(t *testing.T, _ string) {
	s.validating(t, s.hook("/validate/AlwaysDeny"))
	s.mutating(t, s.hook("/mutate/Echo"))
	for _, kind := range []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"} {
		dummy, err := s.create(t, `{apiVersion: admissionregistration.k8s.io/v1, kind: `+kind+`, metadata: {name: dummy}}`)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if dummy.GetAnnotations()[echoed] != "" {
			t.Errorf("%s: it was mutated: %v", kind, dummy)
		}
		resource, err := s.Resource(dummy)
		if err != nil {
			t.Fatal(err)
		}
		allowed(t, resource.Delete(context.Background(), "dummy", metav1.DeleteOptions{}))
	}
}

// timeouts calls a webhook that takes three seconds.
func (s *stand) timeouts(t *testing.T, namespace string) {
	f := func(name string, seconds int32, policy admissionregistrationv1.FailurePolicyType, failure string) {
		t.Run(name, func(t *testing.T) {
			hook := s.hook("/validate/Slow")
			hook.Rules = cluster.Rules("CREATE", "", "v1", "pods")
			hook.Timeout, hook.FailurePolicy = seconds, policy
			s.validating(t, hook)
			_, err := s.create(t, strings.Replace(pod(namespace, "c"), "name: p,", "name: "+name+",", 1))
			if failure != "" {
				denied(t, err, failure)
			} else {
				allowed(t, err)
			}
		})
	}
	f("shorter-fail", 1, admissionregistrationv1.Fail, "context deadline exceeded")
	f("shorter-ignore", 1, admissionregistrationv1.Ignore, "")
	f("longer", 20, admissionregistrationv1.Fail, "")
	f("default", 0, admissionregistrationv1.Fail, "")
}

func (s *stand) objectSelector(t *testing.T, namespace string) {
	hook := s.hook("/validate/DenyUnwanted")
	hook.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	s.validating(t, hook)
	unwanted := config(namespace, "c", "webhook-e2e-test: webhook-disallow")
	_, err := s.create(t, unwanted)
	denied(t, err, "the data contains unwanted key and value")
	_, err = s.create(t, strings.Replace(unwanted, "metadata: {", `metadata: {labels: {skip: "yes"}, `, 1))
	allowed(t, err)
}

func (s *stand) namespaceSelector(t *testing.T, namespace string) {
	const label = "skip-webhook-admission"
	hook := s.hook("/validate/DenyUnwanted")
	hook.Namespaces = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: label, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"yes"}}}}
	s.validating(t, hook)
	_, err := s.create(t, config(namespace, "c", "webhook-e2e-test: webhook-disallow"))
	denied(t, err, "the data contains unwanted key and value")
	s.mustCreate(t, `{apiVersion: v1, kind: Namespace, metadata: {name: exempted, labels: {`+label+`: "yes"}}}`)
	_, err = s.create(t, config("exempted", "c", "webhook-e2e-test: webhook-disallow"))
	allowed(t, err)
}

func (s *stand) matchConditions(t *testing.T, namespace string) {
	denying, mutating := s.hook("/validate/AlwaysDeny"), s.hook("/mutate/StageOne")
	mutating.Rules = cluster.Rules("CREATE", "", "v1", "configmaps")
	mutating.Conditions = []admissionregistrationv1.MatchCondition{{Name: "skip-me", Expression: "object.metadata.name != 'skip-me'"}}
	denying.Rules = mutating.Rules
	denying.Conditions = []admissionregistrationv1.MatchCondition{{Name: "deny-me", Expression: "object.metadata.name == 'deny-me'"}}
	s.mutating(t, mutating)
	s.validating(t, denying)
	stages(t, s.mustCreate(t, config(namespace, "c", `mutation-start: "yes"`)), "mutation-start", "mutation-stage-1")
	stages(t, s.mustCreate(t, config(namespace, "skip-me", `mutation-start: "yes"`)), "mutation-start")
	_, err := s.create(t, config(namespace, "deny-me", `mutation-start: "yes"`))
	denied(t, err, cluster.Prefix(0))
}

// hangingPod is denied because its webhook never answers, and is not stored.
func (s *stand) hangingPod(t *testing.T, namespace string) {
	hook := s.hook("/validate/DenyUnwanted")
	hook.Timeout = 1
	s.validating(t, hook)
	_, err := s.create(t, strings.Replace(pod(namespace, "c"), "name: p,", "name: p, labels: {webhook-e2e-test: wait-forever},", 1))
	denied(t, err, "failed calling webhook")
	denied(t, err, "deadline")
	_, err = s.Client.CoreV1().Pods(namespace).Get(context.Background(), "p", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want no such pod", err)
	}
}
