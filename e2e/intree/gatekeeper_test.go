package intree

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// Gatekeeper's constraint has the expressions of the policy that validates; its
// mutations do what AlwaysPullImages does.
const (
	template = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: podrules%[1]s}
spec:
  crd: {spec: {names: {kind: PodRules%[1]s}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: K8sNativeValidation
      source: {generateVAP: false, validations: [%[2]s]}
`
	constraint = `apiVersion: constraints.gatekeeper.sh/v1beta1
kind: PodRules%s
metadata: {name: pods}
spec: {match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}}
`
	mutation = `apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: %s}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  match: {scope: Namespaced}
  location: 'spec.%s[name:*].imagePullPolicy'
  parameters: {assign: {value: Always}}
---
`
)

// startGatekeeper starts Gatekeeper v3.23.1. Its templates, constraints and mutations are in the same cluster.
// It is registered like the other webhooks.
func (s *stand) startGatekeeper(t *testing.T, authority *cluster.Authority) *cluster.Fastadmit {
	t.Helper()
	manifests, err := os.ReadFile(cluster.Built("gatekeeper.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds string
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		if strings.Contains(document, "\nkind: CustomResourceDefinition\n") || strings.Contains(document, "\nkind: Namespace\n") {
			kinds += document + "\n---\n"
		}
	}
	s.MustKubectl(t, kinds, "create", "-f", "-")
	s.AwaitCRDs(t)
	address := testserver.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := authority.Sign(t, cluster.Serving(time.Now().Add(time.Hour), host))
	certificates := filepath.Dir(cluster.WriteFile(t, "tls.crt", certificate))
	for name, content := range map[string][]byte{"tls.key": key, "ca.crt": authority.PEM} {
		if err := os.WriteFile(filepath.Join(certificates, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, metrics, err := net.SplitHostPort(testserver.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	process := cluster.Start(t, "gatekeeper", nil, cluster.Built("gatekeeper"), "--kubeconfig", s.Kubeconfig(t), "--debug-use-fake-pod",
		"--disable-cert-rotation",
		"--cert-dir", certificates, "--host", host, "--port", port, "--health-addr", testserver.FreeAddress(t),
		"--prometheus-port", metrics,
		"--operation", "webhook", "--operation", "mutation-webhook", "--operation", "generate", "--exempt-namespace", "gatekeeper-system")
	return &cluster.Fastadmit{Process: process, URL: "https://" + address}
}

// rule returns a validation of a template.
func rule(expression string) string {
	return fmt.Sprintf("{expression: %q, message: wrong}", expression)
}

// constrain creates the constraint and the mutations.
func (s *stand) constrain(t *testing.T) {
	t.Helper()
	var rules []string
	for _, v := range s.policy.Spec.Validations {
		rules = append(rules, rule(v.Expression))
	}
	pulls := fmt.Sprintf(mutation, "pull", "containers") + fmt.Sprintf(mutation, "pull-first", "initContainers")
	s.MustKubectl(t, pulls+fmt.Sprintf(template, "", strings.Join(rules, ", ")), "create", "-f", "-")
	cluster.Await(t, "the kind of the template", func() error {
		_, stderr, err := s.Kubectl(t, fmt.Sprintf(constraint, ""), "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	})
}
