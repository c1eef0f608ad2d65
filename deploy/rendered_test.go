package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRendered checks values as docs/operations.md does before an installation.
func TestRendered(t *testing.T) {
	t.Parallel()
	block := regexp.MustCompile("(?s)```sh\n(helm template [^`]*--rendered=-[^`]*)```")
	documented := block.FindStringSubmatch(readFile(t, "../docs/operations.md"))
	if documented == nil {
		t.Fatal("docs/operations.md has no block with --rendered=-")
	}
	try := func(values string) (string, error) {
		t.Helper()
		dir := t.TempDir()
		for name, path := range map[string]string{"deploy": "../deploy", "helm": tool(t, "helm"), "fastadmit": binary} {
			if err := os.Symlink(absolute(t, path), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "values.yaml"), []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-euc", documented[1])
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "GOGC=400"}
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	for _, s := range settings(t) {
		if s.preset == "" {
			if said, err := try(s.values); err != nil || said != "" {
				t.Errorf("%s: got %v %s, want no error", s.name, err, said)
			}
		}
	}
	f := func(values, want string) {
		t.Helper()
		if said, err := try(values); err == nil || !strings.Contains(said, want) {
			t.Errorf("%s: got %v %s, want %q", values, err, said, want)
		}
	}
	const files = "fastadmit: /etc/fastadmit/configuration/"
	f("plugins: {EventRateLimit: {configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limit: []}}}",
		files+"admission.yaml:7: plugins[0].configuration.limit: plugin EventRateLimit: unknown field, did you mean limits?")
	f("plugins: {EventRateLimit: {}}", "cannot enable plugin EventRateLimit: it has no configuration")
	f("plugins: {PodSecurity: {configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, "+
		"defaults: {enforce: baselin}}}}", `Invalid value: "baselin": must be one of privileged, baseline, restricted`)
	f("plugins: {AlwaysPullImages: {matchConditions: [{name: a, expression: request.naem == ''}]}}",
		files+"configuration.yaml:7: plugins[0].matchConditions[0].expression: Invalid value: ")
	f("plugins: {AlwaysPullImages: {}}\npolicies: {shipped: {resource-maximums: {variables: {cpu: 'quantity('}}}}",
		"/etc/fastadmit/configuration/policies/resource-maximums.yaml:")
	f("plugins: {AlwaysPullImages: {}}\nextraArgs: [--profilin]", "fastadmit: unknown flag: --profilin, did you mean --profiling?")
	f("plugins: {AlwaysPullImage: {}}", "did you mean AlwaysPullImages?")
}
