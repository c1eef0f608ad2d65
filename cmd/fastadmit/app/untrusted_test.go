package app

import (
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// A trap is a server and a command that the files of a stranger name, and a file of the user.
type trap struct {
	calls  atomic.Int64
	tokens atomic.Value // the header Authorization of the last call
	ran    string       // a file that the command makes
}

// newTrap writes the files of a stranger into the current folder.
func newTrap(t *testing.T) *trap {
	t.Helper()
	x := &trap{ran: filepath.Join(t.TempDir(), "ran")}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.calls.Add(1)
		x.tokens.Store(r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	secret := filepath.Join(t.TempDir(), "token")
	servertest.WriteFile(t, secret, "secret")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	servertest.WriteFile(t, "ca.crt", string(ca))
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "run", "#!/bin/sh\ntouch "+x.ran+"\n")
	if err := os.Chmod("run", 0o700); err != nil {
		t.Fatal(err)
	}
	kubeconfig := func(user string) string {
		return "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: '*'}}]\n" +
			"clusters: [{name: x, cluster: {server: " + server.URL +
			", certificate-authority: ca.crt}}]\nusers: [{name: '*', user: " + user + "}]\n"
	}
	servertest.WriteFile(t, "exec.kubeconfig", kubeconfig("{exec: {apiVersion: client.authentication.k8s.io/v1, "+
		"command: "+dir+"/run, interactiveMode: Never}}"))
	servertest.WriteFile(t, "token.kubeconfig", kubeconfig("{tokenFile: "+secret+"}"))
	for _, kind := range []string{"Validating", "Mutating"} {
		if err := os.Mkdir(kind, 0o700); err != nil {
			t.Fatal(err)
		}
		servertest.WriteFile(t, kind+"/webhooks.yaml",
			"apiVersion: admissionregistration.k8s.io/v1\nkind: "+kind+"WebhookConfiguration\nmetadata: {name: "+
				strings.ToLower(kind)+".static.k8s.io}\nwebhooks:\n- name: x.static.k8s.io\n"+
				"  clientConfig: {url: '"+server.URL+"', caBundle: "+base64.StdEncoding.EncodeToString(ca)+"}\n  sideEffects: None\n  "+
				"admissionReviewVersions: [v1]\n"+
				"  rules: [{apiGroups: [''], apiVersions: [v1], operations: ['*'], resources: [pods, persistentvolumes]}]\n")
	}
	servertest.WriteFile(t, "pod.yaml", latestPod+"---\napiVersion: v1\nkind: PersistentVolume\n"+
		"metadata: {name: v}\nspec: {gcePersistentDisk: {pdName: d}}\n")
	x.suites(t, server.URL, dir)
	return x
}

// suites writes a suite and a configuration for each plugin that calls a server.
func (x *trap) suites(t *testing.T, url, dir string) {
	t.Helper()
	webhooks := func(dir, kubeconfig string) string {
		return "{apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, staticManifestsDir: " + dir +
			kubeconfig + "}"
	}
	kubeconfig := ", kubeConfigFile: " + dir + "/"
	for _, s := range []struct{ name, plugin, configuration string }{
		{"exec", "ImagePolicyWebhook", "{imagePolicy: {kubeConfigFile: exec.kubeconfig, retryBackoff: -1}}"},
		{"token", "ImagePolicyWebhook", "{imagePolicy: {kubeConfigFile: token.kubeconfig, retryBackoff: -1}}"},
		{"validating-exec", "ValidatingAdmissionWebhook", webhooks("Validating", kubeconfig+"exec.kubeconfig")},
		{"validating", "ValidatingAdmissionWebhook", webhooks("Validating", kubeconfig+"token.kubeconfig")},
		{"validating-nobody", "ValidatingAdmissionWebhook", webhooks("Validating", "")},
		{"mutating", "MutatingAdmissionWebhook", webhooks("Mutating", kubeconfig+"token.kubeconfig")},
		{"resources", "InitialResources",
			"{apiVersion: fastadmit.io/v1alpha1, kind: InitialResourcesConfiguration, source: {url: '" + url + "', caFile: '" +
				dir + "/ca.crt'}}"},
		{"volumes", "PersistentVolumeLabel",
			"{apiVersion: fastadmit.io/v1alpha1, kind: PersistentVolumeLabelConfiguration, endpoint: {url: '" + url +
				"', caFile: '" + dir +
				"/ca.crt'}}"},
	} {
		servertest.WriteFile(t, s.name+".yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"+
			"plugins:\n- name: "+s.plugin+"\n  configuration: "+s.configuration+"\n")
		servertest.WriteFile(t, s.name+".test.yaml",
			suiteHead+"enableAdmissionPlugins: ["+s.plugin+"]\nadmissionControlConfigFile: "+s.name+".yaml\n"+
				"cases: [{name: a, object: pod.yaml, expect: {decision: allowed}}]\n")
	}
}

// TestUntrusted checks that review and test call no server and run no command that their input names,
// unless the user allows it.
func TestUntrusted(t *testing.T) {
	t.Chdir(t.TempDir())
	x := newTrap(t)
	f := func(suite, plugin, token string) {
		t.Helper()
		where := suite + ".yaml:5: plugins[0].configuration: plugin " + plugin + ": it would call the addresses here"
		reviewArgs := []string{"pod.yaml", "--enable-admission-plugins=" + plugin, "--admission-control-config-file=" + suite + ".yaml"}
		tested(t, 2, []string{where, "--allow-plugin-calls"}, nil, suite+".test.yaml")
		reviewed(t, "", 2, []string{where, "--allow-plugin-calls"}, nil, reviewArgs...)
		replayed(t, "", 2, []string{where, "--allow-plugin-calls"}, append(reviewArgs[1:], "pod.yaml")...)
		if _, err := os.Stat(x.ran); err == nil || x.calls.Load() > 0 {
			t.Fatalf("%s: a command ran (%v), or %d calls were made", suite, err, x.calls.Load())
		}
		execute("", append([]string{"review", "--allow-plugin-calls"}, reviewArgs...)...)
		_, err := os.Stat(x.ran)
		got, _ := x.tokens.Load().(string)
		if token == "exec" && err != nil || token != "exec" && (x.calls.Load() == 0 || got != token) {
			t.Errorf("%s: with --allow-plugin-calls, got %d calls, the token %q, and of the command %v", suite, x.calls.Load(), got, err)
		}
		x.calls.Store(0)
		_ = os.Remove(x.ran)
		execute("", "test", "--allow-plugin-calls", suite+".test.yaml")
		if _, err := os.Stat(x.ran); err != nil && x.calls.Load() == 0 {
			t.Errorf("%s: test --allow-plugin-calls made no call", suite)
		}
		x.calls.Store(0)
		_ = os.Remove(x.ran)
	}
	f("exec", "ImagePolicyWebhook", "exec")
	f("token", "ImagePolicyWebhook", "Bearer secret")
	f("validating-exec", "ValidatingAdmissionWebhook", "exec")
	f("resources", "InitialResources", "")
	f("volumes", "PersistentVolumeLabel", "")
	f("validating", "ValidatingAdmissionWebhook", "Bearer secret")
	f("mutating", "MutatingAdmissionWebhook", "Bearer secret")
	f("validating-nobody", "ValidatingAdmissionWebhook", "")
	// Files that name no address work as before.
	reviewed(t, "", 0, []string{"2 allowed"}, nil,
		"pod.yaml", "--enable-admission-plugins=ValidatingAdmissionWebhook,MutatingAdmissionWebhook")
}

// TestFilesOutside checks that review and test do not read files that only a stranger's files name: the
// command line must name them or their folder, or the user must allow it.
func TestFilesOutside(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"tree", "state", "policies", "manifests"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	servertest.WriteFile(t, "secret.yaml", "secret: value-of-it\n")
	servertest.WriteFile(t, "manifests/webhooks.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: value-of-it}\n")
	for _, link := range []string{"tree/link.yaml", "state/link.yaml", "policies/link.yaml", "manifests/link.yaml"} {
		if err := os.Symlink("../secret.yaml", link); err != nil {
			t.Fatal(err)
		}
	}
	servertest.WriteFile(t, "tree/pod.yaml", latestPod)
	const refused = "--allow-files-outside allows others"
	f := func(plugins, config, allowed string) {
		t.Helper()
		servertest.WriteFile(t, "tree/a.test.yaml", suiteHead+"enableAdmissionPlugins: ["+plugins+"]\n"+config+
			"\ncases: [{name: a, object: pod.yaml, expect: {decision: allowed}}]\n")
		tested(t, 2, []string{refused}, []string{"value-of-it"}, "tree")
		tested(t, 2, []string{allowed}, []string{refused}, "tree", "--allow-files-outside")
	}
	admission := func(name, member string) string {
		servertest.WriteFile(t, "tree/admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"+
			"plugins: [{name: "+name+", "+member+"}]\n")
		return "admissionControlConfigFile: admission.yaml"
	}
	f("AlwaysPullImages", "config: ../secret.yaml", "secret: unknown field")
	f("AlwaysPullImages", "config: link.yaml", "secret: unknown field")
	f("AlwaysPullImages", "admissionControlConfigFile: ../secret.yaml", "secret: unknown field")
	f("PodSecurity", admission("PodSecurity", "path: ../secret.yaml"), "secret.yaml")
	f("PodSecurity", admission("PodSecurity", "path: link.yaml"), "link.yaml")
	f("ValidatingAdmissionPolicy", admission("ValidatingAdmissionPolicy",
		"configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, "+
			"staticManifestsDir: ../manifests}"),
		"manifests")

	review := func(code int, allowed string, args ...string) {
		t.Helper()
		args = append(args, "--enable-admission-plugins=NamespaceExists")
		reviewed(t, "", 2, []string{refused}, []string{"value-of-it"}, args...)
		reviewed(t, "", code, []string{allowed}, []string{refused}, append(args, "--allow-files-outside")...)
	}
	review(0, "link.yaml has no manifest", "tree") // the suite and the configuration are skipped
	review(2, "link.yaml", "tree/pod.yaml", "--cluster-state-dir=state")
	review(2, "no policy in policies", "tree/pod.yaml", "--policies=policies")
	review(0, "link.yaml has no manifest", "tree/pod.yaml", "--old=state")
}
