package app

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// alone are plugins that are not tested together with the others: they deny all pods, or
// call an API server or a backend.
var alone = map[string]bool{
	"AlwaysDeny": true, "PodSecurityPolicy": true, "OwnerReferencesPermissionEnforcement": true, "ImagePolicyWebhook": true,
	"InitialResources": true,
}

// everythingFlags are the flags of serve that enable all plugins but AlwaysDeny, each
// with both selectors if wanted.
func everythingFlags(t testing.TB, selectors bool) []string {
	t.Helper()
	dir := t.TempDir()
	put := func(name, content string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	var names []string
	var settings strings.Builder
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		if alone[plugin.Name] {
			continue
		}
		names = append(names, plugin.Name)
		if selectors {
			fmt.Fprintf(&settings, `
- name: %s
  namespaceSelector:
    matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease]}]
  objectSelector:
    matchExpressions: [{key: fastadmit.io/ignore, operator: DoesNotExist}]`, plugin.Name)
		}
	}
	own := configHead
	if selectors {
		own += "plugins:" + settings.String() + "\n"
	}
	limits := `{kind: Configuration, apiVersion: eventratelimit.admission.k8s.io/v1alpha1, limits: [{type: Server, qps: ` +
		`1000000, burst: 1000000}]}`
	disks := `{kind: PersistentVolumeLabelConfiguration, apiVersion: fastadmit.io/v1alpha1, volumes: [{provider: gce, id: ` +
		`d, labels: {a: b}}]}`
	admission := "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nplugins: [{name: EventRateLimit, configuration: " +
		limits + "}, " +
		"{name: PersistentVolumeLabel, configuration: " + disks + "}]\n"
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	put("state/cluster.yaml", string(corpus.Cluster))
	return []string{
		"--enable-admission-plugins=" + strings.Join(names, ","), "--config=" + put("config.yaml", own),
		"--admission-control-config-file=" + put("admission.yaml", admission), "--cluster-state-dir=" + state,
	}
}

// everything returns the chain that serve makes of everythingFlags.
func everything(t testing.TB, selectors bool) *admission.Chain {
	t.Helper()
	s := &selection{options: &options{inTree: handlers.DefaultOptions()}}
	cmd := new(cobra.Command)
	s.addFlags(cmd)
	if err := cmd.ParseFlags(everythingFlags(t, selectors)); err != nil {
		t.Fatal(err)
	}
	in, err := s.load(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return in.chain
}

// TestEverythingAllocatesNothing reviews a Pod with all plugins.
func TestEverythingAllocatesNothing(t *testing.T) {
	for _, selectors := range [...]bool{false, true} {
		chain := everything(t, selectors)
		admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, corpus.MustRead(servertest.PodCreate))
		always := bytes.ReplaceAll(corpus.MustRead(servertest.PodCreate), []byte(`"imagePullPolicy":"IfNotPresent"`),
			[]byte(`"imagePullPolicy":"Always"`))
		admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, always)
	}
}

// BenchmarkEverything mutates a Pod with all plugins but AlwaysDeny.
func BenchmarkEverything(b *testing.B) {
	for name, selectors := range map[string]bool{"plugins": false, "selectors": true} {
		chain := everything(b, selectors)
		b.Run(name, func(b *testing.B) {
			admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomePatched, corpus.MustRead(servertest.PodCreate))
		})
	}
}
