package config

import (
	"os"
	"testing"
)

// FuzzRead reads any Configuration and AdmissionConfiguration. They are read, or refused with an error.
func FuzzRead(f *testing.F) {
	const admission = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	f.Add(head+"enableAdmissionPlugins: [AlwaysPullImages]\nserver: {securePort: 443, shutdownDelayDuration: 10s}\n"+
		"plugins: [{name: AlwaysPullImages, rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}], "+
		"namespaceSelector: {matchExpressions: [{key: a, operator: In, values: [b]}]}, timeout: 500ms, enforcement: [{action: warn}], "+
		"matchConditions: [{name: c, expression: 'object.spec.all(x, x == 1)'}]}]\n",
		admission+"plugins: [{name: EventRateLimit, path: limits.yaml}, {name: AlwaysPullImages, configuration: {a: 1}}]\n")
	f.Add(head+"shadow: {enableAdmissionPlugins: [EventRateLimit], plugins: [{name: EventRateLimit, failurePolicy: Ignore}]}\n"+
		"record: {dir: r, rate: 5}\nimageReview: {rules: [{name: r, requireDigest: true}]}\nregistration: {timeoutSeconds: 3}\n",
		admission+"plugins: [{name: ValidatingAdmissionWebhook, configuration: {kubeConfigFile: own.yaml, staticManifestsDir: .}}]\n")
	f.Add("a: &a [*a]\n", "{}")
	f.Fuzz(func(t *testing.T, own, admission string) {
		if loaded, err := read(t, own, admission); loaded == nil && err == nil {
			t.Error("got neither a configuration nor an error")
		}
	})
}

// FuzzFlatten reads any kubeconfig, which names itself as the file of certificates, too.
func FuzzFlatten(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n" +
		"clusters: [{name: c, cluster: {server: https://a, certificate-authority: k}}]\n" +
		"users: [{name: u, user: {tokenFile: k, client-certificate: k, client-key: k, exec: {command: a}, auth-provider: {name: b}}}]\n"))
	f.Fuzz(func(_ *testing.T, content []byte) {
		read := func(name string) ([]byte, error) {
			if name != "k" {
				return nil, os.ErrNotExist
			}
			return content, nil
		}
		_, _ = Flatten("k", read)
		_, _ = FlattenUsers("k", read)
	})
}
