package app

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const configHead = "apiVersion: fastadmit.io/v1alpha1\nkind: Configuration\n"

// TestReload changes the configuration of a server under continuous requests.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit]\n")
	s := serve(t, nil, "--config="+file)
	x := s.Open(t)
	if _, body := x.Answer("/validate"); !strings.Contains(body, `"allowed":true`) {
		t.Fatalf("got %s", body)
	}
	var stop atomic.Bool
	done := make(chan int)
	asking := s.Open(t)
	go func() {
		n := 0
		for ; !stop.Load(); n++ {
			if code, body := asking.Answer("/mutate"); code != http.StatusOK {
				t.Errorf("a request got %d %s", code, body)
				break
			}
		}
		done <- n
	}()
	denies := func() bool {
		_, body := x.Answer("/validate")
		return strings.Contains(body, `"allowed":false`)
	}
	// A configuration is counted after it answers. Until then, another change is part of the same reload.
	counted := func(n int) bool {
		return strings.Contains(s.Get(t, "/metrics", 200), fmt.Sprintf("fastadmit_config_reload_successes_total %d\n", n))
	}

	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit, AlwaysDeny]\n")
	servertest.Until(t, "a plugin was added", func() bool { return denies() && counted(1) })
	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysDeny]\nplugins:\n- name: AlwaysDeny\n  rules:\n"+
		"  - {operations: [DELETE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}\n")
	servertest.Until(t, "a plugin was narrowed", func() bool { return !denies() && counted(2) })
	servertest.WriteFile(t, file,
		configHead+"enableAdmissionPlugins: [AlwaysDeny]\nplugins:\n- name: AlwaysDeny\n  enforcement: [{action: warn}]\n")
	servertest.Until(t, "a denial became a warning", func() bool {
		_, body := x.Answer("/validate")
		return strings.Contains(body, `"warnings":["AlwaysDeny: pods`) && counted(3)
	})
	stop.Store(true)
	if n := <-done; n == 0 {
		t.Error("nothing was asked in between")
	}

	before := s.Get(t, "/metrics", 200)
	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit]\nbogus: 1\n")
	servertest.Until(t, "a change was refused", func() bool {
		return strings.Contains(s.Get(t, "/readyz?verbose", 200),
			"configuration ok: a change was refused, the previous version stays in use: "+file+":4: bogus: unknown field")
	})
	if code, body := x.Answer("/validate"); code != 200 || !strings.Contains(body, "warnings") {
		t.Errorf("after a bad change: got %d %s, want what was before", code, body)
	}
	if line := "fastadmit_config_reload_failures_total 0\n"; !strings.Contains(before, line) {
		t.Errorf("no %q in %s", line, before)
	}
	servertest.Until(t, "a bad change is counted and logged", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_config_reload_failures_total 1\n") &&
			strings.Contains(s.Log.String(), "configuration refused")
	})
	servertest.WriteFile(t, file, configHead+"enableAdmissionPlugins: [AlwaysAdmit]\n")
	servertest.Until(t, "a good change after a bad one", func() bool {
		const all = "[+]serving ok\n[+]cluster ok\n[+]rules ok\n[+]version ok: 1.37\n[+]configuration ok\n[+]certificate " +
			"ok\n[+]callers ok\nok\n"
		return s.Get(t, "/readyz?verbose", 200) == all
	})
}

// TestReloadConfigMap changes files as the kubelet does in a mounted ConfigMap: all
// at once, by replacing a link to a folder. A plugin keeps its state if its own
// configuration did not change.
func TestReloadConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := 0
	publish := func(config, limits string) {
		t.Helper()
		version++
		data := fmt.Sprintf("..version_%d", version)
		if err := os.Mkdir(filepath.Join(dir, data), 0o700); err != nil {
			t.Fatal(err)
		}
		servertest.WriteFile(t, filepath.Join(dir, data, "config.yaml"), configHead+config)
		servertest.WriteFile(t, filepath.Join(dir, data, "limits.yaml"),
			"kind: Configuration\napiVersion: eventratelimit.admission.k8s.io/v1alpha1\nlimits:\n- "+limits+"\n")
		servertest.WriteFile(t, filepath.Join(dir, data, "admission.yaml"),
			"kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nplugins: [{name: EventRateLimit, path: limits.yaml}]\n")
		next := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(data, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("enableAdmissionPlugins: [EventRateLimit]\n", "{type: Server, qps: 1, burst: 1}")
	for _, name := range []string{"config.yaml", "limits.yaml", "admission.yaml"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := serve(t, nil, "--config="+filepath.Join(dir, "config.yaml"),
		"--admission-control-config-file="+filepath.Join(dir, "admission.yaml"))
	x := s.Open(t)
	reloads := func(n int) func() bool {
		return func() bool {
			return strings.Contains(s.Get(t, "/metrics", 200), fmt.Sprintf("fastadmit_config_reload_successes_total %d\n", n))
		}
	}
	event := func() bool {
		_, body := x.Send(servertest.Request("/validate", corpus.MustRead("events-create-v1-1.json")))
		return bytes.Contains(body, []byte(`"allowed":true`))
	}
	publish("enableAdmissionPlugins: [EventRateLimit, AlwaysPullImages]\n", "{type: Server, qps: 1, burst: 1000}")
	servertest.Until(t, "reloaded", reloads(1))
	for range 1000 {
		if !event() {
			t.Fatal("refused within the new burst")
		}
	}
	publish("enableAdmissionPlugins: [EventRateLimit]\n", "{type: Server, qps: 1, burst: 1000}")
	servertest.Until(t, "reloaded", reloads(2))
	allowed := 0
	for range 1000 {
		if event() {
			allowed++
		}
	}
	if allowed > 100 {
		t.Errorf("%d Events were allowed: the tokens that were used are forgotten", allowed)
	}
}

// TestReloadManifests adds a file to a folder of manifests, and then makes it
// invalid.
func TestReloadManifests(t *testing.T) {
	dir := t.TempDir()
	policies := filepath.Join(dir, "policies")
	if err := os.Mkdir(policies, 0o700); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, filepath.Join(state, "shop.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	admission := filepath.Join(dir, "admission.yaml")
	servertest.WriteFile(t, admission, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: policies}
`)
	s := serve(t, nil, "--enable-admission-plugins=ValidatingAdmissionPolicy", "--admission-control-config-file="+admission,
		"--cluster-state-dir="+state)
	x := s.Open(t)
	if _, body := x.Answer("/validate"); !strings.Contains(body, `"allowed":true`) {
		t.Fatalf("got %s, want no policy to deny", body)
	}
	policy := `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]}
  validations: [{expression: "object.kind == 'Pot'", message: this is no pot}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p, validationActions: [Deny]}
`
	denies := func() bool {
		_, body := x.Answer("/validate")
		return strings.Contains(body, "this is no pot")
	}
	servertest.WriteFile(t, filepath.Join(policies, "pot.yaml"), policy)
	servertest.Until(t, "a policy was added", denies)
	servertest.WriteFile(t, filepath.Join(policies, "pot.yaml"), strings.Replace(policy, "object.kind", "object.", 1))
	servertest.Until(t, "a policy that does not compile was refused", func() bool {
		return strings.Contains(s.Get(t, "/readyz?verbose", 200), "compilation failed")
	})
	if !denies() {
		t.Error("after a bad change: got no denial, want what was before")
	}
	if err := os.Remove(filepath.Join(policies, "pot.yaml")); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "a policy was removed", func() bool { return !denies() })
}

// TestClusterStateDir uses a plugin with a namespaceSelector, and namespaces in
// files.
func TestClusterStateDir(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	servertest.WriteFile(t, file,
		configHead+"enableAdmissionPlugins: [AlwaysDeny]\nplugins:\n- name: AlwaysDeny\n  namespaceSelector: {matchLabels: "+
			"{strict: 'yes'}}\n")
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: shop\n  labels: {strict: '%s'}\n"
	servertest.WriteFile(t, filepath.Join(state, "namespaces.yaml"), fmt.Sprintf(namespace, "yes"))
	f := func(want string, args ...string) {
		t.Helper()
		s := serve(t, nil, append(args, "--config="+file)...)
		if _, body := s.Open(t).Answer("/validate"); !strings.Contains(body, want) {
			t.Errorf("got %s, want %s in it", body, want)
		}
	}
	f(`"allowed":false`, "--cluster-state-dir="+state)
	servertest.WriteFile(t, filepath.Join(state, "namespaces.yaml"), fmt.Sprintf(namespace, "no"))
	f(`"allowed":true`, "--cluster-state-dir="+state)
	servertest.WriteFile(t, filepath.Join(state, "namespaces.yaml"), "")
	f(`"message":"AlwaysDeny: namespaces \"shop\" not found","reason":"NotFound"`, "--cluster-state-dir="+state)

	for namespace, want := range map[string]string{"shop": "allowed", "strict": "denied"} {
		servertest.WriteFile(t, file,
			configHead+"enableAdmissionPlugins: [AlwaysDeny]\nplugins:\n- name: AlwaysDeny\n  namespaceSelector: "+
				"{matchLabels: {kubernetes.io/metadata.name: strict}}\n")
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: " + namespace + "}\n"
		if got, errs, _ := execute(pod, "review", "-f", "-", "--config="+file); !strings.Contains(got, want) {
			t.Errorf("review in %s: got %s %s, want %s", namespace, got, errs, want)
		}
	}

	_, errs, code := execute("", "serve", "--config="+file, "--secure-port=0", "--bind-address=127.0.0.1", "--metrics-bind-address=")
	if code != 1 || !strings.Contains(errs, "cannot read the cluster, needed by a namespaceSelector") {
		t.Errorf("without a cluster: got exit code %d, %s", code, errs)
	}
}

// TestFailurePolicyEndpoints tests which plugins the paths of each failure policy
// run.
func TestFailurePolicyEndpoints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	servertest.WriteFile(t, file,
		configHead+"enableAdmissionPlugins: [AlwaysDeny, LimitPodHardAntiAffinityTopology]\nplugins:\n- {name: AlwaysDeny, "+
			"failurePolicy: Ignore}\n")
	x := serve(t, nil, "--config="+file).Open(t)
	f := func(path, want string) {
		t.Helper()
		if code, body := x.Answer(path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %s, want %s in it", path, code, body, want)
		}
	}
	for _, phase := range []string{"/mutate", "/validate"} {
		f(phase, `"allowed":false`)
		f(phase+"/ignore", `"allowed":false`)
		f(phase+"/fail", `"allowed":true`)
	}
}

// TestConfigCommand prints the configuration that results from flags and files. Read
// as a file, it gives the same configuration.
func TestConfigCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	servertest.WriteFile(t, file, configHead+`
enableAdmissionPlugins: [AlwaysPullImages, SecurityContextDeny]
server: {securePort: 443, bindAddress: 127.0.0.1}
plugins:
- name: AlwaysPullImages
  timeout: 1s
  objectSelector: {matchLabels: {a: b}}
- name: AlwaysDeny
`)
	printed, errs, code := execute("", "config", "--config="+file, "--secure-port=8443", "--profiling")
	if code != 0 || errs != "" {
		t.Fatalf("got exit code %d, %s", code, errs)
	}
	want, err := os.ReadFile("testdata/config.golden")
	if err != nil {
		t.Fatal(err)
	}
	if printed != string(want) {
		t.Errorf("got\n%s\nwant\n%s", printed, want)
	}
	servertest.WriteFile(t, file, printed)
	printed = strings.Replace(printed, "# "+report.Unused("AlwaysDeny")+".\n", "", 1)
	if again, errs, code := execute("", "config", "--config="+file); again != printed || code != 0 {
		t.Errorf("again: got exit code %d, %s\n%s", code, errs, again)
	}
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(printed), &parsed); err != nil {
		t.Error(err)
	}
}

// TestHangup sends SIGHUP: the server reads all files again, although none changed,
// and keeps its connections.
func TestHangup(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	servertest.WriteFile(t, tokens, "secret,kube-apiserver,1\n")
	config := filepath.Join(t.TempDir(), "config.yaml")
	servertest.WriteFile(t, config, configHead+"enableAdmissionPlugins: [AlwaysPullImages]\n")
	s := serve(t, nil, "--config="+config, "--token-auth-file="+tokens)
	served := func() string { return s.Dial(t).ConnectionState().PeerCertificates[0].SerialNumber.String() }
	certificate := served()
	ask := func(x *servertest.Exchange) {
		t.Helper()
		response, body := x.Send(servertest.Request("/validate", corpus.MustRead(servertest.PodCreate),
			"Authorization: Bearer secret", "Content-Type: application/json"))
		if response.StatusCode != http.StatusOK || response.Close {
			t.Errorf("got %s %s, close %v", response.Status, body, response.Close)
		}
	}
	x := s.Open(t)
	ask(x)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "all parts were read again", func() bool {
		log := s.Log.String()
		return strings.Contains(log, "because of SIGHUP") && strings.Contains(log, `"callers reloaded"`) &&
			strings.Contains(log, `"configuration reloaded"`)
	})
	ask(x)
	ask(s.Open(t))
	if got := served(); got != certificate {
		t.Error("the certificate made in memory was replaced, which nobody trusts")
	}
}
