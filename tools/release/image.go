package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	source = "https://github.com/fastadmit/fastadmit"
	// imageArchive and chartArchive are OCI image layouts in a tar: what skopeo and
	// buildah call oci-archive, and what containerd imports.
	imageArchive = "fastadmit-image.oci.tar"
	chartArchive = "fastadmit-chart.oci.tar"
)

// containerdName is the annotation that tells containerd the name of an image that it imports
// (core/images AnnotationImageName). Without it, "ctr images import" makes up a name that
// its own CRI plugin does not find.
const containerdName = "io.containerd.image.name"

// imageName returns the name of the published image, which is also in the chart's values.
func (r *release) imageName() string { return r.registry + "/fastadmit:" + r.version }

// image makes the image of the binaries for linux, as deploy/Dockerfile does, and
// writes it to imageArchive.
func (r *release) image(context.Context) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		image, err := r.imageFor(p.os, p.arch)
		if err != nil {
			return fmt.Errorf("image of %s/%s: %w", p.os, p.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	annotations := r.annotations()
	annotations[containerdName] = r.imageName()
	return r.writeLayout(imageArchive, func(to layout.Path) error {
		return to.AppendIndex(index, layout.WithAnnotations(annotations))
	})
}

func (r *release) imageFor(goos, goarch string) (v1.Image, error) {
	var content bytes.Buffer
	if err := r.pack(&content, packed{r.path(binaryName(goos, goarch)), "fastadmit", 0o755}); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "COPY fastadmit /fastadmit"},
	}); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = goos, goarch, v1.Time{Time: r.time}
	config.Config = imageConfig()
	config.Config.Labels = r.annotations()
	return mutate.ConfigFile(image, config)
}

// imageConfig corresponds to deploy/Dockerfile.
func imageConfig() v1.Config {
	return v1.Config{User: "65532:65532", Env: []string{"PATH=/"}, Entrypoint: []string{"/fastadmit"}, Cmd: []string{"serve", "--help"}}
}

// annotations are the annotations of the OCI image specification.
func (r *release) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "fastadmit",
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.source":   source,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.ref.name": r.version,
	}
}

// writeLayout writes an OCI image layout, filled by fill, as a tar.
func (r *release) writeLayout(name string, fill func(layout.Path) error) error {
	dir, err := os.MkdirTemp("", "fastadmit-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := fill(to); err != nil {
		return err
	}
	fmt.Println("writing", name)
	return r.archive(dir, r.path(name))
}
