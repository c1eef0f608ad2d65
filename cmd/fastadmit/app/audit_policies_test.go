package app

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// listTime is how long it takes to list ConfigMaps: longer than a review of the server waits
// for parameters.
const listTime = 1500 * time.Millisecond

// auditedCluster serves a cluster with the namespace shop, which has a Deployment for each
// number of replicas. Its kubeconfig is the file kubeconfig. The result maps paths to
// documents.
func auditedCluster(t *testing.T, replicas ...int) map[string]string {
	t.Helper()
	var items []string
	for _, n := range replicas {
		items = append(items, fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web%d",`+
			`"namespace":"shop"},"spec":{"replicas":%[1]d}}`, n))
	}
	documents := map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"version":"v1"}],` +
			`"preferredVersion":{"version":"v1"}}]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"namespaces",` +
			`"kind":"Namespace","verbs":["list"]}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[{"name":"deployments",` +
			`"kind":"Deployment","namespaced":true,"verbs":["list"]}]}`,
		"/api/v1/namespaces": `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` +
			`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","resourceVersion":"1"}}]}`,
		"/apis/apps/v1/deployments": `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"1"},"items":[` +
			strings.Join(items, ",") + `]}`,
	}
	server := testserver.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, ok := documents[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		switch query := r.URL.Query(); {
		case r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "selfsubjectaccessreviews"):
			t.Errorf("%s %s: an audit writes nothing", r.Method, r.URL)
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case query.Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		default:
			if r.URL.Path == "/api/v1/configmaps" {
				time.Sleep(listTime)
			}
			fmt.Fprint(w, document)
		}
	}))
	kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a","clusters":[{"name":"a",`+
		`"cluster":{"server":%q}}],"contexts":[{"name":"a","context":{"cluster":"a"}}]}`, server.URL)
	if err := os.WriteFile("kubeconfig", []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return documents
}

// TestAuditPolicies reviews the objects of a cluster with policies in files: with
// parameters, without bindings, and with errors.
func TestAuditPolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	auditedCluster(t, 2, 5)
	f := func(code int, want string, args ...string) {
		t.Helper()
		out, errs, got := execute("", append([]string{"audit", "--kubeconfig=kubeconfig"}, args...)...)
		if got != code || !strings.Contains(errs+out, want) {
			t.Errorf("%q: got exit code %d and\n%s%s\nwant %d and %q", args, got, errs, out, code, want)
		}
	}
	const limit = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop, labels: {limits: 'yes'}}\ndata: {max: '3'}\n"
	servertest.WriteFile(t, "policy.yaml", limitReplicas+limit)
	f(1, "Deployment shop/web5: denied by ValidatingAdmissionPolicy", "--policies=policy.yaml")
	f(1, "denied request: at most 3 replicas", "--policies=policy.yaml")
	f(1, "3 objects: 2 allowed, 1 denied", "--policies=policy.yaml")
	f(0, "3 objects: 2 allowed, 1 denied", "--policies=policy.yaml", "--exit-zero")
	f(1, "3 objects: 2 allowed, 1 denied", "--policies=policy.yaml", "--operation=UPDATE")
	f(1, `<failure type="ValidatingAdmissionPolicy/replicas.example.com" message="denied by ValidatingAdmissionPolicy (422 Invalid): `+
		`deployments.apps &#34;web5&#34; is forbidden`, "--policies=policy.yaml", "-o", "junit")
	// Parameters come from the files alone.
	servertest.WriteFile(t, "policy.yaml", limitReplicas)
	f(1, "no params found for policy binding with `Deny` parameterNotFoundAction", "--policies=policy.yaml")
	f(1, "3 objects: 1 allowed, 2 denied", "--policies=policy.yaml")

	const unbound = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few.example.com}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  validations:
  - expression: object.spec.replicas < 5
    message: fewer than 5 replicas
`
	servertest.WriteFile(t, "policy.yaml", unbound)
	f(0, `policy.yaml:1: ValidatingAdmissionPolicy "few.example.com" has no binding, so it is not evaluated; --bind-policies evaluates it`,
		"--policies=policy.yaml")
	f(1, "denied request: fewer than 5 replicas", "--policies=policy.yaml", "--bind-policies")
	f(0, "warning", "--policies=policy.yaml", "--bind-policies=Warn")
	f(1, "fewer than 5 replicas", "--policies=policy.yaml", "--bind-policies=Warn", "--warnings-as-errors")

	servertest.WriteFile(t, "policy.yaml", strings.Replace(unbound, "replicas < 5", "replicas <", 1))
	f(2, `policy.yaml:9: ValidatingAdmissionPolicy "few.example.com": spec.validations[0].expression: Invalid value: `+
		`"object.spec.replicas <": compilation failed`,
		"--policies=policy.yaml")
	f(2, "none.yaml: no such file or directory", "--policies=none.yaml")
}

// TestAuditExceptions lists exceptions with what they lifted: one in a file, and one of the cluster.
func TestAuditExceptions(t *testing.T) {
	t.Chdir(t.TempDir())
	documents := auditedCluster(t, 2, 5, 7)
	const exception = `{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyException","metadata":{"name":"%s","resourceVersion":"1"},` +
		`"spec":{"policies":["replicas.example.com"],"reason":"not\nyet",%s,"matchConstraints":{"resourceRules":[{"operations":["*"],` +
		`"apiGroups":["*"],"apiVersions":["*"],"resources":["*"],"resourceNames":["%s"]}]}}}`
	const group = "/apis/policies.fastadmit.io/v1/"
	ofCluster := fmt.Sprintf(exception, "of-cluster", `"neverExpires":true`, "web5")
	for resource, item := range map[string]string{
		"ValidatingAdmissionPolicy validatingadmissionpolicies":              "",
		"ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings": "",
		"PolicyReplica policyreplicas":                                       "",
		"PolicyException policyexceptions":                                   ofCluster,
	} {
		kind, plural, _ := strings.Cut(resource, " ")
		documents[group+plural] = fmt.Sprintf(`{"kind":"%sList","apiVersion":"policies.fastadmit.io/v1",`+
			`"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind, item)
	}
	servertest.WriteFile(t, "policy.yaml", limitReplicas+
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop, labels: {limits: 'yes'}}\ndata: {max: '3'}\n")
	servertest.WriteFile(t, "exception.yaml", fmt.Sprintf(exception, "of-file", `"expiresAt":"2037-01-31T00:00:00Z"`, "web2"))
	servertest.WriteFile(t, "admission.yaml",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: ValidatingAdmissionPolicy\n"+
			"  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: ValidatingAdmissionPolicyConfiguration, customResources: true}\n")
	for format, want := range map[string]string{
		"text": "\nPolicyException of-cluster has no end, lifted 1: not yet\n" +
			"PolicyException of-file ends 2037-01-31T00:00:00Z, lifted 0: not yet\n" +
			"4 objects: 3 allowed, 1 denied",
		"yaml": "  exceptions:\n  - lifted: 1\n    name: of-cluster\n    reason: |-\n      not\n      yet\n" +
			"  - expiresAt: \"2037-01-31T00:00:00Z\"\n    lifted: 0\n    name: of-file\n",
	} {
		out, errs, code := execute("", "audit", "--kubeconfig=kubeconfig", "--enable-admission-plugins=ValidatingAdmissionPolicy",
			"--admission-control-config-file=admission.yaml", "--policies=policy.yaml,exception.yaml", "-o", format)
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("got exit code %d and\n%s%s\nwant 1 and %q", code, errs, out, want)
		}
	}
}

// TestAuditClusterPolicies reviews the objects of a cluster with its own policies (custom
// resources) and one in a file. The former take their parameters from the cluster, however
// long it takes to list them, the latter from its file.
func TestAuditClusterPolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	documents := auditedCluster(t, 2, 5)
	documents["/api/v1"] = `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"namespaces",` +
		`"kind":"Namespace","verbs":["list"]},` +
		`{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":["get"]}]}` // not reviewed itself
	list := func(version, path, kind string, manifests ...string) {
		t.Helper()
		for i, manifest := range manifests {
			item, err := yaml.YAMLToJSON([]byte(manifest))
			if err != nil {
				t.Fatal(err)
			}
			manifests[i] = string(item)
		}
		documents[path] = fmt.Sprintf(`{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[%s]}`, kind,
			version, strings.Join(manifests, ","))
	}
	const group = "policies.fastadmit.io/v1"
	policy, binding, _ := strings.Cut(strings.ReplaceAll(limitReplicas, "admissionregistration.k8s.io", "policies.fastadmit.io"), "---\n")
	list(group, "/apis/"+group+"/validatingadmissionpolicies", "ValidatingAdmissionPolicy", policy)
	list(group, "/apis/"+group+"/validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", binding)
	list(group, "/apis/"+group+"/policyreplicas", "PolicyReplica")
	const limit = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop, labels: {limits: 'yes'}}\ndata: {max: '%d'}\n"
	list("v1", "/api/v1/configmaps", "ConfigMap", fmt.Sprintf(limit, 4))
	servertest.WriteFile(t, "policy.yaml",
		strings.ReplaceAll(limitReplicas, "replicas.example.com", "file.example.com")+"---\n"+fmt.Sprintf(limit, 3))
	servertest.WriteFile(t, "admission.yaml",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: ValidatingAdmissionPolicy\n"+
			"  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: ValidatingAdmissionPolicyConfiguration, customResources: true}\n")
	for most, args := range map[int][]string{4: nil, 3: {"--policies=policy.yaml"}} {
		out, errs, code := execute("", append([]string{
			"audit", "--kubeconfig=kubeconfig", "--enable-admission-plugins=ValidatingAdmissionPolicy",
			"--admission-control-config-file=admission.yaml",
		}, args...)...)
		want := fmt.Sprintf("denied request: at most %d replicas\n", most)
		const warning = "fastadmit: warning: the newest version is emulated until"
		if code != 1 || !strings.HasPrefix(errs, warning) || strings.Count(out, "denied by") != 1 || !strings.Contains(out, want) {
			t.Errorf("%q: got exit code %d and\n%s%s\nwant 1 and %q", args, code, errs, out, want)
		}
	}
}
