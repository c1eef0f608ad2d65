package behind

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// templates require labels and a registry.
const templates = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: labelsrequired}
spec:
  crd:
    spec:
      names: {kind: LabelsRequired}
      validation:
        openAPIV3Schema: {type: object, properties: {labels: {type: array, items: {type: string}}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package labelsrequired
      violation[{"msg": msg, "details": {"missing": missing}}] {
        missing := {l | l := input.parameters.labels[_]} - {l | input.review.object.metadata.labels[l]}
        count(missing) > 0
        msg := sprintf("%s lacks the labels %v (%s)", [input.review.object.metadata.name, missing, input.review.operation])
      }
---
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: imagetagged}
spec:
  crd: {spec: {names: {kind: ImageTagged}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    rego: |
      package imagetagged
      containers[c] { c := input.review.object.spec.containers[_] }
      containers[c] { c := input.review.object.spec.template.spec.containers[_] }
      violation[{"msg": msg}] {
        c := containers[_]
        not contains(c.image, ":")
        msg := sprintf("container %q has the image %q, which has no tag", [c.name, c.image])
      }
`

// constraints deny and warn; mutations add a label, a policy and a toleration.
const (
	constraints = `apiVersion: constraints.gatekeeper.sh/v1beta1
kind: LabelsRequired
metadata: {name: pods-have-a-tier}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}
  parameters: {labels: [behind.example.com/tier]}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: LabelsRequired
metadata: {name: configmaps-should-have-a-tier}
spec:
  enforcementAction: warn
  match: {kinds: [{apiGroups: [""], kinds: [ConfigMap]}], namespaces: [default]}
  parameters: {labels: [behind.example.com/tier, owner]}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: ImageTagged
metadata: {name: deployments-have-tags}
spec:
  match: {kinds: [{apiGroups: [apps], kinds: [Deployment]}]}
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: ImageTagged
metadata: {name: pods-with-tags-are-only-tried}
spec:
  enforcementAction: dryrun
  match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}
`
	mutations = `apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: owner}
spec:
  match: {scope: Namespaced, kinds: [{apiGroups: ["*"], kinds: [Pod, Deployment, ConfigMap]}], excludedNamespaces: [kube-system]}
  location: metadata.labels.owner
  parameters: {assign: {value: gatekeeper}}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: pull}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  match: {scope: Namespaced}
  location: 'spec.containers[name:*].imagePullPolicy'
  parameters: {assign: {value: Always}}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: ModifySet
metadata: {name: arguments}
spec:
  applyTo: [{groups: [apps], versions: [v1], kinds: [Deployment]}]
  location: 'spec.template.spec.containers[name: c0].args'
  parameters: {operation: merge, values: {fromList: [--verbose]}}
`
	// gated is an object that each of them concerns.
	gated = `
- {kind: Pod, spec: {containers: [{name: c, image: "i:v1"}]}}
- {kind: Pod, labels: {behind.example.com/tier: a}, spec: {containers: [{name: c, image: i, imagePullPolicy: Never}]}}
- {kind: Pod, labels: {behind.example.com/tier: a, owner: me}, spec: {containers: [{name: c, image: "i:v1"}]}}
- {kind: ConfigMap, data: {a: b}}
- {kind: ConfigMap, labels: {behind.example.com/tier: a}}
- {kind: Namespace, labels: {admission.gatekeeper.sh/ignore: a}}
- kind: Deployment
  spec: {replicas: 3, selector: {matchLabels: {a: a}}, template: {metadata: {labels: {a: a}}, spec: {containers: [{name: c, image: i}]}}}
- kind: Deployment
  spec: {replicas: 3, selector: {matchLabels: {a: a}}, template: {metadata: {labels: {a: a}}, spec: {containers: [{name: c0, image: ` +
		`"i:1"}]}}}
`
)

// gatekeeper returns the kinds in Gatekeeper's own manifests, and its webhook configurations with
// that URL.
func gatekeeper(t *testing.T, url string, ca []byte) (kinds string, c configurations) {
	t.Helper()
	content, err := os.ReadFile(cluster.Built("gatekeeper.yaml"))
	if err != nil {
		t.Fatalf("%v; make e2e-full puts it there", err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		object := parse(t, document)
		var into any
		switch object.GetKind() {
		case "CustomResourceDefinition", "Namespace":
			kinds += document + "\n---\n"
		case "MutatingWebhookConfiguration":
			c.mutating = new(admissionregistrationv1.MutatingWebhookConfiguration)
			into = c.mutating
		case "ValidatingWebhookConfiguration":
			c.validating = new(admissionregistrationv1.ValidatingWebhookConfiguration)
			into = c.validating
		}
		if into != nil {
			if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The test has no Service, and a failure must be visible.
	fail, timeout := admissionregistrationv1.Fail, int32(10)
	client := func(c *admissionregistrationv1.WebhookClientConfig) {
		c.URL, c.Service, c.CABundle = new(url+*c.Service.Path), nil, ca
	}
	for i := range c.mutating.Webhooks {
		w := &c.mutating.Webhooks[i]
		client(&w.ClientConfig)
		w.FailurePolicy, w.TimeoutSeconds = &fail, &timeout
	}
	for i := range c.validating.Webhooks {
		w := &c.validating.Webhooks[i]
		client(&w.ClientConfig)
		w.FailurePolicy, w.TimeoutSeconds = &fail, &timeout
	}
	return kinds, c
}

// TestGatekeeper compares both sides with Gatekeeper. Its constraints and mutations are in the
// first cluster.
func TestGatekeeper(t *testing.T) {
	if os.Getenv(tally.Full) == "" {
		t.Skipf("Gatekeeper is built for make e2e-full alone; %s=1 asks for it", tally.Full)
	}
	etcd, authority := cluster.StartEtcd(t), cluster.NewAuthority(t)
	first := etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "itself", Prefix: "itself"})
	address := testserver.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	_, metrics, err := net.SplitHostPort(testserver.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	kinds, c := gatekeeper(t, "https://"+address, authority.PEM)
	first.MustKubectl(t, kinds, "create", "-f", "-")
	first.AwaitCRDs(t)
	cluster.Start(t, "gatekeeper", nil, cluster.Built("gatekeeper"), "--kubeconfig", first.Kubeconfig(t), "--debug-use-fake-pod",
		"--disable-cert-rotation",
		"--cert-dir", certificate(t, authority, host), "--host", host, "--port", port, "--health-addr", testserver.FreeAddress(t),
		"--prometheus-port", metrics,
		"--operation", "webhook", "--operation", "mutation-webhook", "--operation", "generate", "--exempt-namespace", "gatekeeper-system")
	first.MustKubectl(t, mutations+"---\n"+templates, "create", "-f", "-")
	cluster.Await(t, "the kinds of the templates", func() error {
		_, stderr, err := first.Kubectl(t, constraints, "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	})
	s := start(t, etcd, authority, first, c)
	s.await(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"ready"},"spec":{"containers":[{"name":"c","image":"i"}]}}`,
		"ready lacks the labels")
	g := newGenerator(t)
	g.wanted = []string{"lacks the labels", "which has no tag", `"owner":"gatekeeper"`, `"imagePullPolicy":"Always"`, "--verbose",
		"admission.gatekeeper.sh/ignore"}
	g.all(fixed(t, gated), func(object *unstructured.Unstructured) { object.SetLabels(map[string]string{prefix + "tier": "a"}) })
	s.compare(t, "Gatekeeper", g)
}
