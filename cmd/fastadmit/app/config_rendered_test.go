package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const renderedChart = `apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data:
  configuration.yaml: |
    apiVersion: fastadmit.io/v1alpha1
    kind: Configuration
    enableAdmissionPlugins: [AlwaysPullImages]
  other: ""
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  template:
    spec:
      containers:
      - {name: other, args: [sleep]}
      - name: fastadmit
        args: [serve, --config=/etc/a/b/config.yaml, --secure-port=1234, --tls-cert-file=/etc/tls/tls.crt,
          --tls-private-key-file=/etc/tls/tls.key]
        volumeMounts: [{name: configuration, mountPath: /etc/a}, {name: certificate, mountPath: /etc/tls}]
      volumes:
      - {name: configuration, configMap: {name: a, items: [{key: configuration.yaml, path: b/config.yaml}]}}
      - {name: certificate, secret: {secretName: a}}
`

// TestConfigRendered reads flags and files from manifests.
func TestConfigRendered(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	stdout, stderr, code := execute(renderedChart, "config", "--rendered=-")
	const plugin, port = "\n- AlwaysPullImages\n", "\n  securePort: 1234\n"
	if code != 0 || stderr != "" || !strings.Contains(stdout, port) || !strings.Contains(stdout, plugin) {
		t.Errorf("got code %d, %s%s, want the configuration", code, stdout, stderr)
	}
	f := func(code int, want, old, replacement string, args ...string) {
		t.Helper()
		args = append([]string{"config", "--rendered=-"}, args...)
		_, stderr, got := execute(strings.ReplaceAll(renderedChart, old, replacement), args...)
		if got != code || !strings.Contains(stderr, want) {
			t.Errorf("%.100s: got code %d and %s, want %d and %s", replacement, got, stderr, code, want)
		}
	}
	f(2, "fastadmit: /etc/a/b/config.yaml:3: enableAdmissionPlugins[0]: unknown plugin ", "[AlwaysPullImages]", "[AlwaysPull]")
	f(2, "fastadmit: unknown flag: --secure-prot, did you mean --secure-port?", "secure-port", "secure-prot")
	f(2, "fastadmit: --rendered takes the flags of serve from the Deployment: got others too", "", "", "--secure-port=1")
	f(2, "fastadmit: --rendered: got no Deployment with a container that runs serve in -", "args: [serve", "args: [replay")
	f(2, "fastadmit: --rendered: stdin:5: cannot be read: ", "metadata: {name: a}", "metadata: [")
	f(2, "path escapes from parent", "mountPath: /etc/a}", "mountPath: ../../a}")
	f(2, "/etc/a/b/config.yaml: no ConfigMap of the manifests has this file", "configMap: {name: a", "configMap: {name: other")
	f(2, "/etc/hostname: no ConfigMap of the manifests has this file\n", "/etc/a/b/config.yaml", "/etc/hostname") // of this machine
	const mount = "{name: configuration, mountPath: /etc/a}, "
	f(2, "--rendered: got 102 volume mounts, want at most 100", mount, strings.Repeat(mount, 101))
	var paths strings.Builder
	for i := range renderedBytesMax / blockBytes {
		fmt.Fprintf(&paths, "{key: other, path: f%d}, ", i)
	}
	const tooMany = "--rendered: got too many files of ConfigMaps, want at most 16777216 bytes, with 4096 more for each file"
	f(2, tooMany, "items: [", "items: ["+paths.String())
	f(2, tooMany, "[AlwaysPullImages]", "[AlwaysPullImages] # "+strings.Repeat("a", renderedBytesMax-blockBytes))
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("got %q, %v, want no files left", left, err)
	}
}
