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
	// released is the release that node/release made, and registry is where it would be published.
	released = "0.0.0-e2e"
	registry = "registry.example.com"
	release  = "release" // its folder

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

// takeRelease verifies the release as docs/operations.md says, loads its image into the node, as if
// it had been pulled, and lets the administrator install the release's chart.
func (s *test) takeRelease(t *testing.T) {
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

	s.ctr(t, "images", "import", cluster.Built(release+"/fastadmit-image.oci.tar"))
	s.ctr(t, "images", "tag", registry+"/fastadmit:"+released, kustomized)
	s.Document = strings.ReplaceAll(s.Document, " deploy/chart ", " fastadmit-"+released+".tgz ")
}
