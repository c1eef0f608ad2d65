package deploy_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// A configuration has the fields of the configuration file that the tests look at.
type configuration struct {
	EnableAdmissionPlugins []string
	Plugins                []map[string]any
	Shadow                 struct {
		EnableAdmissionPlugins []string
		Plugins                []map[string]any
		ProcessorPercent       int
	}
}

// configured returns the configuration in a release.
func configured(t *testing.T, r release) (c configuration) {
	t.Helper()
	for _, m := range only[corev1.ConfigMap](t, r, "ConfigMap") {
		if text, ok := m.Data["configuration.yaml"]; ok {
			if err := yaml.Unmarshal([]byte(text), &c); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// TestShadow tries plugins and a policy, and then moves the values to their places: the configuration is the one that
// was tried.
func TestShadow(t *testing.T) {
	t.Parallel()
	if c := configured(t, render(t, somePlugins, "")); c.Shadow.Plugins != nil {
		t.Errorf("without values: got %+v", c.Shadow)
	}
	r := render(t, somePlugins+triedValues+"  policies: {shipped: {no-privileged-containers: {validationActions: [Deny]}}}\n"+
		"policies: {shipped: {no-latest-tag: {}}}\n", "")
	c := configured(t, r)
	names := []string{"DenyServiceExternalIPs", "EventRateLimit", "NamespaceAutoProvision", "PodSecurity", "ValidatingAdmissionPolicy"}
	if !slices.Equal(c.Shadow.EnableAdmissionPlugins, names) || c.Shadow.ProcessorPercent != 5 {
		t.Errorf("got %+v", c.Shadow)
	}
	moved := configured(t, render(t, `
plugins:
  AlwaysPullImages: {}
  NamespaceAutoProvision: {rules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  PodSecurity: {namespaceSelector: {matchLabels: {a: b}}}
  DenyServiceExternalIPs: {failurePolicy: Ignore}
  EventRateLimit:
    configuration:
      apiVersion: eventratelimit.admission.k8s.io/v1alpha1
      kind: Configuration
      limits: [{type: Server, qps: 5, burst: 10}]
policies: {shipped: {no-latest-tag: {}, no-privileged-containers: {validationActions: [Deny]}}}
`, ""))
	for _, want := range moved.Plugins {
		same := func(p map[string]any) bool { return p["name"] == want["name"] }
		if i := slices.IndexFunc(c.Shadow.Plugins, same); i >= 0 && !reflect.DeepEqual(c.Shadow.Plugins[i], want) {
			t.Errorf("got %+v, want %+v", c.Shadow.Plugins[i], want)
		}
	}
	for _, m := range only[corev1.ConfigMap](t, r, "ConfigMap") {
		text := m.Data["shadow-policy.no-privileged-containers.yaml"]
		if m.Data["configuration.yaml"] != "" && !strings.Contains(text, "- Deny") {
			t.Errorf("got the policy %q", text)
		}
	}
	for _, role := range only[rbacv1.ClusterRole](t, r, "ClusterRole") {
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "namespaces") && slices.Contains(rule.Verbs, "create") {
				t.Error("the shadow may create namespaces")
			}
		}
	}
}
