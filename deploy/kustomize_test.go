package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const kustomizeFile = "kustomize/base/fastadmit.yaml"

// TestKustomize makes kustomize/base/fastadmit.yaml of the chart anew, and builds
// with it.
func TestKustomize(t *testing.T) {
	ofHelm := regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`)
	want := "# Made of the chart and ../values.yaml: cd deploy && go test . -run TestKustomize -update\n" +
		ofHelm.ReplaceAllString(run(t, tool(t, "helm"), append(helm(t, "template", readFile(t, "kustomize/values.yaml"), ""), "--skip-tests")...), "")
	if *update {
		if err := os.WriteFile(kustomizeFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, kustomizeFile); got != want {
		t.Errorf("%s is not current: go test . -run TestKustomize -update writes it anew", kustomizeFile)
	}
	built := parse(t, run(t, tool(t, "kustomize"), "build", "kustomize/base"))
	if got, want := len(built), len(parse(t, want))+1; got != want {
		t.Errorf("got %d objects, want %d: those of the chart and the namespace", got, want)
	}
}

// TestKustomizeExample shows what an overlay changes.
func TestKustomizeExample(t *testing.T) {
	built := parse(t, run(t, tool(t, "kustomize"), "build", "kustomize/example"))
	if image := one[appsv1.Deployment](t, built, "Deployment").Spec.Template.Spec.Containers[0].Image; image != "registry.example.com/fastadmit:1" {
		t.Errorf("got image %s", image)
	}
	configuration := one[corev1.ConfigMap](t, built, "ConfigMap").Data["configuration.yaml"]
	if !strings.Contains(configuration, "- AlwaysPullImages") || strings.Contains(configuration, "warn") {
		t.Errorf("got configuration %s", configuration)
	}
	run(t, binary, append([]string{"config"}, files(t, built)...)...)
	if got := len(webhooks(t, manifests(t, built))); got != 2 {
		t.Errorf("got %d webhooks, want one that mutates and one that validates", got)
	}
}
