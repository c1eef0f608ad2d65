package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const (
	policyValues = `
shutdownDelaySeconds: 2
shutdownIdleSeconds: 0
policies:
  customResources: true
  paramKinds:
  - {apiGroups: [""], resources: [configmaps]}
`
	// labelPolicy requires the label that a ConfigMap names.
	labelPolicy = `apiVersion: policies.fastadmit.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: required-label}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}
  validations:
  - expression: has(object.metadata.labels) && params.data.label in object.metadata.labels
    messageExpression: "'want the label ' + params.data.label"
---
apiVersion: policies.fastadmit.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: required-label}
spec:
  policyName: required-label
  paramRef: {name: required, namespace: shop, parameterNotFoundAction: Deny}
  validationActions: [Deny]
`
	requiredLabel = `apiVersion: v1
kind: ConfigMap
metadata: {name: required, namespace: shop}
data: {label: %q}
`
	// secretPolicy reads parameters from a kind that fastadmit may not read.
	secretPolicy = `apiVersion: policies.fastadmit.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: secret}
spec:
  paramKind: {apiVersion: v1, kind: Secret}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  validations: [{expression: params != null}]
---
apiVersion: policies.fastadmit.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: secret}
spec: {policyName: secret, paramRef: {name: none, parameterNotFoundAction: Allow}, validationActions: [Deny]}
`
	// pullPolicy sets the imagePullPolicy that a ConfigMap names.
	pullPolicy = `apiVersion: policies.fastadmit.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: pull}
spec:
  reinvocationPolicy: Never
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "replace", path: "/spec/containers/0/imagePullPolicy", value: params.data.pull}]'
---
apiVersion: policies.fastadmit.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: pull}
spec: {policyName: pull, paramRef: {name: pull, namespace: shop, parameterNotFoundAction: Deny}}
`
	pullParameter = `apiVersion: v1
kind: ConfigMap
metadata: {name: pull, namespace: shop}
data: {pull: %q}
`
	badPolicy = `apiVersion: policies.fastadmit.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: bad}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations: [{expression: "object.spec.containers.all(c, c.image"}]
`
)

// policies installs the chart with policies as custom resources, and follows the life of some.
func (s *stand) policies(t *testing.T) {
	s.awaitNoNamespace(t)
	s.startNode(t, cluster.Binary)
	s.helm(t, "upgrade", "--install", "fastadmit", chart, "--create-namespace", "--wait", "--values",
		cluster.WriteFile(t, "values.yaml", []byte(policyValues)))

	s.MustKubectl(t, fmt.Sprintf(requiredLabel, "team")+"---\n"+labelPolicy, "apply", "-f", "-")
	wants := func(label string) {
		t.Helper()
		cluster.Await(t, "a denial for want of "+label, func() error {
			return cluster.WantError(s.service("shop"),
				"ValidatingAdmissionPolicy 'required-label' with binding 'required-label' denied request: want the label "+label)
		})
	}
	wants("team")
	s.awaitCondition(t, "validatingadmissionpolicies", "required-label", "Compiled", "True", "all expressions compile")
	s.awaitCondition(t, "validatingadmissionpolicies", "required-label", "ParametersKnown", "True", "configmaps are watched")
	s.awaitRules(t, "policyexceptions", "services", "validatingadmissionpolicies", "validatingadmissionpolicybindings")
	admin := walkthrough.New(t, s.kubeconfig)
	if said := admin.Does(t, "kubectl describe validatingadmissionpolicies"); !strings.Contains(said, "all expressions compile") {
		t.Errorf("got %s, want the conditions of the policy", said)
	}
	s.MustKubectl(t, fmt.Sprintf(requiredLabel, "owner"), "apply", "-f", "-")
	wants("owner")

	if _, stderr, err := s.Kubectl(t, badPolicy, "apply", "-f", "-"); err == nil ||
		!strings.Contains(stderr, "spec.validations[0].expression: Invalid value") ||
		!strings.Contains(stderr, "<input>:1:38: Syntax error") {
		t.Errorf("got %v %s, want that the expression is refused, with its place", err, stderr)
	}
	s.counts(t, `fastadmit_policies{plugin="ValidatingAdmissionPolicy"} 1`,
		`fastadmit_policy_checks_total{plugin="ValidatingAdmissionPolicy",`+
			`policy="required-label",policy_binding="required-label",enforcement_action="deny",error_type="no_error"} `)
	s.forbiddenParameters(t)
	s.enforced(t, admin)

	s.MustKubectl(t, fmt.Sprintf(pullParameter, "Always")+"---\n"+pullPolicy, "apply", "-f", "-")
	cluster.Await(t, "a Pod that is patched", s.pulls)
	s.MustKubectl(t, fmt.Sprintf(pullParameter, "Never"), "apply", "-f", "-")
	cluster.Await(t, "a Pod that is patched with another parameter",
		func() error { return cluster.WantError(s.pulls(), "got imagePullPolicy Never") })
	s.awaitCondition(t, "mutatingadmissionpolicies", "pull", "Compiled", "True", "all expressions compile")
	s.MustKubectl(t, pullPolicy, "delete", "-f", "-")
	cluster.Await(t, "a Pod that is not patched", func() error { return cluster.WantError(s.pulls(), "got imagePullPolicy IfNotPresent") })

	before := s.names(t)
	s.MustKubectl(t, "", "delete", "pods", "-n", "fastadmit", "-l", "app.kubernetes.io/name=fastadmit", "--wait=false")
	cluster.Await(t, "other pods", func() error {
		if s.names(t) == before {
			return errors.New("they are the same")
		}
		return nil
	})
	wants("owner")
	s.awaitRules(t, "policyexceptions", "services", "validatingadmissionpolicies", "validatingadmissionpolicybindings")

	s.MustKubectl(t, labelPolicy, "delete", "-f", "-")
	cluster.Await(t, "no denial without the policy", func() error { return s.service("shop") })
	s.awaitRules(t, "policyexceptions", "validatingadmissionpolicies", "validatingadmissionpolicybindings")
	s.helm(t, "uninstall", "fastadmit")
	s.removed(t)
	cluster.Await(t, "the end of the PolicyReplicas", func() error {
		_, stderr, _ := s.Kubectl(t, "", "get", "customresourcedefinition", "policyreplicas.policies.fastadmit.io")
		return cluster.WantError(errors.New(stderr), "not found")
	})
	s.MustKubectl(t, "", "get", "validatingadmissionpolicies.policies.fastadmit.io")
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
	s.MustKubectl(t, fmt.Sprintf(requiredLabel, ""), "delete", "-f", "-")
}

// counts checks that one of the pods has these series in its metrics.
func (s *stand) counts(t *testing.T, series ...string) {
	t.Helper()
	var all strings.Builder
	for _, address := range s.opsAddresses(t) {
		all.WriteString(get(t, address+"/metrics"))
	}
	for _, want := range series {
		if !strings.Contains(all.String(), want) {
			t.Errorf("no pod has the series %s", want)
		}
	}
}

// forbiddenParameters creates a policy with parameters that fastadmit may not read.
func (s *stand) forbiddenParameters(t *testing.T) {
	t.Helper()
	s.MustKubectl(t, secretPolicy, "apply", "-f", "-")
	cluster.Await(t, "a denial for what cannot be read", func() error {
		_, _, err := s.Kubectl(t, "", "create", "configmap", "any", "-n", "shop", "--dry-run=server")
		if err == nil {
			return errors.New("it is allowed")
		}
		_, stderr, _ := s.Kubectl(t, "", "create", "configmap", "any", "-n", "shop", "--dry-run=server")
		return cluster.WantError(errors.New(stderr), "failed to configure binding: paramKind kind "+
			"`&ParamKind{APIVersion:v1,Kind:Secret,}` not yet synced to use for admission: ")
	})
	s.awaitCondition(t, "validatingadmissionpolicies", "secret", "ParametersKnown", "False", "secrets is forbidden")
	s.MustKubectl(t, secretPolicy, "delete", "-f", "-")
	cluster.Await(t, "no denial without the policy", func() error {
		_, stderr, err := s.Kubectl(t, "", "create", "configmap", "any", "-n", "shop", "--dry-run=server")
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	})
}

// awaitCondition waits for a condition of a policy whose message contains this text.
func (s *stand) awaitCondition(t *testing.T, resource, policy, condition, status, message string) {
	t.Helper()
	cluster.Await(t, condition+" of "+policy, func() error {
		var object struct {
			Metadata metav1.ObjectMeta
			Status   struct {
				ObservedGeneration int64
				Conditions         []metav1.Condition
			}
		}
		text := s.MustKubectl(t, "", "get", resource+".policies.fastadmit.io", policy, "-o", "json")
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			return err
		}
		for _, c := range object.Status.Conditions {
			if c.Type == condition && string(c.Status) == status && strings.Contains(c.Message, message) &&
				object.Status.ObservedGeneration == object.Metadata.Generation {
				return nil
			}
		}
		return fmt.Errorf("got %+v, want %s %s with %q", object.Status, condition, status, message)
	})
}

// awaitRules waits until kube-apiserver calls fastadmit for these resources and no others.
func (s *stand) awaitRules(t *testing.T, resources ...string) {
	t.Helper()
	cluster.Await(t, "the rules of the policies", func() error {
		registered, err := s.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(context.Background(), "fastadmit.io",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := make(map[string]bool)
		for _, w := range registered.Webhooks {
			for _, rule := range w.Rules {
				for _, resource := range rule.Resources {
					got[resource] = true
				}
			}
		}
		for _, resource := range resources {
			if !got[resource] {
				return fmt.Errorf("got %v, want %v", got, resources)
			}
		}
		if len(got) != len(resources) {
			return fmt.Errorf("got %v, want %v", got, resources)
		}
		return nil
	})
}
