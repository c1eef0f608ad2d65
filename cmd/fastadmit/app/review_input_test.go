package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// reviewed runs review with standard input. It returns an error text unless the
// command ends with that code and prints all wanted texts and no unwanted ones.
func reviewed(t *testing.T, stdin string, code int, want []string, not []string, args ...string) {
	t.Helper()
	got, errs, gotCode := execute(stdin, append([]string{"review"}, args...)...)
	if gotCode != code {
		t.Errorf("%q: got exit code %d, want %d\n%s%s", args, gotCode, code, got, errs)
	}
	for _, text := range want {
		if !strings.Contains(got+errs, text) {
			t.Errorf("%q: got no %q in\n%s%s", args, text, got, errs)
		}
	}
	for _, text := range not {
		if strings.Contains(got+errs, text) {
			t.Errorf("%q: got %q in\n%s%s", args, text, got, errs)
		}
	}
}

// TestReviewWhatWasMissed reviews input that review once accepted or could not
// read.
func TestReviewWhatWasMissed(t *testing.T) {
	const security = "--enable-admission-plugins=PodSecurity"
	const strict = "apiVersion: v1\nkind: Namespace\nmetadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}\n"
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: bad, namespace: strict}\nspec: {containers: [{name: a, image: nginx}]}\n"
	const denied = "Pod strict/bad: denied by PodSecurity (403 Forbidden)"
	f := func(stdin string, code int, want ...string) {
		t.Helper()
		reviewed(t, stdin, code, want, nil, "-", security)
	}
	// A Namespace and a bad Pod, in either order.
	f(strict+"---\n"+pod, 1, denied, "2 objects: 1 allowed, 1 denied")
	f(pod+"---\n"+strict, 1, "stdin:1: "+denied, "stdin:6: Namespace strict: allowed")
	// A List stands for the objects in it.
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(pod), "\n", "\n  ") + "\n"
	f(strict+"---\n"+list, 1, "stdin:8: "+denied)
	f(strict+"---\n"+`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"bad","namespace":"strict"},`+
		`"spec":{"containers":[{"name":"a"}]}}]}`,
		1, "stdin:5: "+denied)
	// The plurals of built-in kinds come from a table; they are not guessed.
	reviewed(t, "apiVersion: example.com/v1\nkind: Gateway\nmetadata: {name: g}\n", 2, []string{
		`stdin:1: Gateway g: broken: unknown kind "Gateway" of apiVersion "example.com/v1"; give its CustomResourceDefinition too`,
		"1 broken"},
		[]string{"gatewaies"}, "-", security)
	const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gateways.example.com}\n" +
		"spec: {group: example.com, scope: Namespaced, names: {kind: Gateway, plural: gateways}, versions: [{name: v1, " +
		"served: true}]}\n---\n"
	reviewed(t, crd+"apiVersion: example.com/v1\nkind: Gateway\nmetadata: {name: g}\n", 1,
		[]string{`gateways.example.com "g" is forbidden`}, nil, "-", "--enable-admission-plugins=AlwaysDeny")
	// An invalid document does not end the review of the rest.
	f("a: [\n---\n"+strict+"---\nkind: Pod\n---\n"+pod, 2, "stdin:1: broken: cannot be read", "stdin:7: broken: not a Kubernetes object",
		denied, "4 objects: 1 allowed, 1 denied, 2 broken")
	reviewed(t, "kind: x\n---\n"+strict, 0, []string{"1 allowed, 0 denied, 1 skipped"}, nil, "-", security, "--skip-unknown")
	const misspelt = "apiVersion: v1\nkind: pod\nmetadata: {name: a}\n"
	reviewed(t, misspelt, 2, []string{`unknown kind "pod" of apiVersion "v1", did you mean Pod?` + "\n1 object"}, nil, "-", security)
	reviewed(t, misspelt+"---\n"+strict, 2, []string{"did you mean Pod?", "1 broken"}, nil, "-", security, "--skip-unknown")
	reviewed(t, misspelt+"---\n"+strict, 0, []string{"1 skipped"}, nil, "-", security, "--skip-unknown=pod")
	reviewed(t, "kind: x\n", 2, []string{"nothing to review: all objects were skipped"}, nil, "-", security, "--skip-unknown")
	reviewed(t, "kind: x\nmetadata: 1\n", 2, []string{"1 broken"}, nil, "-", security, "--skip-unknown")
	// Cluster-scoped objects have no namespace.
	f("apiVersion: v1\nkind: Node\nmetadata: {name: worker, namespace: x}\n", 0, "Node worker: allowed")
}

func TestReviewFolders(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.MkdirAll("deploy/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "deploy/sub/a.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n")
	servertest.WriteFile(t, "deploy/b.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}`)
	servertest.WriteFile(t, "c.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: c}\n")
	const images = "--enable-admission-plugins=AlwaysDeny"
	reviewed(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: d}\n", 1, []string{
		"deploy/b.json:1: Pod default/b: denied", filepath.Join("deploy", "sub", "a.yaml") + ":1: Pod default/a: denied",
		"c.yaml:1: Pod default/c: denied", "stdin:1: Pod default/d: denied",
	}, nil, "deploy/", "c.yaml", "-", images)
	reviewed(t, "", 2, []string{"c.yaml:1: Pod default/c: denied", "no.yaml: broken: stat no.yaml: no such file", "1 broken"},
		nil, "no.yaml", "-f", "c.yaml", images)
}

// TestReviewSeesTheInput reviews input with objects that plugins look up.
func TestReviewSeesTheInput(t *testing.T) {
	f := func(plugin, stdin string, code int, want string, args ...string) {
		t.Helper()
		reviewed(t, stdin, code, []string{want}, nil, append([]string{"-", "--enable-admission-plugins=" + plugin}, args...)...)
	}
	const pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {%s containers: [{name: a, " +
		"image: nginx, resources: {limits: {cpu: '2'}}}]}\n"
	with := func(spec string) string { return strings.Replace(pod, "%s", spec, 1) }
	f("LimitRanger", with("")+"---\napiVersion: v1\nkind: LimitRange\nmetadata: {name: l, namespace: shop}\nspec: {limits: "+
		"[{type: Container, max: {cpu: '1'}}]}\n",
		1, "maximum cpu usage per Container is 1")
	f("ServiceAccount", with("serviceAccountName: robot,"), 1, `serviceaccount "robot" not found`)
	const robot = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot, namespace: shop}\n"
	f("ServiceAccount", with("serviceAccountName: robot,")+robot, 0, "allowed, patched")
	f("ServiceAccount", with("serviceAccount: robot,")+robot, 0, "serviceAccountName: robot", "-o", "object")
	f("Priority", with("priorityClassName: high,")+"---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: "+
		"{name: high}\nvalue: 7\nglobalDefault: true\n",
		0, `"path":"/spec/priority","value":7`)
	// The second global default is one too many; the first does not conflict
	// with itself.
	f("Priority", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a}\nvalue: 7\nglobalDefault: true\n---\n"+
		"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: b}\nvalue: 8\nglobalDefault: true\n", 1,
		"1 allowed, 1 denied")
	const quota = "---\napiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: shop}\nspec: {hard: {limits.cpu: '3'}}\n"
	f("ResourceQuota", quota+with("")+strings.Replace(with(""), "name: web", "name: second", 1), 1,
		"Pod shop/second: denied by ResourceQuota (403 Forbidden)")
	// Objects of the input replace those in the folder, which stands for the
	// rest of the cluster.
	dir := t.TempDir()
	servertest.WriteFile(t, filepath.Join(dir, "cluster.yaml"),
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: restricted}}\n")
	f("PodSecurity", with(""), 1, "denied by PodSecurity", "--cluster-state-dir="+dir)
	f("PodSecurity", with("")+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n", 0, "2 allowed", "--cluster-state-dir="+dir)
	f("ServiceAccount", with("")+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n", 0, "2 allowed",
		"--cluster-state-dir="+dir)
	// An object that no cluster accepts.
	f("LimitRanger", "apiVersion: v1\nkind: LimitRange\nmetadata: {name: l, namespace: shop}\nspec: {limits: 1}\n", 2,
		"broken: kube-apiserver cannot decode the object: spec.limits: got a number, want a list")
}

// TestReviewCustomResources has custom resources that their CustomResourceDefinition refuses, or whose fields it drops.
func TestReviewCustomResources(t *testing.T) {
	t.Chdir(t.TempDir())
	const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\n" +
		"spec:\n  group: example.com\n  scope: Namespaced\n  names: {kind: Widget, plural: widgets}\n  versions:\n  - name: v1\n" +
		"    schema: {openAPIV3Schema: {properties: {spec: {required: [mode], properties: {size: {type: integer}, " +
		"mode: {type: string, default: fast}}}}}}\n"
	const widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec:\n  size: "
	if err := os.Mkdir("crds", 0o755); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "crds/crd.yaml", crd)
	servertest.WriteFile(t, "bad.yaml", widget+"notanint\n  owner: me\n")
	servertest.WriteFile(t, "good.yaml", widget+"3\n  sise: 4\n")
	// It makes the object invalid.
	const mutation = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n" +
		"  reinvocationPolicy: Never\n  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], " +
		"operations: [CREATE], resources: [widgets]}]}\n  mutations: [{patchType: JSONPatch, jsonPatch: {expression: " +
		"'[JSONPatch{op: \"add\", path: \"/spec/size\", value: \"big\"}]'}}]\n"
	servertest.WriteFile(t, "mutation.yaml", mutation)
	const refused = `bad.yaml:5: Widget default/w: broken: kube-apiserver refuses the object: ` +
		`spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"`
	const owner = `warning: bad.yaml:6: unknown field "spec.owner"`
	const size = `warning: good.yaml:6: unknown field "spec.sise", did you mean size?`
	const baseline = "--pod-security=baseline"
	reviewed(t, "", 2, []string{refused, owner, "1 broken"}, []string{"Widget default/w: allowed"}, "crds/crd.yaml", "bad.yaml", baseline)
	reviewed(t, "", 2, []string{refused, owner}, nil, "bad.yaml", baseline, "--cluster-state-dir=crds")
	reviewed(t, "", 2, []string{refused, owner}, nil, "bad.yaml", "--policies=crds", "--policies=mutation.yaml", "--bind-policies")
	reviewed(t, "", 0, []string{"good.yaml:1: Widget default/w: allowed", size}, []string{"refuses"}, "crds", "good.yaml", baseline)
	reviewed(t, "", 0, nil, []string{"refuses", "unknown field"}, "crds", "bad.yaml", baseline, "--operation=DELETE")
	reviewed(t, "", 0, []string{owner}, []string{"refuses"}, "crds", "bad.yaml", baseline, "--old=bad.yaml") // the fault was there before
	reviewed(t, "", 2, []string{strings.Replace(refused, "Widget", "UPDATE Widget", 1)}, nil, "crds", "bad.yaml", baseline,
		"--old=good.yaml")
	reviewed(t, "", 2, []string{"good.yaml:5: Widget default/w: broken: kube-apiserver refuses the object: spec.size"}, nil,
		"crds", "good.yaml", "--policies=mutation.yaml", "--bind-policies")
}

func TestReviewUser(t *testing.T) {
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: n2}\n"
	reviewed(t, node, 1, []string{`denied by NodeRestriction (403 Forbidden)`}, nil, "-", "--enable-admission-plugins=NodeRestriction",
		"--as=system:node:n1", "--as-group=system:nodes")
	reviewed(t, node, 0, nil, nil, "-", "--enable-admission-plugins=NodeRestriction", "--as=system:node:n2", "--as-group=system:nodes")
	for _, c := range []struct {
		username    string
		given, want string
	}{
		{"", "", ""},
		{"jane", "", "system:authenticated"},
		{"jane", "a", "a,system:authenticated"},
		{"system:anonymous", "", ""},
		{"system:serviceaccount:shop:robot", "", "system:serviceaccounts,system:serviceaccounts:shop,system:authenticated"},
		{"system:serviceaccount:shop:robot", "a", "a,system:authenticated"},
	} {
		var given []string
		if c.given != "" {
			given = strings.Split(c.given, ",")
		}
		if got := strings.Join(userGroups(c.username, given), ","); got != c.want {
			t.Errorf("%s: got groups %s, want %s", c.username, got, c.want)
		}
	}
}

func TestReviewOld(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.yaml")
	service := func(name, ip string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {externalIPs: [" + ip + "]}\n---\n"
	}
	servertest.WriteFile(t, old, service("same", "192.0.2.1")+service("more", "192.0.2.1"))
	const plugin = "--enable-admission-plugins=DenyServiceExternalIPs"
	stdin := service("same", "192.0.2.1") + service("more", "192.0.2.2") + service("new", "192.0.2.1")
	reviewed(t, stdin, 1, []string{"UPDATE Service default/same: allowed", "UPDATE Service default/more: denied",
		": Service default/new: denied"}, nil,
		"-", plugin, "--old="+old)
	reviewed(t, stdin, 2, []string{"Service default/new: broken: --old has no such object"}, nil, "-", plugin, "--old="+old,
		"--operation=UPDATE")
	reviewed(t, stdin, 2, []string{"missing: broken: stat"}, nil, "-", plugin, "--old="+filepath.Join(dir, "missing"))
}

// TestReviewWorkloads denies the pods that a controller would create, and
// allows the workload. The user of the pods' requests is the controller.
func TestReviewWorkloads(t *testing.T) {
	const strict = "apiVersion: v1\nkind: Namespace\nmetadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: " +
		"baseline}}\n---\n"
	const template = "{metadata: {labels: {app: web}}, spec: {hostNetwork: true, containers: [{name: a, image: nginx, " +
		"ports: [{containerPort: 80}]}]}}"
	const deployment = strict +
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: strict}\nspec: {selector: {matchLabels: " +
		"{app: web}}, template: " + template + "}\n"
	const security = "--enable-admission-plugins=PodSecurity"
	const pod = "    makes Pod strict/web-"
	reviewed(t, deployment, 1, []string{"stdin:5: Deployment strict/web: allowed\n", "\n  makes ReplicaSet strict/web-", pod,
		"-*: denied by PodSecurity (403 Forbidden): ", `hostPort (container "a" uses hostPort 80)`,
		"2 objects and 2 that controllers make of them: 3 allowed, 1 denied, 1 warning"},
		nil, "-", security)
	reviewed(t, deployment, 0, []string{"2 objects: 2 allowed"}, []string{"makes"}, "-", security, "--no-workload-pods")
	reviewed(t, deployment, 0, nil, []string{"makes"}, "-", security, "--operation=DELETE")
	reviewed(t, deployment, 1, []string{"UPDATE Deployment strict/web: allowed", pod}, nil, "-", security, "--operation=UPDATE")
	reviewed(t, deployment, 0, []string{"stdin:5: Deployment strict/web: allowed\n"}, []string{"warnings"}, "-",
		"--enable-admission-plugins=AlwaysAdmit", "--warnings-as-errors")
	reviewed(t, deployment, 1,
		[]string{`"user": "system:serviceaccount:kube-system:replicaset-controller"`, `"decision": "denied"`}, nil, "-",
		security, "-o", "json")
	reviewed(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: a}]}}}\n", 1,
		[]string{"Deployment default/web: denied by AlwaysDeny"}, []string{"makes"}, "-", "--enable-admission-plugins=AlwaysDeny")

	const rollout = strict + "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " +
		"rollouts.argoproj.io}\n" +
		"spec: {group: argoproj.io, scope: Namespaced, names: {kind: Rollout, plural: rollouts}, versions: [{name: v1alpha1}]}\n---\n" +
		"apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r, namespace: strict}\nspec: {template: " + template + "}\n"
	reviewed(t, rollout, 1, []string{"  makes Pod strict/r-*: denied by PodSecurity"}, nil, "-", security,
		"--pod-template-path=rollouts.argoproj.io=.spec.template")
	reviewed(t, rollout, 2, []string{".spec.pods: got nothing, want a pod template"}, nil, "-", security,
		"--pod-template-path=rollouts.argoproj.io=.spec.pods")
}

// TestReviewWarnings tests that a warning leads to exit code 1 only with the
// flag.
func TestReviewWarnings(t *testing.T) {
	const config = "../../../testdata/config.yaml"
	reviewed(t, "", 0, []string{"warning: DenyServiceExternalIPs: ", "1 warning"}, nil, "../../../testdata/service.yaml",
		"--config="+config)
	reviewed(t, "", 1, []string{"1 warning"}, nil, "../../../testdata/service.yaml", "--config="+config, "--warnings-as-errors")
}

// TestReviewNamesMutations has mutations that deny an object. Kubernetes' message names the policy of one of them only.
func TestReviewNamesMutations(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	for text, want := range map[string]string{
		`patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec/nope", value: "x"}]'}`: "denied by " +
			`MutatingAdmissionPolicy label.example.com (500 InternalError): Internal error occurred: strict decoding error: ` +
			`unknown field "spec.nope"`,
		`patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec/nope/x", value: "x"}]'}`: "denied by " +
			"MutatingAdmissionPolicy (403 Invalid): policy 'label.example.com' with binding 'label' denied request: ",
	} {
		servertest.WriteFile(t, "policies.yaml", mutation(text))
		reviewed(t, "", 1, []string{want}, nil, "pod.yaml", "--policies=policies.yaml")
		named := []string{`"policy": "label.example.com"`, `"binding": "label"`, `"rule": "mutations[0]"`, `"policies": [`}
		reviewed(t, "", 1, named, nil, "pod.yaml", "--policies=policies.yaml", "-o=json")
		const title = "title=MutatingAdmissionPolicy label.example.com denies Pod"
		reviewed(t, "", 1, []string{title}, nil, "pod.yaml", "--policies=policies.yaml", "-o=github")
	}
}
