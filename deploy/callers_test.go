package deploy_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// writesAllowed are values that allow plugins to write for unauthenticated callers.
const writesAllowed = "callers: {allowUnauthenticatedWrites: true}\n"

// TestWriters checks that the chart refuses plugins through which anybody could write to the
// cluster, and accepts the ways to allow it.
func TestWriters(t *testing.T) {
	t.Parallel()
	const plugins = "plugins: {ResourceQuota: {}, NamespaceAutoProvision: {rules: [{operations: [CREATE], apiGroups: [''], " +
		"apiVersions: [v1], resources: [pods]}]}}\n"
	flags := func(values, preset string) []string {
		t.Helper()
		return one[appsv1.Deployment](t, render(t, plugins+values, preset), "Deployment").Spec.Template.Spec.Containers[0].Args
	}
	// By default, with the path token that fastadmit manages.
	if got := flags("", ""); slices.ContainsFunc(got, func(a string) bool {
		return strings.Contains(a, "path-token") || strings.Contains(a, "unauthenticated")
	}) {
		t.Errorf("got %q, want the default of managed registration", got)
	}
	refused := func(values, preset string) {
		t.Helper()
		_, stderr, err := try(t, "", tool(t, "helm"), helm(t, "template", plugins+values, preset)...)
		if err == nil || !strings.Contains(stderr, "writes to the cluster, and nothing says who may call") {
			t.Errorf("%s: got %v %s, want it refused", values, err, stderr)
		}
	}
	refused("", "cert-manager.yaml")
	refused("callers: {pathToken: false}", "")
	refused("certificates: {webhookConfigurations: [mutating/a]}", "")
	taken := func(flag, values, preset string) {
		t.Helper()
		if got := flags(values, preset); flag != "" && !slices.Contains(got, flag) {
			t.Errorf("%s: got %q, want %s", values, got, flag)
		}
	}
	taken("--client-ca-file=/etc/fastadmit/callers/ca", "callers: {secretName: a, clientCAKey: ca}", "cert-manager.yaml")
	taken("--token-auth-file=/etc/fastadmit/callers/b", "callers: {secretName: a, tokensKey: b}", "cert-manager.yaml")
	taken("--basic-auth-file=/etc/fastadmit/callers/b", "callers: {secretName: a, passwordsKey: b}", "cert-manager.yaml")
	taken("--path-token-file=/etc/fastadmit/callers/b", "callers: {secretName: a, pathTokensKey: b}\nwebhooks: {create: false}",
		"cert-manager.yaml")
	taken("--path-token-file=/etc/fastadmit/callers/b", "callers: {secretName: a, pathTokensKey: b}", "")
	taken("--allow-unauthenticated-writes", "callers: {allowUnauthenticatedWrites: true}", "cert-manager.yaml")
	taken("--managed-path-token=false", "callers: {pathToken: false, allowUnauthenticatedWrites: true}", "")
}

// TestPathToken checks that the release's webhooks are called with the configured token.
func TestPathToken(t *testing.T) {
	t.Parallel()
	token := strings.Repeat("a", 32)
	r := render(t, somePlugins+"callers: {secretName: a, pathTokensKey: b}\nwebhooks: {pathToken: "+token+"}\n"+ownCertificate(), "")
	all := webhooks(t, r)
	if len(all) == 0 {
		t.Fatal("got no webhooks")
	}
	want := webhooks(t,
		parse(t, run(t, binary, append([]string{"manifests", "--path-token-file=" + writeFile(t, "tokens", token)}, files(t, r)...)...)))
	for name, w := range all {
		if got := *w.ClientConfig.Service.Path; got != *want[name].ClientConfig.Service.Path || !strings.HasPrefix(got, "/"+token+"/") {
			t.Errorf("%s: got path %s, want %s", name, got, *want[name].ClientConfig.Service.Path)
		}
	}
	_, stderr, err := try(t, "", tool(t, "helm"), helm(t, "template", somePlugins+"callers: {secretName: a, pathTokensKey: b}\n"+
		ownCertificate(), "")...)
	if err == nil || !strings.Contains(stderr, "webhooks.pathToken: got none, want the first path token") {
		t.Errorf("got %v %s, want the token to be asked for", err, stderr)
	}
}

// TestNetworkPolicy checks that there are NetworkPolicies once the address of kube-apiserver is
// known: one for the pods, one for the Job that waits for the registration.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	f := func(values string, want int) {
		t.Helper()
		if got := only[networkingv1.NetworkPolicy](t, render(t, somePlugins+values, ""), "NetworkPolicy"); len(got) != want {
			t.Errorf("%s: got %d, want %d", values, len(got), want)
		}
	}
	f("", 0)
	f("networkPolicy: {apiServerCIDRs: [10.0.0.1/32]}", 2)
	f("networkPolicy: {enabled: true, apiServerCIDRs: [10.0.0.1/32]}", 2)
	f("certificates: {webhookConfigurations: [mutating/a]}\nnetworkPolicy: {apiServerCIDRs: [10.0.0.1/32]}", 1) // there is no Job
	f("networkPolicy: {enabled: false, apiServerCIDRs: [10.0.0.1/32]}", 0)

	const two = "networkPolicy: {apiServerCIDRs: [10.0.0.1/32, 10.0.0.2/32], metricsFrom: [{ipBlock: {cidr: 10.0.0.3/32}}]}"
	var got []string
	for _, rule := range only[networkingv1.NetworkPolicy](t, render(t, somePlugins+two, ""), "NetworkPolicy")[0].Spec.Ingress {
		if len(rule.Ports) != 1 || len(rule.From) == 0 {
			t.Fatalf("got %v, want one port, and who may connect to it", rule)
		}
		for _, from := range rule.From {
			switch {
			case from.IPBlock != nil:
				got = append(got, rule.Ports[0].Port.StrVal+" "+from.IPBlock.CIDR)
			case from.NamespaceSelector == nil:
				got = append(got, rule.Ports[0].Port.StrVal+" "+from.PodSelector.MatchLabels["app.kubernetes.io/name"])
			default:
				t.Errorf("got %v, want no pods of other namespaces", from)
			}
		}
	}
	if want := []string{"webhook 10.0.0.1/32", "webhook 10.0.0.2/32", "webhook fastadmit", "webhook fastadmit-registration-check",
		"metrics 10.0.0.3/32"}; !slices.Equal(got, want) {
		t.Errorf("got ingress %q, want %q", got, want)
	}
}
