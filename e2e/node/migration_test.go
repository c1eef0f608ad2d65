package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const (
	// olderDefinitions are those of kyverno.io, in a chart. Kyverno publishes them in no module that is small.
	olderDefinitions = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterpolicies.kyverno.io, annotations: {{ toJson .Values.annotations }}}
spec:
  group: kyverno.io
  scope: Cluster
  names: {plural: clusterpolicies, singular: clusterpolicy, kind: ClusterPolicy, shortNames: [cpol]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: policies.kyverno.io, annotations: {{ toJson .Values.annotations }}}
spec:
  group: kyverno.io
  scope: Namespaced
  names: {plural: policies, singular: policy, kind: Policy, shortNames: [pol]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
	// ofKyverno are policies of Kyverno.
	ofKyverno = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-latest}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - expression: object.spec.containers.all(c, image(c.image).tag() != 'latest')
    message: images must have a version
---
apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: {name: legacy, namespace: kyverno}
spec:
  policyRefs: [{name: no-latest, kind: ValidatingPolicy}]
  matchConditions: [{name: legacy, expression: object.metadata.name == 'legacy'}]
---
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: team}
spec:
  autogen: {podControllers: {controllers: []}}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'team': 'a'}}}"}
---
apiVersion: policies.kyverno.io/v1
kind: NamespacedValidatingPolicy
metadata: {name: small, namespace: shop}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations: [{expression: '!has(object.data) || object.data.size() < 2', message: at most one key}]
---
apiVersion: kyverno.io/v1
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
	// untranslatable is a policy that fastadmit does not evaluate.
	untranslatable = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: asks-registries}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [persistentvolumeclaims]}]
  validations: [{expression: image.GetMetadata('a').config.size() > 0}]
`
	// noTranslation is why.
	noTranslation = "the function image.GetMetadata of Kyverno has no translation"

	// ownerTemplate is a template of Gatekeeper, and ownerDefinition what Gatekeeper makes of it.
	ownerTemplate = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: ownerrequired}
spec:
  crd: {spec: {names: {kind: OwnerRequired}, validation: {openAPIV3Schema: {type: object, properties: {label: {type: string}}}}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: K8sNativeValidation
      source:
        validations:
        - expression: has(variables.anyObject.metadata.labels) && variables.params.label in variables.anyObject.metadata.labels
          messageExpression: "'want the label ' + variables.params.label"
`
	ownerDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ownerrequired.constraints.gatekeeper.sh, labels: {gatekeeper.sh/constraint: "yes"}}
spec:
  group: constraints.gatekeeper.sh
  scope: Cluster
  names: {plural: ownerrequired, singular: ownerrequired, kind: OwnerRequired, categories: [constraint, constraints]}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
	ownerConstraint = `apiVersion: constraints.gatekeeper.sh/v1beta1
kind: OwnerRequired
metadata: {name: services}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [Service]}], namespaces: [shop]}
  parameters: {label: owner}
`
)

// shops are the namespaces in which the policies are tried, with objects that violate them. In the second one fastadmit changes objects
// first.
const shops = `{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
  {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tried", "labels": {"fastadmit-mutates": "yes"}}},
  {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "old"}, "data": {"a": "b", "c": "d"}},
  {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "old"}, "spec": {"ports": [{"port": 1}]}}
]}`

// A violation is an object that a policy denies.
type violation struct{ policy, object, message string }

// podIn returns a Pod.
func podIn(namespace, name, image string, hostNetwork bool) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": %q, "name": %q}, "spec": {"hostNetwork": %v,
  "containers": [{"name": "c", "image": %q}]}}`, namespace, name, hostNetwork, image)
}

// violations has one violation for each policy that denies, by its name in metrics.
var violations = []violation{
	{"no-latest", podIn("shop", "p", "a", false), "images must have a version"},
	{"no-host.network", podIn("shop", "p", "a:1", true), "no host network"},
	{"shop.small", `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "m"},
  "data": {"a": "b", "c": "d"}}`, "at most one key"},
	{"ownerrequired.services", `{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": "s"},
  "spec": {"ports": [{"port": 1}]}}`, "want the label owner"},
}

// migrated moves from Kyverno and Gatekeeper to fastadmit as docs/migration.md describes, with the CustomResourceDefinitions of
// both. Their programs do not run, so that what denies is fastadmit.
func (s *test) migrated(t *testing.T) {
	page := s.On(t, "migration.md")
	page.Link(t, "fastadmit", cluster.Built(release+"/fastadmit-linux-amd64"))
	s.MustKubectl(t, shops, "apply", "-f", "-")
	s.installEngines(t, page)

	s.MustKubectl(t, ownerTemplate+"---\n"+ownerDefinition+"---\n"+ofKyverno+"---\n"+untranslatable, "apply", "-f", "-")
	s.AwaitCRDs(t)
	s.MustKubectl(t, ownerConstraint, "apply", "-f", "-")
	if _, err := page.Tries(t, "kubectl get vpol", "fastadmit convert"); cluster.WantError(err, noTranslation) != nil {
		t.Errorf("convert: got %v, want %s", err, noTranslation)
	}
	s.MustKubectl(t, "", "delete", "vpol", "asks-registries")
	page.Does(t, "kubectl get vpol", "fastadmit convert")
	_, audited := page.Tries(t, "fastadmit audit")
	for _, want := range []string{"ConfigMap shop/old: denied", "Service shop/old: denied", " 2 denied"} {
		if err := cluster.WantError(audited, want); err != nil {
			t.Error(err)
		}
	}
	s.MustKubectl(t, untranslatable, "apply", "-f", "-")

	s.Values(t, page.Documented(t, "yaml", "read: [kyverno, gatekeeper]"))
	s.Does(t, "--reset-then-reuse-values")
	s.onlyAudited(t)

	s.Values(t, "plugins: {ValidatingAdmissionPolicy: {enforcement: null}, MutatingAdmissionPolicy: {namespaceSelector: null}}\n")
	s.Does(t, "--reset-then-reuse-values")
	s.enforced(t)
	s.MustKubectl(t, "", "delete", "vpol", "asks-registries")

	page.Does(t, "helm uninstall kyverno")
	page.Does(t, "helm uninstall gatekeeper")
	s.MustKubectl(t, "", "get", "vpol/no-latest", "mpol/team", "cpol/no-host", "constrainttemplate/ownerrequired", "ownerrequired/services")
	s.MustKubectl(t, "", "get", "nvpol/small", "-n", "shop")
	s.MustKubectl(t, "", "get", "policyexceptions.policies.kyverno.io/legacy", "-n", "kyverno")
	s.enforced(t)

	group := "admissionregistration.k8s.io"
	if !strings.Contains(s.MustKubectl(t, "", "get", "--raw", "/apis/"+group+"/v1"), "mutatingadmissionpolicies") {
		page.Does(t, "sed -i") // for v1.35 and before
		group = "policies.fastadmit.io"
		s.Values(t, "policies: {customResources: true}\n")
		s.Does(t, "--reset-then-reuse-values")
		s.AwaitCRDs(t)
	}
	page.Does(t, "kubectl apply -f converted")
	s.Values(t, "policies: {read: [], exceptionsNamespace: null, paramKinds: []}\n"+
		"plugins: {ValidatingAdmissionPolicy: null, MutatingAdmissionPolicy: null}\n")
	s.Does(t, "--reset-then-reuse-values")
	s.enforced(t)
	for _, kind := range []string{"validatingadmissionpolicies", "mutatingadmissionpolicies"} {
		bindings := strings.TrimSuffix(kind, "ies") + "ybindings"
		s.MustKubectl(t, "", "delete", kind+"."+group+","+bindings+"."+group, "--all")
	}
	s.Values(t, "policies: {customResources: false}\n")
	s.Does(t, "--reset-then-reuse-values")
	s.MustKubectl(t, "", "delete", "namespace", "shop", "tried", "kyverno", "gatekeeper-system")
}

// installEngines installs charts with what the charts of Kyverno and Gatekeeper have of definitions, where they have them: Kyverno in
// charts for its two API groups, Gatekeeper in the folder crds, which helm does not remove.
func (s *test) installEngines(t *testing.T, page *walkthrough.Admin) {
	t.Helper()
	kyverno, gatekeeper := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		kyverno + "/kyverno/Chart.yaml":                     "{apiVersion: v2, name: kyverno, version: 1.0.0}",
		kyverno + "/kyverno/charts/crds/Chart.yaml":         "{apiVersion: v2, name: crds, version: 1.0.0}",
		kyverno + "/kyverno/charts/crds/templates/all.yaml": olderDefinitions,
		gatekeeper + "/gatekeeper/Chart.yaml":               "{apiVersion: v2, name: gatekeeper, version: 1.0.0}",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for to, from := range map[string]string{
		kyverno + "/kyverno/charts/kyverno-api": moduleFolder(t, "kyverno", "github.com/kyverno/api") + "/charts/kyverno-api",
		gatekeeper + "/gatekeeper/crds": moduleFolder(t, "../behind/gatekeeper", "github.com/open-policy-agent/gatekeeper/v3") +
			"/charts/gatekeeper/crds",
	} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	page.Link(t, "kyverno", kyverno)
	page.Link(t, "gatekeeper", gatekeeper)
	env := []string{"KUBECONFIG=" + s.kubeconfig, "HOME=" + t.TempDir()}
	for chart, namespace := range map[string]string{kyverno + "/kyverno": "kyverno", gatekeeper + "/gatekeeper": "gatekeeper-system"} {
		walkthrough.Run(t, env, walkthrough.Tool(t, "helm"), "install", filepath.Base(chart), chart, "-n", namespace, "--create-namespace")
	}
	s.AwaitCRDs(t)
}

// created creates an object as a dry run. It returns its label team, and as an error what kubectl says of a denial.
func (s *test) created(t *testing.T, object string) (team string, err error) {
	t.Helper()
	team, stderr, err := s.Kubectl(t, object, "create", "--dry-run=server", "-o", "jsonpath={.metadata.labels.team}", "-f", "-")
	if err != nil {
		err = errors.New(stderr)
	}
	return team, err
}

// hasTeam returns an error unless a Pod that is created in a namespace gets this label team.
func (s *test) hasTeam(t *testing.T, namespace, want string) error {
	t.Helper()
	// Its image has no version; the exception allows that in all namespaces.
	team, err := s.created(t, podIn(namespace, "legacy", "a", false))
	if err == nil && team != want {
		err = fmt.Errorf("a Pod in %s: got the team %q, want %q", namespace, team, want)
	}
	return err
}

// onlyAudited checks that nothing is denied, that what would be is counted and in the audit log, and that only the namespace with the
// label is changed.
func (s *test) onlyAudited(t *testing.T) {
	t.Helper()
	for i := range violations {
		v := &violations[i]
		cluster.Await(t, v.policy+" to be evaluated", func() error {
			if _, err := s.created(t, v.object); err != nil {
				return err
			}
			return errors.Join(s.counted(t, v.policy), s.inAuditLog(v.message))
		})
	}
	cluster.Await(t, "the Pods", func() error { return errors.Join(s.hasTeam(t, "shop", ""), s.hasTeam(t, "tried", "a")) })
	cluster.Await(t, "an Event", func() error {
		said := s.MustKubectl(t, "", "get", "events", "-n", "default", "--field-selector",
			"reason=NotEvaluated,involvedObject.name=asks-registries", "-o", "jsonpath={..message}")
		return cluster.WantError(errors.New(said), noTranslation)
	})
}

// counted returns an error unless a pod counts violations of a policy.
func (s *test) counted(t *testing.T, policy string) error {
	t.Helper()
	series := fmt.Sprintf("fastadmit_policy_checks_total{plugin=%q,policy=%q,", "ValidatingAdmissionPolicy", policy)
	for _, pod := range s.pods(t, "fastadmit", ours) {
		metrics := s.MustKubectl(t, "", "get", "--raw", "/api/v1/namespaces/fastadmit/pods/"+pod.Name+":8080/proxy/metrics")
		if strings.Contains(metrics, series) {
			return nil
		}
	}
	return fmt.Errorf("got no series %s", series)
}

// inAuditLog returns an error unless a message is in an annotation of the audit log.
func (s *test) inAuditLog(message string) error {
	found, err := s.Audit(func(e *auditv1.Event) bool {
		for _, value := range e.Annotations {
			if strings.Contains(value, message) {
				return true
			}
		}
		return false
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("the audit log does not say %q", message)
	}
	return err
}

// enforced checks that all policies take effect.
func (s *test) enforced(t *testing.T) {
	t.Helper()
	for i := range violations {
		v := &violations[i]
		cluster.Await(t, v.policy+" to deny", func() error {
			_, err := s.created(t, v.object)
			return cluster.WantError(err, v.message)
		})
	}
	cluster.Await(t, "the Pods", func() error { return errors.Join(s.hasTeam(t, "shop", "a"), s.hasTeam(t, "tried", "a")) })
}
