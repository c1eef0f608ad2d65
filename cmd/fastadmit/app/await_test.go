package app

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestAwait waits for a server that registers itself. If there is none, or one
// with other plugins, the error says what is missing.
func TestAwait(t *testing.T) {
	config := servertest.TempFile(t, "config.yaml",
		configHead+"enableAdmissionPlugins: [AlwaysPullImages]\nregistration: {clientConfig: {url: 'https://ADDRESS'}}\n")
	s, api := serveRegistered(t, config)
	kubeconfig := api.start(t)
	f := func(wantCode int, want string, args ...string) {
		t.Helper()
		stdout, stderr, code := execute("", append([]string{"await", "--kubeconfig=" + kubeconfig}, args...)...)
		if code != wantCode || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%q: got exit code %d, %s%s, want %d with %q", args, code, stdout, stderr, wantCode, want)
		}
	}
	managed := []string{"--cert-secret-name=certificate", "--cert-secret-namespace=fastadmit"}
	with := func(args ...string) []string { return append(args, managed...) }
	f(0, "kube-apiserver calls fastadmit for AlwaysPullImages\n", with("--config="+config)...)
	f(1, "is missing or has other rules than the enabled plugins",
		with("--config="+config, "--enable-admission-plugins=DenyServiceExternalIPs", "--timeout=1s")...)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	changed := servertest.TempFile(t, "changed.yaml", string(text)+"plugins: [{name: AlwaysPullImages, timeout: 2s}]\n")
	f(1, "has not read the configuration yet", with("--config="+changed, "--timeout=2s")...)
	if got := len(api.wrote("PATCH")); got != 2 {
		t.Errorf("got %d writes of configurations, want those of the server", got)
	}
	servertest.Until(t, "the server says that it is registered", func() bool {
		return strings.Contains(s.Get(t, "/readyz?verbose", 200), "[+]registration ok\n") &&
			strings.Contains(s.Get(t, "/metrics", 200), "\nfastadmit_registered 1\n")
	})

	kubeconfig = (&registry{objects: make(map[string]json.RawMessage), changed: make(chan struct{})}).start(t)
	f(1, "after 1s, kube-apiserver does not call fastadmit as configured: MutatingWebhookConfiguration fastadmit.io: there is none",
		with("--config="+config, "--timeout=1s")...)
	f(2, "await needs --cert-secret-name", "--config="+config)
	f(2, "await needs --cert-secret-name", with("--config="+config, "--webhook-configurations=mutating/a")...)
	f(2, "no admission plugin is enabled", managed...)
}
