package deploy_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// kustomizations are the generated folders, with the chart values for each.
var kustomizations = map[string]string{
	"kustomize/base": "kustomize/values.yaml", "kustomize/policies": "kustomize/policies.values.yaml",
}

// TestKustomize generates fastadmit.yaml of the kustomizations from the chart, and builds with it.
func TestKustomize(t *testing.T) {
	t.Parallel()
	for folder, values := range kustomizations {
		testKustomize(t, folder, values)
	}
}

func testKustomize(t *testing.T, folder, values string) {
	t.Helper()
	kustomizeFile := folder + "/fastadmit.yaml"
	ofHelm := regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`)
	want := "# Made of the chart and ../" + path.Base(values) + ": cd deploy && go test . -run TestKustomize -update\n" +
		ofHelm.ReplaceAllString(run(t, tool(t, "helm"), append(helm(t, "template", readFile(t, values), ""), "--skip-tests")...), "")
	if *update {
		if err := os.WriteFile(kustomizeFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, kustomizeFile); got != want {
		t.Errorf("%s is not current: go test . -run TestKustomize -update writes it anew", kustomizeFile)
	}
	built := parse(t, run(t, tool(t, "kustomize"), "build", folder))
	if got, want := len(built), len(parse(t, want))+1; got != want {
		t.Errorf("got %d objects, want %d: those of the chart and the namespace", got, want)
	}
}

// TestKustomizePolicies checks that the kinds of policies and the plugins that evaluate them are
// there.
func TestKustomizePolicies(t *testing.T) {
	t.Parallel()
	built := parse(t, run(t, tool(t, "kustomize"), "build", "kustomize/policies"))
	kinds := make(map[string]bool)
	for _, o := range built {
		if o.GetKind() == "CustomResourceDefinition" {
			kinds[o.GetName()] = true
		}
	}
	for _, want := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies",
		"mutatingadmissionpolicybindings", "policyexceptions"} {
		if !kinds[want+".policies.fastadmit.io"] {
			t.Errorf("got the definitions %v, want %s", kinds, want)
		}
	}
	configuration := fmt.Sprint(one[corev1.ConfigMap](t, built, "ConfigMap").Data)
	if strings.Count(configuration, "customResources: true") != 2 {
		t.Errorf("got configuration %s, want both plugins with customResources", configuration)
	}
	run(t, binary, append([]string{"config"}, files(t, built)...)...)
}

// TestKustomizeExample checks the changes of an overlay.
func TestKustomizeExample(t *testing.T) {
	t.Parallel()
	built := parse(t, run(t, tool(t, "kustomize"), "build", "kustomize/example"))
	pod := one[appsv1.Deployment](t, built, "Deployment").Spec.Template.Spec
	if image := pod.Containers[0].Image; image != "registry.example.com/fastadmit:1" {
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
