package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// A standard is a pod of the tests of the Pod Security Standards.
type standard struct {
	file, level, version string
	passes               bool
	object               string
}

// standards returns the pods that k8s.io/pod-security-admission has for each level and version.
func standards(t *testing.T) (all []standard) {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(strings.TrimSpace(string(module)), "test", "testdata")
	files, err := filepath.Glob(filepath.Join(dir, "*", "v*", "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict(text, &pod); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range pod.Spec.Volumes { // as API servers do
			if v := &pod.Spec.Volumes[i]; v.VolumeSource == (corev1.VolumeSource{}) {
				v.EmptyDir = new(corev1.EmptyDirVolumeSource)
			}
		}
		object, err := json.Marshal(&pod)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(filepath.ToSlash(name), "/")
		all = append(all, standard{name, parts[0], parts[1], parts[2] == "pass", string(object)})
	}
	return all
}

// TestPodSecurityStandards has servers of all releases. Each decides on the pods of all levels and versions up to its
// own, in namespaces that enforce the version, latest, or one that is newer than the release.
func TestPodSecurityStandards(t *testing.T) {
	if testing.Short() {
		t.Skip("22,000 reviews take seconds")
	}
	all := standards(t)
	if len(all) < 4500 {
		t.Fatalf("got %d pods, want 4,500", len(all))
	}
	state, written := t.TempDir(), make(map[string]bool)
	for _, s := range all {
		for _, version := range []string{s.version, "latest", "v1.99"} {
			if name := namespaceOf(s.level, version); !written[name] {
				written[name] = true
				servertest.WriteFile(t, filepath.Join(state, name+".yaml"), enforcing(s.level, version))
			}
		}
	}
	for _, emulated := range admission.Versions() {
		release, _, err := admission.ParseVersion(emulated)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(emulated, func(t *testing.T) {
			known := func(version string) bool { return release.Has(strings.TrimPrefix(version, "v")) }
			server := serve(t, nil, "--enable-admission-plugins=PodSecurity", "--emulated-version="+emulated, "--cluster-state-dir="+state)
			x := server.Open(t)
			asked := 0
			ask := func(s *standard, version string) {
				asked++
				body := bytes.Replace(admissiontest.Body(codec.Create, "v1/pods", s.object), []byte(`"namespace":"namespace"`),
					fmt.Appendf(nil, `"namespace":%q`, namespaceOf(s.level, version)), 1)
				_, answer := x.Send(servertest.Request("/validate", body))
				if got := bytes.Contains(answer, []byte(`"allowed":true`)); got != s.passes {
					t.Errorf("%s in a namespace that enforces %s: got allowed %v, want %v: %.300s", s.file, version, got, s.passes, answer)
				}
			}
			for i := range all {
				s := &all[i]
				if known(s.version) {
					ask(s, s.version)
				}
				if s.version == "v"+emulated {
					ask(s, "latest")
					ask(s, "v1.99")
				}
			}
			if asked < 4000 {
				t.Errorf("got %d pods, want more than 4,000", asked)
			}
		})
	}
}

func namespaceOf(level, version string) string {
	return level + "-" + strings.ReplaceAll(version, ".", "-")
}

func enforcing(level, version string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {"+
		"pod-security.kubernetes.io/enforce: %s, pod-security.kubernetes.io/enforce-version: %s}}\n",
		namespaceOf(level, version), level, version)
}
