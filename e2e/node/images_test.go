package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const (
	// released is the release that node/release made of the checkout, in the folder release, and before the one
	// that it made of an older commit. They would be published at registry.
	released = "0.0.0-e2e"
	release  = "release"
	before   = "0.0.0-before"
	registry = "registry.example.com"

	// kustomized is fastadmit's image as deploy/kustomize/example names it.
	kustomized = registry + "/fastadmit:1"
)

// image returns the name of an image that load made.
func image(name string) string { return "localhost/" + name + ":e2e" }

// load loads images into the node, each with a program that e2e/run built.
func (n *realNode) load(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		cmd := exec.Command("buildah", "build", "-q", "-f", "-", "-t", image(name), cluster.Built("."))
		cmd.Stdin = strings.NewReader(fmt.Sprintf("FROM scratch\nCOPY %[1]s /bin/%[1]s\nENTRYPOINT [\"/bin/%[1]s\"]\n", name))
		if printed, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("buildah: %v: %s", err, printed)
		}
		tar := filepath.Join(t.TempDir(), name+".tar")
		walkthrough.Run(t, nil, "buildah", "push", "-q", image(name), "docker-archive:"+tar+":"+image(name))
		n.ctr(t, "images", "import", tar)
	}
}

// verifyRelease verifies the release as docs/operations.md says, and loads the images of both releases into the
// node, as if they had been pulled.
func (s *test) verifyRelease(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(cluster.Built(release))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		s.Link(t, file.Name(), filepath.Join(cluster.Built(release), file.Name()))
	}
	s.Link(t, "minisign.pub", cluster.Built("release.pub"))
	s.Link(t, "minisign", cluster.Built("release.minisign"))
	s.Does(t, "sha256sum -c SHA256SUMS")
	s.Link(t, chartOf(before), cluster.Built("release-before/"+chartOf(before)))

	s.ctr(t, "images", "import", cluster.Built("release-before/fastadmit-image.oci.tar"))
	s.ctr(t, "images", "import", cluster.Built(release+"/fastadmit-image.oci.tar"))
	s.ctr(t, "images", "tag", registry+"/fastadmit:"+released, kustomized)
}

// chartOf returns the file name of a release's chart.
func chartOf(version string) string { return "fastadmit-" + version + ".tgz" }

// upgradedFromBefore installs the chart of the checkout in place of that of the release before.
func (s *test) upgradedFromBefore(t *testing.T) int {
	s.Document = strings.ReplaceAll(s.Document, " "+chartOf(before)+" ", " "+chartOf(released)+" ")
	s.Does(t, "--reset-then-reuse-values")
	s.runs(t, released)
	return 0
}

func (s *test) rolledBack(t *testing.T) int {
	walkthrough.Run(t, []string{"KUBECONFIG=" + s.kubeconfig}, walkthrough.Tool(t, "helm"),
		"rollback", "fastadmit", "-n", "fastadmit", "--wait")
	s.runs(t, before)
	s.Does(t, "--reset-then-reuse-values")
	s.runs(t, released)
	return 0
}

// runs checks that all pods are of a release, when helm says so.
func (s *test) runs(t *testing.T, version string) {
	t.Helper()
	pods := s.pods(t, "fastadmit", ours)
	if len(pods) == 0 {
		t.Error("got no pods")
	}
	for _, pod := range pods {
		if image := pod.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+version) {
			t.Errorf("got a pod of %s, want one of version %s", image, version)
		}
	}
}
