package app

import (
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// hostPod is a Pod in a namespace, with labels as JSON, that PodSecurity's level baseline denies.
func hostPod(namespace, labels string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: " + namespace + ", labels: {" + labels + "}}\n" +
		"spec: {hostPID: true, containers: [{name: a, image: 'nginx:latest'}]}\n"
}

const (
	baseline = "--pod-security=baseline"
	// uncalled begins what is said of an object that is not sent to fastadmit.
	uncalled   = "unchecked: PodSecurity: no webhook is called for it: "
	deniedHost = "denied by PodSecurity (403 Forbidden)"
)

// TestReviewNamespaces has objects in the namespaces that are always excluded.
func TestReviewNamespaces(t *testing.T) {
	t.Chdir(t.TempDir())
	f := func(code int, want, not []string, object string, args ...string) {
		t.Helper()
		reviewed(t, object, code, want, not, append([]string{"-", baseline}, args...)...)
	}
	for _, namespace := range []string{"kube-system", "kube-node-lease", "fastadmit"} {
		excluded := uncalled + "the registration excludes the namespace " + namespace
		pod := hostPod(namespace, "")
		f(0, []string{"allowed", excluded, "nothing that is enabled checks any"}, []string{deniedHost}, pod)
		f(exitBroken, []string{excluded, "--strict: no plugin checked 1 object"}, nil, pod, "--strict")
		f(0, []string{excluded}, nil, "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: "+namespace+"}\n"+
			"spec: {template: {spec: {hostPID: true, restartPolicy: Never, containers: [{name: a, image: a}]}}}\n")
		f(exitDenied, []string{excluded, "unchecked: AlwaysDeny: no webhook", "Pod shop/web: denied by AlwaysDeny"}, nil,
			pod+"---\n"+hostPod("shop", ""), "--enable-admission-plugins=AlwaysDeny")
	}
	f(exitDenied, []string{deniedHost}, []string{"no webhook"}, hostPod("kube-public", ""))
	stdout, _, _ := execute(hostPod("kube-system", ""), "review", "-", baseline, "-o", "json", "--explain")
	for _, text := range []string{
		`"leftOut": [`, `"unchecked": true`, `"idle": [`, `"asked": false`, `"why": "no webhook is called for it: the `,
	} {
		if !strings.Contains(stdout, text) {
			t.Errorf("got no %s in\n%s", text, stdout)
		}
	}
	servertest.WriteFile(t, "config.yaml", configHead+"registration: {namespace: hooks}\n")
	const hooks = uncalled + "the registration excludes the namespace hooks"
	f(0, []string{hooks}, nil, hostPod("hooks", ""), "--config=config.yaml")

	// What is recorded was sent.
	f(exitDenied, []string{deniedHost}, []string{"no webhook"}, `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
		"request": {"uid": "1", "operation": "CREATE", "namespace": "kube-system", "name": "a",
		"kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
		"object": {"metadata": {"name": "a"}, "spec": {"hostPID": true, "containers": [{"name": "a", "image": "a"}]}}}}`)
}

// TestReviewRegistration has objects that the configuration file excludes.
func TestReviewRegistration(t *testing.T) {
	t.Chdir(t.TempDir())
	f := func(registration string, code int, want, not []string, object string, args ...string) {
		t.Helper()
		servertest.WriteFile(t, "config.yaml", configHead+"registration: {"+registration+"}\n")
		reviewed(t, object, code, want, not, append([]string{"-", baseline, "--config=config.yaml"}, args...)...)
	}
	const shop = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {env: dev}}\n---\n"
	pod := hostPod("shop", "app: web")
	const inProd = "namespaceSelector: {matchLabels: {env: prod}}"
	const dev = uncalled + "registration.namespaceSelector env=prod does not match: namespace shop has env=dev"
	f(inProd, 0, []string{dev}, []string{deniedHost, "is not among the input"}, shop+pod)
	f(inProd, exitBroken, []string{dev, "--strict: "}, nil, shop+pod, "--strict")
	f(inProd, exitDenied, []string{deniedHost}, []string{"no webhook"}, strings.Replace(shop, "dev", "prod", 1)+pod)
	f(inProd, 0, []string{"namespace shop has no env",
		"config.yaml: registration: a namespaceSelector does not select the namespace shop: it asks for labels"}, nil, pod)
	if err := os.Mkdir("state", 0o700); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "state/shop.yaml", shop)
	f(inProd, 0, []string{dev}, nil, pod, "--cluster-state-dir=state")

	const labeled = "objectSelector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}"
	f(labeled, 0, []string{uncalled + "registration.objectSelector app notin (web) does not match: object has app=web"}, nil, pod)
	f(labeled, exitDenied, []string{deniedHost}, []string{"no webhook"}, hostPod("shop", "app: api"))

	condition := func(expression string) string {
		return `matchConditions: [{name: c, expression: "` + expression + `"}]`
	}
	f(condition("object.metadata.name != 'web'"), 0,
		[]string{uncalled + "registration.matchConditions[0] c is false: object.metadata.name != 'web'"}, []string{deniedHost}, pod)
	f(condition("object.metadata.name == 'web'"), exitDenied, []string{deniedHost}, []string{"no webhook"}, pod)
	f(condition("object.nope == 1"), exitBroken, []string{"broken: kube-apiserver refuses the object: registration.matchConditions: ",
		"no such key: nope"}, nil, pod)
	f(condition("object.nope == 1")+"}\nplugins: [{name: PodSecurity, failurePolicy: Ignore}]\nserver: {", 0,
		[]string{uncalled, "no such key: nope"}, nil, pod)
	f(condition("1 +"), exitBroken, []string{"config.yaml: registration.matchConditions[0].expression: Invalid value"}, nil, pod)
	const reads = "config.yaml: registration.matchConditions read request.userInfo, and no user is given"
	f(condition("request.userInfo.username != 'root'"), exitDenied, []string{deniedHost, reads}, []string{"broken"}, pod)
	f(condition("request.userInfo.username != 'root'"), 0, []string{uncalled}, []string{reads}, pod, "--as=root")
	f(condition("authorizer.group('').resource('pods').check('get').allowed()"), 0,
		[]string{uncalled, "registration.matchConditions ask the authorizer, and without --kubeconfig there is none"}, nil, pod)
}

// TestReviewOwnPolicies has policies that kube-apiserver evaluates itself, in all namespaces, beside others.
func TestReviewOwnPolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", hostPod("kube-system", ""))
	servertest.WriteFile(t, "own.yaml", noLatest)
	servertest.WriteFile(t, "unbound.yaml", strings.Split(noLatest, "---\n")[0])
	servertest.WriteFile(t, "custom.yaml",
		strings.NewReplacer("admissionregistration.k8s.io/v1", "policies.fastadmit.io/v1", "no-latest", "custom").Replace(noLatest))
	servertest.WriteFile(t, "harmless.yaml", strings.NewReplacer("no-latest", "harmless", "':latest'", "':none'").Replace(noLatest))
	servertest.WriteFile(t, "elsewhere.yaml", strings.NewReplacer("no-latest", "elsewhere", "[pods]", "[services]").Replace(noLatest))
	servertest.WriteFile(t, "kyverno.yaml", kyvernoLatest)
	const denied = "'no-latest.example.com' with binding 'no-latest' denied request"
	const excluded = "unchecked: ValidatingAdmissionPolicy: no webhook is called for it: the registration excludes the namespace " +
		"kube-system"
	f := func(code int, want, not []string, args ...string) {
		t.Helper()
		reviewed(t, "", code, want, not, append([]string{"pod.yaml"}, args...)...)
	}
	f(exitDenied, []string{denied}, []string{"no webhook"}, "--policies=own.yaml")
	f(exitDenied, []string{denied}, []string{"no webhook"}, "own.yaml", "--enable-admission-plugins=ValidatingAdmissionPolicy")
	f(exitDenied, []string{denied, "PodSecurity checked none of the objects that its rules select: no webhook is called"},
		[]string{deniedHost}, "--policies=own.yaml,harmless.yaml", baseline)
	f(0, []string{excluded}, nil, "--policies=custom.yaml")
	f(0, []string{excluded}, nil, "--policies=kyverno.yaml")
	f(exitDenied, []string{denied}, []string{"custom"}, "--policies=own.yaml,custom.yaml")
	f(0, []string{"1 allowed"}, []string{"'custom", excluded}, "--policies=custom.yaml,harmless.yaml")
	f(0, []string{"1 allowed"}, []string{"'no-latest", excluded}, "--policies=kyverno.yaml,harmless.yaml")
	f(0, []string{excluded}, nil, "--policies=custom.yaml,elsewhere.yaml")
	f(0, []string{"1 that no plugin checked"}, []string{"no webhook"}, "--policies=elsewhere.yaml")

	// The settings are those of fastadmit.
	servertest.WriteFile(t, "config.yaml", configHead+"plugins: [{name: ValidatingAdmissionPolicy, enforcement: [{action: audit}]}]\n")
	f(exitDenied, []string{denied}, nil, "--policies=own.yaml", "--config=config.yaml")
	f(exitDenied, []string{"'no-latest.example.com' with binding 'no-latest.example.com' denied"}, []string{"no webhook"},
		"--policies=unbound.yaml", "--bind-policies")
}
