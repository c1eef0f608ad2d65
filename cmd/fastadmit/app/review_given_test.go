package app

import (
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReviewGiven has policies and a plugin that are not evaluated because of what nobody gave, beside a policy that is.
func TestReviewGiven(t *testing.T) {
	t.Chdir(t.TempDir())
	const healthy = "--policies=healthy.yaml"
	servertest.WriteFile(t, "healthy.yaml", strings.ReplaceAll(noLatest, "no-latest", "healthy"))
	servertest.WriteFile(t, "pod.yaml", strings.Replace(latestPod, "latest", "v1", 1))
	f := func(code int, note string, args ...string) {
		t.Helper()
		reviewed(t, "", 0, []string{note, "1 allowed"}, nil, append(args, "pod.yaml", healthy)...)
		want := []string{note}
		if code != 0 {
			want = append(want, "--strict: ")
		}
		reviewed(t, "", code, want, nil, append(args, "pod.yaml", healthy, "--strict")...)
	}
	const inProd = "[Deny], matchResources: {namespaceSelector: {matchLabels: {env: prod}}}"
	servertest.WriteFile(t, "prod.yaml", strings.Replace(noLatest, "[Deny]", inProd, 1))
	const unlabeled = `ValidatingAdmissionPolicyBinding "no-latest" does not select the namespace default: its namespaceSelector asks`
	f(2, unlabeled, "--policies=prod.yaml")
	servertest.WriteFile(t, "default.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {env: test}}\n")
	reviewed(t, "", 0, nil, []string{unlabeled}, "pod.yaml", "default.yaml", "--policies=prod.yaml", healthy, "--strict")
	reviewed(t, "", 0, nil, []string{unlabeled}, "pod.yaml", "--policies=prod.yaml,default.yaml", healthy, "--strict")
	if err := os.Mkdir("state", 0o700); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "state/default.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n")
	reviewed(t, "", 0, nil, []string{unlabeled}, "pod.yaml", "--policies=prod.yaml", healthy, "--strict", "--cluster-state-dir=state")
	servertest.WriteFile(t, "named.yaml", strings.Replace(noLatest, "[Deny]",
		"[Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: prod}}}", 1))
	reviewed(t, "", 0, nil, []string{unlabeled}, "pod.yaml", "--policies=named.yaml", healthy, "--strict") // its name decides
	servertest.WriteFile(t, "reads.yaml", strings.Replace(noLatest, "object.spec",
		"true && !('env' in namespaceObject.metadata.?labels.orValue({})) && object.spec", 1))
	const reads = `ValidatingAdmissionPolicy "no-latest.example.com" reads namespaceObject, and the Namespace default is not among`
	f(2, reads, "--policies=reads.yaml")
	reviewed(t, "", 1, nil, []string{reads}, "pod.yaml", "default.yaml", "--policies=reads.yaml", healthy)
	servertest.WriteFile(t, "name.yaml", strings.Replace(noLatest, "object.spec", "namespaceObject.metadata.name != 'a' && object.spec", 1))
	reviewed(t, "", 0, nil, []string{reads}, "pod.yaml", "--policies=name.yaml", healthy, "--strict")
	servertest.WriteFile(t, "asks.yaml", strings.Replace(noLatest, "object.spec",
		"true && !authorizer.group('').resource('pods').check('delete').allowed() && object.spec", 1))
	f(2, `ValidatingAdmissionPolicy "no-latest.example.com" asks the authorizer, and without --kubeconfig there is none`,
		"--policies=asks.yaml")
	reviewed(t, "", 0, []string{"asks the authorizer"}, nil, "pod.yaml", "--policies=asks.yaml", healthy, "--cluster-state-dir=state")
	servertest.WriteFile(t, "services.yaml", strings.NewReplacer("[pods]", "[replicationcontrollers]",
		"object.spec.containers", "object.spec.template.spec.containers", "[Deny]", inProd).Replace(noLatest))
	reviewed(t, "", 0, nil, []string{unlabeled}, "pod.yaml", "--policies=services.yaml", healthy, "--strict")

	servertest.WriteFile(t, "param.yaml", strings.NewReplacer(
		"  validations:", "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations:", "[Deny]",
		"[Deny], paramRef: {name: c, namespace: default, parameterNotFoundAction: Allow}").Replace(noLatest))
	const lacking = `ValidatingAdmissionPolicyBinding "no-latest" does nothing: no ConfigMap among the input is the parameter that it names`
	f(2, lacking, "--policies=param.yaml")
	servertest.WriteFile(t, "map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: default}\n")
	reviewed(t, "", 0, nil, []string{lacking}, "pod.yaml", "map.yaml", "--policies=param.yaml", healthy)

	servertest.WriteFile(t, "config.yaml", configHead+"plugins: [{name: PodSecurity, namespaceSelector: {matchLabels: {a: b}}}]\n")
	f(2, "PodSecurity checked none of the objects that its rules select: the selectors or matchConditions of its settings do not select",
		"--config=config.yaml", "--pod-security=baseline")

	servertest.WriteFile(t, "config.yaml", configHead+"plugins:\n- name: AlwaysDeny\n  enforcement:\n"+
		"  - {action: deny, namespaceSelector: {matchLabels: {env: prod}}}\n  - {action: audit}\n")
	f(2, "config.yaml: AlwaysDeny.enforcement: a namespaceSelector does not select the namespace default: it asks for labels",
		"--config=config.yaml", "--enable-admission-plugins=AlwaysDeny")

	f(2, "fastadmit: PodNodeSelector reads annotations of the Namespace default, which is not among the input",
		"--enable-admission-plugins=PodNodeSelector")
	servertest.WriteFile(t, "lists.yaml", strings.Replace(kyvernoLatest, "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
		"resource.List('v1', 'configmaps', 'default').items.size() < 1", 1))
	f(2, `ValidatingPolicy "no-latest" reads configmaps, and none is among the input`, "--policies=lists.yaml")
	reviewed(t, "", 1, nil, []string{"none is among the input"}, "pod.yaml", "map.yaml", "--policies=lists.yaml", healthy)

	servertest.WriteFile(t, "typo.yaml", "apiVersion: v1\nkind: Namespac\nmetadata: {name: default}\n")
	f(2, `typo.yaml:1: left out: unknown kind "Namespac" of apiVersion "v1", did you mean Namespace?`, "--policies=typo.yaml")
	servertest.WriteFile(t, "group.yaml", strings.ReplaceAll(noLatest, "admissionregistration.k8s.io/", "admissionregistration.k8s.oi/"))
	reviewed(t, "", 2, []string{"group.yaml:2: got a ValidatingAdmissionPolicy of admissionregistration.k8s.oi/v1"}, nil,
		"pod.yaml", healthy, "--policies=group.yaml")

	// The policies of a file are evaluated once, also if it is reviewed, too.
	reviewed(t, "", 0, []string{"3 objects: 3 allowed"}, nil, "pod.yaml", "healthy.yaml", healthy)
	servertest.WriteFile(t, "again.yaml", strings.Replace(latestPod, "latest", "v2", 1))
	reviewed(t, "", 2, []string{"would replace"}, nil, "again.yaml", "--policies=pod.yaml", healthy)
	reviewed(t, "", 0, []string{"2 objects: 2 allowed"}, nil, "pod.yaml", "again.yaml", "--policies=pod.yaml,again.yaml", healthy)
}

// TestReviewGivenUser has policies that read the user, who is unknown without --as.
func TestReviewGivenUser(t *testing.T) {
	t.Chdir(t.TempDir())
	const healthy = "--policies=healthy.yaml"
	servertest.WriteFile(t, "healthy.yaml", strings.ReplaceAll(noLatest, "no-latest", "healthy"))
	servertest.WriteFile(t, "pod.yaml", strings.Replace(latestPod, "latest", "v1", 1))
	servertest.WriteFile(t, "user.yaml", strings.Replace(noLatest, "object.spec", "request.userInfo.username != 'a' && object.spec", 1))
	const user = `ValidatingAdmissionPolicy "no-latest.example.com" reads request.userInfo, and no user is given`
	reviewed(t, "", 1, []string{user, "no such key: username"}, nil, "pod.yaml", "--policies=user.yaml", healthy)
	reviewed(t, "", 0, nil, []string{user}, "pod.yaml", "--policies=user.yaml", healthy, "--strict", "--as=b")
	servertest.WriteFile(t, "optional.yaml", strings.Replace(noLatest, "object.spec",
		"request.userInfo.?username.orValue('') != 'a' && object.spec", 1))
	reviewed(t, "", 0, nil, []string{user}, "pod.yaml", "--policies=optional.yaml", healthy, "--strict")
	servertest.WriteFile(t, "job.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: "+
		"{restartPolicy: Never, containers: [{name: a, image: 'a:1'}]}}}\n")
	reviewed(t, "", 0, nil, []string{user}, "job.yaml", "--policies=user.yaml", healthy, "--strict") // a controller creates its Pods
}

// TestReviewSaysWhatItLeftOut expects a skipped chart with -q, and exceptions in every format.
func TestReviewSaysWhatItLeftOut(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"all", "all/chart"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	servertest.WriteFile(t, "all/chart/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n")
	servertest.WriteFile(t, "all/pod.yaml", latestPod)
	servertest.WriteFile(t, "latest.yaml", noLatest+`---
apiVersion: policies.fastadmit.io/v1
kind: PolicyException
metadata: {name: web}
spec:
  policies: [no-latest.example.com]
  reason: its images have no versions yet
  neverExpires: true
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
`)
	reviewed(t, "", 0, []string{"all/chart: skipped: a Helm chart: render it first"}, []string{"all/pod.yaml:1"},
		"all", "-q", "--policies=latest.yaml")
	servertest.WriteFile(t, "described.yaml", strings.Replace(noLatest, "metadata: {name: no-latest.example.com}",
		"metadata: {name: no-latest.example.com, annotations: {description: what has no version changes}}", 1))
	reviewed(t, "", 1, []string{`"text": "what has no version changes"`}, nil, "all", "--policies=described.yaml", "-o=sarif")
	const lifted = "PolicyException web has no end, lifted 1: its images have no versions yet"
	for _, format := range []string{"text", "github", "junit", "sarif"} {
		reviewed(t, "", 0, []string{lifted}, nil, "all", "--policies=latest.yaml", "-o", format)
	}
	for _, format := range []string{"json", "yaml", "html"} {
		reviewed(t, "", 0, []string{"its images have no versions yet"}, nil, "all", "--policies=latest.yaml", "-o", format)
	}
}

// TestReviewNameless has an object without a name, which kube-apiserver refuses.
func TestReviewNameless(t *testing.T) {
	const refused = "broken: kube-apiserver refuses the object: metadata.name: Required value"
	f := func(code int, want, not []string, object string) {
		t.Helper()
		reviewed(t, object, code, want, not, "-", "--enable-admission-plugins=AlwaysPullImages")
	}
	f(2, []string{refused}, nil, "apiVersion: v1\nkind: Pod\nmetadata: {}\n")
	f(0, nil, []string{refused}, "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n")
	f(0, nil, []string{refused}, "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nmetadata: {}\nspec: {}\n")
}

// TestReviewFailsOpen has servers that do not answer, and configurations that allow the object then.
func TestReviewFailsOpen(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("webhooks", 0o700); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "webhooks/all.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: shop}
webhooks:
- name: pods.shop.example.com
  failurePolicy: Ignore
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  clientConfig: {url: "https://127.0.0.1:1/pods"}
  admissionReviewVersions: [v1]
  sideEffects: None
`)
	servertest.WriteFile(t, "backend.yaml", "apiVersion: v1\nkind: Config\n"+
		"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {}}]\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n")
	servertest.WriteFile(t, "admission.yaml", `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: WebhookAdmissionConfiguration, staticManifestsDir: webhooks}
- name: ImagePolicyWebhook
  configuration:
    imagePolicy: {kubeConfigFile: backend.yaml, allowTTL: 1, denyTTL: 1, retryBackoff: -1, defaultAllow: true}
`)
	for _, plugin := range []string{"ImagePolicyWebhook", "ValidatingAdmissionWebhook"} {
		ignored := "ignored: " + plugin + ": allowed without an answer, as its configuration says: "
		reviewed(t, "", 2, []string{"1 allowed", ignored, "--strict: 1 ignored"}, nil, "pod.yaml",
			"--admission-control-config-file=admission.yaml", "--enable-admission-plugins="+plugin,
			"--disable-admission-plugins=PodSecurity", "--allow-plugin-calls", "--strict")
	}
}

// TestReviewUnreachable has clusters that do not answer. It fails at once, as audit does, and does not wait for 30 seconds.
func TestReviewUnreachable(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	f := func(want, user string) {
		t.Helper()
		servertest.WriteFile(t, "kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
			"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
			"users: [{name: a, user: {"+user+"}}]\n")
		for _, plugin := range []string{"PodSecurity", "AlwaysPullImages"} {
			reviewed(t, "", exitBroken, []string{`cannot ask the API server: Get "https://127.0.0.1:1/api": ` + want},
				[]string{"deadline", "allowed"}, "pod.yaml", "--kubeconfig=kubeconfig", "--enable-admission-plugins="+plugin)
		}
	}
	f("dial tcp 127.0.0.1:1: connect: connection refused", "")
	f("getting credentials: exec: executable no-such-program not found",
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-program, interactiveMode: Never}")
}

// TestReviewUpdatesNothing has an UPDATE of an object by itself, which plugins do not check.
func TestReviewUpdatesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	const note = "--operation=UPDATE without --old changes nothing"
	const update = "--operation=update"
	servertest.WriteFile(t, "pod.yaml", strings.Replace(hostPod("default", ""), "web", "a", 1))
	servertest.WriteFile(t, "old.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b}]}\n")
	reviewed(t, "", 0, []string{"fastadmit: " + note, "allowed"}, nil, "pod.yaml", update, baseline)
	for _, format := range []string{"json", "yaml", "github", "html", "junit", "sarif"} {
		stdout, _, code := execute("", "review", "pod.yaml", update, baseline, "-o", format)
		if code != 0 || !strings.Contains(stdout, note) {
			t.Errorf("-o %s: got exit code %d, want the note in\n%s", format, code, stdout)
		}
	}
	reviewed(t, "", exitBroken, []string{"--strict: " + note}, nil, "pod.yaml", update, baseline, "--strict")
	reviewed(t, "", exitDenied, nil, []string{note}, "pod.yaml", "--old=old.yaml", update, baseline)
	reviewed(t, "", exitDenied, nil, []string{note}, "pod.yaml", "--old=old.yaml", baseline)
	reviewed(t, "", exitDenied, nil, []string{note}, "pod.yaml", baseline)
	reviewed(t, "", 0, nil, []string{note}, "pod.yaml", "--operation=DELETE", baseline)
	const recorded = `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "operation": "UPDATE",
		"kind": {"group": "", "version": "v1", "kind": "Pod"}, "resource": {"group": "", "version": "v1", "resource": "pods"},
		"namespace": "default", "name": "a", "object": {"metadata": {}}, "oldObject": {"metadata": {}}}}`
	reviewed(t, recorded, 0, []string{"UPDATE Pod default/a: allowed"}, []string{note}, "-", update, baseline)
}
