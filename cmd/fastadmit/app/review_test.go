package app

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// execute runs the command as a shell does.
func execute(stdin string, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	cmd := NewCommand(WithVersion("v1.2.3"))
	cmd.SetArgs(append([]string{}, args...)) // of nil, it takes those of the test binary
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = Execute(cmd)
	return out.String(), errs.String(), code
}

const manifests = `# a Pod and a Service
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: a, image: "nginx:1", imagePullPolicy: IfNotPresent}
---
# nothing but a comment
---
{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "shop"}, "spec": {"externalIPs": ["192.0.2.1"]}}
`

func TestReview(t *testing.T) {
	f := func(stdin string, args []string, code int, stdout string) {
		t.Helper()
		got, errs, gotCode := execute(stdin, append([]string{"review", "-f", "-"}, args...)...)
		errs = strings.Replace(errs, "fastadmit: "+sameNote+"\n", "", 1)
		if got != stdout || gotCode != code || errs != "" {
			t.Errorf("%q: got exit code %d, stderr %q, stdout\n%s\nwant %d,\n%s", args, gotCode, errs, got, code, stdout)
		}
	}
	const patch = `  {"op":"replace","path":"/spec/containers/0/imagePullPolicy","value":"Always"}` + "\n"
	const patched = "stdin:2: Pod default/web: allowed, patched by AlwaysPullImages\n" + patch
	const denied = "Service shop/s: denied by DenyServiceExternalIPs (403 Forbidden): services \"s\" is forbidden: Use of " +
		"external IPs is denied by admission control\n"
	f(manifests, []string{"--enable-admission-plugins=AlwaysPullImages"}, 0,
		patched+"stdin:11: Service shop/s: allowed\n2 objects: 2 allowed (1 patched), 0 denied, 1 that no plugin checked, as "+
			"Kubernetes 1.37\n")
	f(manifests, []string{"--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs"}, 1,
		patched+"stdin:11: "+denied+"2 objects: 1 allowed (1 patched), 1 denied, as Kubernetes 1.37\n")
	f(manifests, []string{"--enable-admission-plugins=DenyServiceExternalIPs", "-q"}, 1,
		"stdin:11: "+denied+"2 objects: 1 allowed, 1 denied, 1 that no plugin checked, as Kubernetes 1.37\n")
	f(manifests, []string{"--enable-admission-plugins=DenyServiceExternalIPs", "--operation=UPDATE"}, 0,
		"stdin:2: UPDATE Pod default/web: allowed\nstdin:11: UPDATE Service shop/s: allowed\n2 objects: 2 allowed, 0 "+
			"denied, 1 that no plugin checked, as Kubernetes 1.37\n")
	f(manifests, []string{"--enable-admission-plugins=AlwaysDeny", "--operation=delete"}, 1,
		"stdin:2: DELETE Pod default/web: denied by AlwaysDeny (403 Forbidden): pods \"web\" is forbidden: admission "+
			"control is denying all modifications\n"+
			"stdin:11: DELETE Service shop/s: denied by AlwaysDeny (403 Forbidden): services \"s\" is forbidden: admission "+
			"control is denying all modifications\n"+
			"2 objects: 0 allowed, 2 denied, as Kubernetes 1.37\n")
	f(manifests, []string{"--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs", "-o", "object"}, 1, `---
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: default
spec:
  containers:
  - image: nginx:1
    imagePullPolicy: Always
    name: a
    resources: {}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  terminationGracePeriodSeconds: 30
status: {}
---
# stdin:11: `+denied)
	got, _, code := execute(
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{"uid":"u1","operation":"CREATE"}}`,
		"review", "-", "--enable-admission-plugins=AlwaysPullImages", "-o", "response")
	want := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","response":{"uid":"u1","allowed":true}}` + "\n"
	if got != want || code != 0 {
		t.Errorf("got exit code %d,\n%s\nwant 0,\n%s", code, got, want)
	}
}

// TestReviewRecording reviews a recording of the corpus as a file.
func TestReviewRecording(t *testing.T) {
	got, errs, code := execute("", "review", "-f", "../../../corpus/"+servertest.PodCreate, "--enable-admission-plugins=AlwaysPullImages")
	if code != 0 || errs != "" || strings.Count(got, "imagePullPolicy") != 3 {
		t.Errorf("got exit code %d, %q, %q", code, errs, got)
	}
}

// TestWrongUse shows what the command says when it is used wrongly (2) or
// cannot do what it was asked for (1).
func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	f := func(code int, want string, stdin string, args ...string) {
		t.Helper()
		stdout, stderr, got := execute(stdin, args...)
		if got != code || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%q: got exit code %d, stderr %q, stdout %q, want %d with %q", args, got, stderr, stdout, code, want)
		}
	}
	const images = "--enable-admission-plugins=AlwaysPullImages"
	f(2, `unknown command "bogus"`, "", "bogus")
	f(2, `unknown command "bogus"`, "", "help", "bogus")
	f(2, "unknown flag: --bogus", "", "serve", "--bogus")
	f(2, "no admission plugin is enabled", "", "serve")
	f(2, `unknown admission plugin "Nothing"`, "", "serve", "--enable-admission-plugins=Nothing")
	f(2, `fastadmit has no admission plugin PVCProtection: it was renamed: enable StorageObjectInUseProtection`, "", "serve",
		"--enable-admission-plugins=PVCProtection")
	f(2, `unknown admission plugin "Nothing"`, "", "serve", images, "--disable-admission-plugins=Nothing")
	f(2, "AlwaysPullImages is both enabled and disabled", "", "serve", images, "--disable-admission-plugins=AlwaysPullImages")
	f(2, "--secure-port: got 65536, want 0 to 65535", "", "serve", images, "--secure-port=65536")
	f(2, "must be set together", "", "serve", images, "--tls-cert-file=x")
	f(1, "cannot load the serving certificate from", "", "serve", images, "--tls-cert-file="+write("bad.crt", "x"),
		"--tls-private-key-file="+write("bad.key", "x"))
	f(1, "cannot serve webhooks", "", "serve", images, "--bind-address=192.0.2.1")
	f(1, "cannot serve metrics", "", "serve", images, "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=192.0.2.1:0")
	f(2, "name files or folders to review", "", "review", images)
	f(2, `--output: got "table", want one of text, json, yaml,`, "", "review", images, "-f", "-", "-o", "table")
	f(2, `--operation: got "EAT", want CREATE, UPDATE or DELETE`, "apiVersion: v1\nkind: Pod", "review", images, "-f", "-",
		"--operation=EAT")
	f(2, "need --as", "", "review", images, "-", "--as-group=a")
	f(2, `--as-extra: got "a", want key=value`, "", "review", images, "-", "--as=a", "--as-extra=a")
	f(2, `--pod-template-path: got a=b, want a resource with its group`, "", "review", images, "-", "--pod-template-path=a=b")
	f(2, "there is nothing to review: no object in -", "# nothing\n", "review", images, "-")
	f(2, "cannot read the cluster", "", "review", images, "-", "--kubeconfig="+filepath.Join(dir, "missing"))
	f(2, "missing: no such folder", "", "review", images, "-", "--cluster-state-dir="+filepath.Join(dir, "missing"))
	f(1, "cannot read the cluster", "", "serve", images, "--kubeconfig="+filepath.Join(dir, "missing"))

	config := func(content string) string {
		return "--admission-control-config-file=" + write("admission.yaml", content)
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	f(1, "cannot read configuration: open", "", "serve", images, "--admission-control-config-file="+filepath.Join(dir, "missing.yaml"))
	f(1, "admission.yaml:3: bogus: unknown field, want one of apiVersion, kind, plugins", "", "serve", images, config(head+"bogus: 1\n"))
	f(1, `kind: got "Other"`, "", "serve", images, config("apiVersion: apiserver.config.k8s.io/v1\nkind: Other\n"))
	f(1, `apiVersion: got "v9"`, "", "serve", images, config("apiVersion: v9\nkind: AdmissionConfiguration\n"))
	f(1, `plugins[0].name: unknown plugin "Nothing"`, "", "serve", images, config(head+"plugins: [{name: Nothing}]\n"))
	f(1, `plugins[0].name: fastadmit has no plugin GenericAdmissionWebhook: it was renamed`, "", "serve", images,
		config(head+"plugins: [{name: GenericAdmissionWebhook}]\n"))
	f(1, "plugins[1].name: AlwaysDeny is configured twice", "", "serve", images,
		config(head+"plugins: [{name: AlwaysDeny}, {name: AlwaysDeny}]\n"))
	f(1, "admission.yaml:3: plugins[0].path: cannot read the configuration of EventRateLimit", "", "serve",
		"--enable-admission-plugins=EventRateLimit",
		config(head+"plugins: [{name: EventRateLimit, path: missing.yaml}]\n"))
	f(1, "plugin EventRateLimit", "", "serve", "--enable-admission-plugins=EventRateLimit")
}

// TestAdmissionConfiguration configures EventRateLimit in the file and in a
// separate one, in both versions.
func TestAdmissionConfiguration(t *testing.T) {
	const limits = `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration",` +
		`"limits":[{"type":"Server","qps":1,"burst":1}]}`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "limits.yaml"), []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(version, plugin string) {
		t.Helper()
		file := filepath.Join(dir, "admission.yaml")
		content := "apiVersion: " + version + "\nkind: AdmissionConfiguration\nplugins:\n- " + plugin + "\n"
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		recording := "../../../corpus/events-create-v1-1.json"
		got, errs, code := execute("", "review", "-f", recording, "-f", recording,
			"--enable-admission-plugins=EventRateLimit", "--admission-control-config-file="+file)
		if code != 1 || !strings.Contains(got, ": 1 allowed, 1 denied") ||
			strings.Count(got, "denied by EventRateLimit (429 TooManyRequests)") != 1 {
			t.Errorf("%s %s: got exit code %d, %q, %q, want the second event refused", version, plugin, code, errs, got)
		}
	}
	f("apiserver.config.k8s.io/v1", "{name: EventRateLimit, path: limits.yaml}")
	f("apiserver.config.k8s.io/v1", "{name: EventRateLimit, configuration: "+limits+"}")
	f("apiserver.config.k8s.io/v1", "{name: EventRateLimit, path: missing.yaml, configuration: "+limits+"}")
	f("apiserver.k8s.io/v1alpha1", "{name: EventRateLimit, path: "+filepath.Join(dir, "limits.yaml")+"}")
}

func TestPluginsAndVersion(t *testing.T) {
	got, _, code := execute("", "plugins")
	if want := len(handlers.InTree(handlers.DefaultOptions())); code != 0 || strings.Count(got, "\n") != 1+want {
		t.Errorf("got exit code %d and\n%s\nwant a heading and %d plugins", code, got, want)
	}
	for _, want := range []string{"SecurityContextDeny", "removed after 1.29", "on by default", "off by default", "mutates,validates"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got, _, code := execute("", "version"); code != 0 || !strings.HasPrefix(got, "fastadmit v1.2.3 go1.") {
		t.Errorf("got exit code %d and %q", code, got)
	}
	if got, _, code := execute(""); code != 0 || !strings.Contains(got, "fastadmit [command]") {
		t.Errorf("got exit code %d and %q, want the usage", code, got)
	}
}

// TestFlagsReachPlugins sets the flags that kube-apiserver has too.
func TestFlagsReachPlugins(t *testing.T) {
	got, _, code := execute("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n", "review", "-f", "-",
		"--enable-admission-plugins=DefaultTolerationSeconds",
		"--default-not-ready-toleration-seconds=7", "--default-unreachable-toleration-seconds=8")
	if code != 0 || !strings.Contains(got, `"tolerationSeconds":7`) || !strings.Contains(got, `"tolerationSeconds":8`) {
		t.Errorf("got exit code %d and %s", code, got)
	}
}

// TestReviewIsDryRun reviews more Events than the limit allows. Reviews are dry
// runs, so no Event counts.
func TestReviewIsDryRun(t *testing.T) {
	const event = `{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"shop"}}`
	const recorded = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",
"kind":{"group":"","version":"v1","kind":"Event"},"resource":{"group":"","version":"v1","resource":"events"},
"operation":"CREATE","dryRun":false,"object":` + event + `}}`
	api := httptest.NewServer(http.NotFoundHandler()) // it has nothing
	defer api.Close()
	dir := t.TempDir()
	admission, kubeconfig := filepath.Join(dir, "admission.yaml"), filepath.Join(dir, "kubeconfig")
	servertest.WriteFile(t, admission,
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: EventRateLimit, configuration: "+
			"{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 1, burst: 1}]}}]\n")
	servertest.WriteFile(t, kubeconfig,
		`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],
"clusters":[{"name":"c","cluster":{"server":"`+api.URL+`"}}]}`)
	f := func(document string, allowed int, flags ...string) {
		t.Helper()
		got, errs, _ := execute(strings.Repeat(document+"\n---\n", 3), append([]string{"review", "-f", "-",
			"--enable-admission-plugins=EventRateLimit", "--admission-control-config-file=" + admission}, flags...)...)
		if strings.Count(got, ": allowed\n") != allowed {
			t.Errorf("%q: got %s%s, want %d that are allowed", flags, got, errs, allowed)
		}
	}
	f(event, 1)
	f(recorded, 1)
	f(event, 3, "--kubeconfig="+kubeconfig)
	f(recorded, 3, "--kubeconfig="+kubeconfig)
}

// TestReviewUnknownFields has fields that the kind of an object does not have.
func TestReviewUnknownFields(t *testing.T) {
	t.Chdir(t.TempDir())
	const web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replica: 3\n  template:\n    spec:\n" +
		"      containers:\n      - {name: a, image: 'i:v1'}\n      - name: b\n        imagePullPolcy: Always\n"
	servertest.WriteFile(t, "web.yaml", web)
	const replicas = `web.yaml:5: unknown field "spec.replica", did you mean replicas?`
	const policy = `web.yaml:11: unknown field "spec.template.spec.containers[1].imagePullPolcy", did you mean imagePullPolicy?`
	f := func(code int, want []string, not []string, args ...string) {
		t.Helper()
		reviewed(t, "", code, want, not, append([]string{"web.yaml", "--pod-security=baseline"}, args...)...)
	}
	f(0, []string{"  warning: " + replicas + "\n  warning: " + policy + "\n", "2 warnings"}, []string{"3 warnings", "4 warnings"})
	f(0, []string{`"line": 11,` + "\n          \"message\": \"unknown field \\\"spec.template"}, nil, "-o=json")
	f(0, []string{"::warning file=web.yaml,line=11,title=kube-apiserver warns of Deployment default/web::unknown field"}, nil, "-o=github")
	f(0, []string{`"startLine": 5`, `"startLine": 11`}, []string{`"startLine": 1` + "\n"}, "-o=sarif")
	f(0, []string{"warning: " + strings.ReplaceAll(replicas, `"`, "&#34;")}, nil, "-o=junit")
	f(0, []string{"</span>: " + strings.ReplaceAll(policy, `"`, "&#34;")}, nil, "-o=html")
	f(0, []string{"fastadmit: web.yaml:1: Deployment default/web: warning: " + replicas}, []string{"replica:"}, "-o=object")
	f(1, []string{replicas}, nil, "--warnings-as-errors")
	f(0, []string{replicas}, nil, "--strict") // which is about objects that nothing checks
	f(0, nil, []string{"unknown field"}, "--operation=DELETE")
	servertest.WriteFile(t, "gadget.yaml", "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: a}\nx: 1\n")
	reviewed(t, "", 0, []string{"1 skipped"}, []string{"unknown field"}, "web.yaml", "gadget.yaml", "--skip-unknown", "--operation=DELETE",
		"--pod-security=baseline")
	// The Pods of a custom workload have the fields of Pods.
	const rollout = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n"
	servertest.WriteFile(t, "rollout.yaml", rollout+"      hostNetwrk: true\n      containers: [{name: a, image: 'i:v1'}]\n")
	const paths = "--pod-template-path=rollouts.argoproj.io=.spec.template"
	reviewed(t, "", 0, []string{`warning: line 7: unknown field "spec.hostNetwrk", did you mean hostNetwork?`}, nil,
		"rollout.yaml", "--pod-security=baseline", paths)
	servertest.WriteFile(t, "rollout.yaml", rollout+"      containers: {name: a}\n")
	reviewed(t, "", 2,
		[]string{"makes Pod web-*: broken: kube-apiserver cannot decode the object: spec.containers: got an object, want a list"},
		[]string{"Pod: allowed"}, "rollout.yaml", "--pod-security=baseline", paths)
	// Standard input cannot be read again to find the line.
	_, message, _ := strings.Cut(replicas, ": ")
	reviewed(t, web, 0, []string{"  warning: " + message + "\n"}, nil, "-", "--pod-security=baseline")
}
