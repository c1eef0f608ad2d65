// Package engines applies policies of Kyverno and Gatekeeper to a cluster whose
// CustomResourceDefinitions are those engines' by name only, and checks that fastadmit follows them.
// It applies what "fastadmit convert" prints to a second cluster, which must decide alike without
// fastadmit.
package engines

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// definition returns the CustomResourceDefinition of a kind.
func definition(group, version, plural, kind, scope string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]s.%[1]s}
spec:
  group: %[1]s
  scope: %[5]s
  names: {plural: %[3]s, singular: %[6]s, kind: %[4]s}
  versions:
  - name: %[2]s
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`, group, version, plural, kind, scope, strings.ToLower(kind))
}

var (
	kyvernoDefinitions = definition("policies.kyverno.io", "v1", "validatingpolicies", "ValidatingPolicy", "Cluster") +
		definition("policies.kyverno.io", "v1", "namespacedvalidatingpolicies", "NamespacedValidatingPolicy", "Namespaced") +
		definition("policies.kyverno.io", "v1", "mutatingpolicies", "MutatingPolicy", "Cluster") +
		definition("policies.kyverno.io", "v1", "policyexceptions", "PolicyException", "Namespaced")
	classicDefinition = definition("kyverno.io", "v1", "clusterpolicies", "ClusterPolicy", "Cluster")
	// Gatekeeper makes the second one of the template.
	gatekeeperDefinitions = definition("templates.gatekeeper.sh", "v1", "constrainttemplates", "ConstraintTemplate", "Cluster")
	constraintDefinition  = definition("constraints.gatekeeper.sh", "v1beta1", "ownerrequired", "OwnerRequired", "Cluster")
)

const (
	noLatest = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-latest}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - expression: object.spec.containers.all(c, image(c.image).tag() != 'latest')
    message: %s
`
	inShop = `apiVersion: policies.kyverno.io/v1
kind: NamespacedValidatingPolicy
metadata: {name: small, namespace: shop}
spec:
  validationActions: [Deny, Warn]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations:
  - expression: object.?data.orValue({}).size() < 2
    message: at most one key
`
	team = `apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: team}
spec:
  autogen: {podControllers: {controllers: []}} # Kyverno does not rewrite Object.metadata
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "Object{metadata: Object.metadata{labels: {'team': 'a'}}}"
`
	// noHostPath removes elements of a list.
	noHostPath = `apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: no-host-path}
spec:
  autogen: {podControllers: {controllers: []}}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: volumes, expression: has(object.spec.volumes)}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: "[JSONPatch{op: 'replace', path: '/spec/volumes', value: object.spec.volumes.filter(v, !has(v.hostPath))}]"
`
	noHostNetwork = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: no-host}
spec:
  validationFailureAction: Enforce
  rules:
  - name: network
    match: {any: [{resources: {kinds: [Pod], operations: [CREATE]}}]}
    validate:
      message: no host network
      cel: {expressions: [{expression: '!object.spec.?hostNetwork.orValue(false)'}]}
`
	ownerTemplate = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: ownerrequired}
spec:
  crd: {spec: {names: {kind: OwnerRequired}, validation: {openAPIV3Schema: {type: object, properties: {label: {type: string,
	default: owner}}}}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: K8sNativeValidation
      source:
        validations:
        - expression: has(variables.anyObject.metadata.labels) && variables.params.label in variables.anyObject.metadata.labels
          messageExpression: "'want the label ' + variables.params.label"
`
	ownerConstraint = `apiVersion: constraints.gatekeeper.sh/v1beta1
kind: OwnerRequired
metadata: {name: services}
spec:
  enforcementAction: warn
  match: {kinds: [{apiGroups: [""], kinds: [Service]}], excludedNamespaces: [kube-system]}
  parameters: {}
`
	registries = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: asks-registries}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
  validations: [{expression: image.GetMetadata('a').config.size() > 0}]
`
	reads = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: reads}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [secrets]}]
  validations:
  - expression: resource.Get('v1', 'configmaps', object.metadata.namespace, json.unmarshal('"for-"') + object.metadata.name) != null
    message: it has no ConfigMap
  - expression: resource.List('v1', 'configmaps', object.metadata.namespace).items.all(c, c.?data.orValue({}).size() == 0)
    message: a ConfigMap has data
`
	configuration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: ValidatingAdmissionPolicyConfiguration, read: [kyverno, gatekeeper]}
- name: MutatingAdmissionPolicy
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: MutatingAdmissionPolicyConfiguration, read: [kyverno]}
`
)

// A request creates an object. stderr has what kubectl must say; the object must have the label team.
type request struct{ what, object, stderr, team string }

const podText = `apiVersion: v1
kind: Pod
metadata: {name: p, namespace: shop}
spec:
  automountServiceAccountToken: false
  hostNetwork: %v
  containers: [{name: c, image: '%s'}]
`

// says sends a request as a dry run, and compares what kubectl says.
func says(t *testing.T, s *cluster.APIServer, r *request) error {
	stdout, stderr, err := s.Kubectl(t, r.object, "create", "--dry-run=server", "-o", "jsonpath={.metadata.labels.team}", "-f", "-")
	switch {
	case r.stderr == "" && stderr != "", !strings.Contains(stderr, r.stderr):
		return fmt.Errorf("%s: got %s, want %q", r.what, stderr, r.stderr)
	case err == nil && stdout != r.team:
		return fmt.Errorf("%s: got the team %q, want %q", r.what, stdout, r.team)
	}
	return nil
}

// TestEngines follows the life of policies of both engines.
func TestEngines(t *testing.T) {
	t.Parallel()
	etcd, authority := cluster.StartEtcd(t), cluster.NewAuthority(t)
	kubernetes := etcd.StartAPIServer(t, cluster.APIServerOptions{
		Name: "kubernetes", Prefix: "a", On: []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"},
	})
	s := etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "engines", Prefix: "b"})
	for _, server := range []*cluster.APIServer{kubernetes, s} {
		server.MustKubectl(t, "", "create", "namespace", "shop")
		server.MustKubectl(t, "", "create", "serviceaccount", "default", "-n", "shop")
	}
	fastadmit := cluster.StartFastadmit(t, cluster.Binary, authority, "--kubeconfig", s.Kubeconfig(t),
		"--enable-admission-plugins", "ValidatingAdmissionPolicy,MutatingAdmissionPolicy,AlwaysDeny", // which is the marker
		"--admission-control-config-file", cluster.WriteFile(t, "admission.yaml", []byte(configuration)))
	marker := cluster.Webhook{URL: fastadmit.URL, CA: authority.PEM}
	hook := func(phase string) cluster.Webhook {
		return cluster.Webhook{
			URL: fastadmit.URL + "/" + phase + "AdmissionPolicy", CA: authority.PEM,
			Rules: cluster.Rules("CREATE", "*", "v1", "pods", "services", "configmaps", "secrets", "deployments"),
		}
	}
	s.Validating(t, marker, hook("validate/Validating"))
	s.Mutating(t, marker, hook("mutate/Mutating"))

	s.MustKubectl(t, kyvernoDefinitions+classicDefinition+gatekeeperDefinitions, "apply", "-f", "-")
	s.MustKubectl(t, "", "wait", "--for", "condition=established", "customresourcedefinitions", "--all")
	message := "images must have a version"
	kyverno := fmt.Sprintf(noLatest, message) + "---\n" + inShop + "---\n" + team + "---\n" + noHostNetwork
	s.MustKubectl(t, kyverno+"---\n"+ownerTemplate, "apply", "-f", "-")
	s.MustKubectl(t, constraintDefinition, "apply", "-f", "-")
	s.MustKubectl(t, "", "wait", "--for", "condition=established", "customresourcedefinitions", "--all")
	s.MustKubectl(t, ownerConstraint, "apply", "-f", "-")
	kubernetes.MustKubectl(t, convert(t, kyverno+"---\n"+ownerTemplate+"---\n"+ownerConstraint), "apply", "-f", "-")

	requests := []request{
		{"a Pod", fmt.Sprintf(podText, false, "a:1"), "", "a"},
		{"a Pod without a version", fmt.Sprintf(podText, false, "a"),
			"ValidatingAdmissionPolicy 'no-latest' with binding 'no-latest' denied request: " + message, ""},
		{"a Pod with the host's network", fmt.Sprintf(podText, true, "a:1"),
			"ValidatingAdmissionPolicy 'no-host.network' with binding 'no-host.network' denied request: no host network", ""},
		{"a Deployment", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: shop}\n" +
			"spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: a}]}}}\n",
			"ValidatingAdmissionPolicy 'no-latest.autogen-defaults' with binding 'no-latest.autogen-defaults' denied request: " +
				message, ""},
		{"a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: shop}\ndata: {a: b, c: d}\n",
			"ValidatingAdmissionPolicy 'shop.small' with binding 'shop.small' denied request: at most one key", ""},
		{"a ConfigMap elsewhere", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: default}\ndata: {a: b, c: d}\n", "", ""},
		{"a Service", "apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: shop}\nspec: {ports: [{port: 1}]}\n",
			"Validation failed for ValidatingAdmissionPolicy 'ownerrequired.services' with binding 'ownerrequired.services': want the " +
				"label owner", ""},
	}
	for i := range requests {
		for _, server := range []*cluster.APIServer{kubernetes, s} {
			cluster.Await(t, requests[i].what, func() error { return says(t, server, &requests[i]) })
		}
	}
	changedLists(t, kubernetes, s)
	changes(t, s)
	accepted(t, kubernetes)
}

// changedLists removes elements of a list of a Pod. kube-apiserver v1.37 cannot, because the policy has match conditions.
func changedLists(t *testing.T, kubernetes, s *cluster.APIServer) {
	t.Helper()
	kubernetes.MustKubectl(t, "", "delete", "mutatingadmissionpolicies", "--all")
	s.MustKubectl(t, noHostPath, "apply", "-f", "-")
	kubernetes.MustKubectl(t, convert(t, noHostPath), "apply", "-f", "-")
	pod := fmt.Sprintf(podText, false, "a:1") + "  volumes: [{name: a, emptyDir: {}}, {name: b, hostPath: {path: /}}]\n"
	created := func(server *cluster.APIServer) (names, stderr string) {
		names, stderr, _ = server.Kubectl(t, pod, "create", "--dry-run=server", "-o", "jsonpath={.spec.volumes[*].name}", "-f", "-")
		return names, stderr
	}
	cluster.Await(t, "a shorter list", func() error {
		if names, stderr := created(s); names != "a" {
			return fmt.Errorf("got the volumes %q, %s, want a", names, stderr)
		}
		return nil
	})
	cluster.Await(t, "kube-apiserver to fail", func() error {
		if names, stderr := created(kubernetes); !inTreeFails.MatchString(stderr) {
			return fmt.Errorf("got the volumes %q, %s, want an error like %s", names, stderr, inTreeFails)
		}
		return nil
	})
	kubernetes.MustKubectl(t, "", "delete", "mutatingadmissionpolicy", "no-host-path")
}

// accepted has an API server without fastadmit accept what the documents in testdata are converted to.
func accepted(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		converted := convert(t, string(text))
		created := s.MustKubectl(t, converted, "create", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
		if got, want := strings.Count(created, "\n"), strings.Count("\n"+converted, "\nkind: "); got != want || want < 2 {
			t.Errorf("%s: got %d objects, want %d: %s", file, got, want, created)
		}
	}
}

// changes changes and deletes policies and a CustomResourceDefinition.
func changes(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	becomes := func(r *request) {
		t.Helper()
		cluster.Await(t, r.what, func() error { return says(t, s, r) })
	}
	s.MustKubectl(t, fmt.Sprintf(noLatest, "latest can change"), "apply", "-f", "-")
	pod := fmt.Sprintf(podText, false, "a")
	becomes(&request{"another message", pod, "denied request: latest can change", ""})
	s.MustKubectl(t, "", "delete", "mutatingpolicies,validatingpolicies", "--all")
	becomes(&request{"no policy", pod, "", ""})

	host := fmt.Sprintf(podText, true, "a")
	becomes(&request{"the older policy", host, "no host network", ""})
	s.MustKubectl(t, "", "delete", "customresourcedefinition", "clusterpolicies.kyverno.io")
	becomes(&request{"no definition", host, "", ""})

	s.MustKubectl(t, registries, "apply", "-f", "-")
	const said = "the function image.GetMetadata of Kyverno has no translation"
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\n"
	becomes(&request{"a policy without translation", secret, "ValidatingAdmissionPolicy 'asks-registries' denied request: failed to " +
		"configure policy: " +
		"spec.validations[0].expression: " + said, ""})
	cluster.Await(t, "an Event", func() error {
		text := s.MustKubectl(t, "", "get", "events", "-n", "default", "--field-selector", "involvedObject.name=asks-registries",
			"-o", "jsonpath={..message}")
		return cluster.WantError(errors.New(text), "fastadmit: it cannot be evaluated, so requests that it selects are denied, as its "+
			"failure policy asks: "+
			"spec.validations[0].expression: "+said)
	})
	s.MustKubectl(t, "", "delete", "validatingpolicies", "--all")
	becomes(&request{"no policy without translation", secret, "", ""})

	s.MustKubectl(t, reads, "apply", "-f", "-")
	becomes(&request{"an object that a policy reads does not exist", secret, "denied request: it has no ConfigMap", ""})
	s.MustKubectl(t, "", "create", "configmap", "for-s", "-n", "shop")
	becomes(&request{"it exists", secret, "", ""})
	s.MustKubectl(t, "", "create", "configmap", "other", "-n", "shop", "--from-literal=a=b")
	becomes(&request{"another one has data", secret, "denied request: a ConfigMap has data", ""})
}

// convert returns what "fastadmit convert" prints.
func convert(t *testing.T, documents string) string {
	t.Helper()
	cmd := exec.Command(cluster.Binary, "convert", "-")
	cmd.Stdin = strings.NewReader(documents)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	return string(stdout)
}
