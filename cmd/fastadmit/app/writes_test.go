package app

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestWriters names the plugins that write to the cluster.
func TestWriters(t *testing.T) {
	var got []string
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		if writes := written(&plugin); len(writes) > 0 {
			got = append(got, plugin.Name+" "+strings.Join(writes, ","))
		}
	}
	if got, want := strings.Join(got,
		"; "), "NamespaceAutoProvision create namespaces; ResourceQuota update resourcequotas/status"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestUnauthenticatedWrites expects serve not to start if anybody could make its plugins write.
func TestUnauthenticatedWrites(t *testing.T) {
	state := "--cluster-state-dir=" +
		filepath.Dir(servertest.TempFile(t, "state.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"))
	f := func(want []string, args ...string) {
		t.Helper()
		_, stderr, code := execute("", append([]string{"serve", state, "--metrics-bind-address="}, args...)...)
		for _, text := range want {
			if code != 1 || !strings.Contains(stderr, text) {
				t.Errorf("%q: got exit code %d, stderr %q, want 1 with %q", args, code, stderr, text)
			}
		}
	}
	refused := []string{"callers are not authenticated: ", "--client-ca-file", "--token-auth-file", "--basic-auth-file",
		"--path-token-file", "--cert-secret-name", "--allow-unauthenticated-writes"}
	f(append(refused, "NamespaceAutoProvision (create namespaces). "), "--enable-admission-plugins=NamespaceAutoProvision,NodeRestriction")
	f(append(refused, "ResourceQuota (update resourcequotas/status). "), "--enable-admission-plugins=ResourceQuota")
	f(append(refused, "NamespaceAutoProvision (create namespaces), ResourceQuota (update resourcequotas/status). "),
		"--enable-admission-plugins=ResourceQuota,NamespaceAutoProvision", "--allow-unauthenticated-writes=false")
	const managed = "--cert-secret-name=a"
	f(refused, "--enable-admission-plugins=ResourceQuota", managed, "--managed-path-token=false")
	f(refused, "--enable-admission-plugins=ResourceQuota", managed, "--webhook-configurations=mutating/a")

	// Settings that pass this check. An invalid authority is found before it, a missing kube-apiserver after it.
	f([]string{"cannot manage certificates: cluster state: this process does not run in a Pod"},
		"--enable-admission-plugins=ResourceQuota", managed, "--cert-secret-namespace=a")
	f([]string{"got no certificate"}, "--enable-admission-plugins=ResourceQuota", "--client-ca-file="+servertest.TempFile(t, "ca", ""))
	tokens := servertest.TempFile(t, "tokens.csv", "a,b,c\n")
	for _, way := range []string{"--token-auth-file=" + tokens, "--basic-auth-file=" + tokens, "--allow-unauthenticated-writes",
		"--path-token-file=" + servertest.TempFile(t, "tokens", pathtoken.New()),
		"--config=" + servertest.TempFile(t, "config.yaml", configHead+"server: {allowUnauthenticatedWrites: true}\n")} {
		serve(t, nil, "--enable-admission-plugins=ResourceQuota,NamespaceAutoProvision", state, way)
	}
	serve(t, nil, "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement", state)
}

func TestUnauthenticatedWarning(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages")
	servertest.Until(t, "the warning", func() bool { return strings.Contains(s.Log.String(), "callers are not authenticated: ") })
}

// TestUnauthenticatedWritesReload refuses a change that enables such a plugin.
func TestUnauthenticatedWritesReload(t *testing.T) {
	config := servertest.TempFile(t, "config.yaml", configHead+"enableAdmissionPlugins: [AlwaysPullImages]\n")
	s := serve(t, nil, "--config="+config,
		"--cluster-state-dir="+
			filepath.Dir(servertest.TempFile(t, "state.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")))
	servertest.WriteFile(t, config, configHead+"enableAdmissionPlugins: [AlwaysPullImages, NamespaceAutoProvision]\n")
	servertest.Until(t, "the change is refused", func() bool {
		return strings.Contains(s.Get(t, "/readyz?verbose", 200),
			"configuration ok: a change was refused, the previous version stays in use: got plugins that write to the cluster")
	})
	s.Open(t).Answers(false)
	if got := s.Get(t, "/metrics", 200); strings.Contains(got, "NamespaceAutoProvision") {
		t.Error("got metrics of a plugin that was refused")
	}
	servertest.WriteFile(t, config, configHead+"enableAdmissionPlugins: [AlwaysPullImages, NamespaceExists]\n")
	servertest.Until(t, "another change is taken", func() bool { return strings.Contains(s.Get(t, "/metrics", 200), "NamespaceExists") })
}
