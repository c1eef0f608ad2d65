package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReviewTrees reviews a folder as people have them: with a chart, a kustomization, custom kinds.
func TestReviewTrees(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"base/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [pod.yaml]\n",
		"base/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n" +
			"spec: {containers: [{name: c, image: 'i:v1'}]}\n",
		"base/monitor.yaml":               "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: m}\n",
		"base/unknown.yaml":               "apiVersion: example.com/v1\nkind: Strange\nmetadata: {name: s}\n",
		"chart/Chart.yaml":                "apiVersion: v2\nname: c\nversion: 1.0.0\n",
		"chart/values.yaml":               "a: 1\n",
		"chart/templates/deployment.yaml": "kind: Pod\nmetadata:\n  name: {{ .Release.Name }}\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	f := func(code int, args []string, want ...string) {
		t.Helper()
		out, errs, got := execute("", append([]string{"review", dir, "--enable-admission-plugins=AlwaysPullImages"}, args...)...)
		for _, text := range want {
			if got != code || !strings.Contains(out, text) {
				t.Errorf("%q: got exit code %d, stderr %q, stdout\n%s\nwant %d, %s", args, got, errs, out, code, text)
			}
		}
	}
	f(0, []string{"--skip-unknown=Strange"}, "a Helm chart: render it first, as in helm template "+filepath.Join(dir,
		"chart")+" | fastadmit review -",
		"a kustomization: render it first, as in kustomize build "+filepath.Join(dir, "base")+" | fastadmit review -",
		"ServiceMonitor default/m: allowed", "5 objects: 2 allowed (1 patched), 0 denied, 3 skipped")
	f(0, []string{"--skip-unknown", "-o", "github"}, "::notice file="+filepath.Join(dir, "chart")+",title=skipped "+filepath.Join(dir,
		"chart")+"::a Helm chart", "; until then, the files beside it are reviewed without its changes")
	f(2, []string{"--skip-unknown", "--strict"}, "3 skipped")
	f(0, []string{"--skip-unknown"}, "3 skipped")
	f(2, []string{"--skip-unknown=Other"}, `unknown kind "Strange"`)
	f(2, nil, `unknown kind "Strange"`, "2 skipped")
}

// TestReviewLineOfHead has a name of a wrong type, and a template for another program in a hidden file.
func TestReviewLineOfHead(t *testing.T) {
	t.Chdir(t.TempDir())
	const enable = "--enable-admission-plugins=AlwaysPullImages"
	service := "apiVersion: v1\nkind: Service\nmetadata:\n  labels: {a: b}\n  name: y\n"
	if err := os.Mkdir("tree", 0o700); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "tree/services.yaml", latestPod+"---\n"+service)
	reviewed(t, "", 2, []string{"tree/services.yaml:10: Service: broken: metadata.name: got true or false, want a string"}, nil, "tree",
		enable)
	servertest.WriteFile(t, "tree/services.yaml", latestPod+"---\n"+strings.Replace(service, "name: y", "name: 'y'", 1))
	krew := "apiVersion: krew.googlecontainertools.github.com/v1alpha2\nkind: Plugin\nspec:\n  version: {{ .TagName }}\n"
	servertest.WriteFile(t, "tree/.krew.yaml", krew)
	reviewed(t, "", 0, []string{"2 objects: 2 allowed"}, []string{"krew"}, "tree", enable)
	servertest.WriteFile(t, "tree/krew.yaml", krew)
	reviewed(t, "", 2, []string{"tree/krew.yaml:4: broken: cannot be read: got a template, {{"}, nil, "tree", enable)
}

// TestReviewSkipsCustomKinds has objects of unknown kinds. --skip-unknown without a value skips those that may be custom ones.
func TestReviewSkipsCustomKinds(t *testing.T) {
	f := func(code int, apiVersion, want string) {
		t.Helper()
		deployment := "apiVersion: " + apiVersion + "\nkind: Deployment\nmetadata: {name: d}\n"
		reviewed(t, latestPod+"---\n"+deployment, code, []string{want}, nil, "-", "--enable-admission-plugins=AlwaysPullImages",
			"--skip-unknown")
	}
	f(0, "example.com/v1", "1 skipped")
	f(0, "app.k8s.io/v1", "1 skipped") // of no release of Kubernetes
	for _, apiVersion := range []string{"app/v1", "apps.v1", "v1", "apps/V1", "apps/v1beta1", "extensions/v1beta1"} {
		f(2, apiVersion, `broken: unknown kind "Deployment" of apiVersion "`+apiVersion+`"; it is known in apps/v1`)
	}
	ingress := "apiVersion: networking.k8s.oi/v1\nkind: Ingress\nmetadata: {name: i}\n"
	reviewed(t, latestPod+"---\n"+ingress, 2, []string{"did you mean networking.k8s.io?"}, []string{"skips what has"}, "-",
		"--enable-admission-plugins=AlwaysPullImages", "--skip-unknown")
}
