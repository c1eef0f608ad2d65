package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// publish pushes the image and the chart of a finished release to a registry, with the credentials
// of "docker login" or "helm registry login". It first compares all files with their checksums.
func (r *release) publish(ctx context.Context) error {
	if err := r.verify(); err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := r.withLayout(imageArchive, func(index v1.ImageIndex, entry v1.Descriptor) error {
		image, err := index.ImageIndex(entry.Digest)
		if err != nil {
			return err
		}
		return push(r.imageName(), entry.Digest, func(to name.Reference) error { return remote.WriteIndex(to, image, options...) })
	}); err != nil {
		return err
	}
	return r.withLayout(chartArchive, func(index v1.ImageIndex, entry v1.Descriptor) error {
		chart, err := index.Image(entry.Digest)
		if err != nil {
			return err
		}
		return push(r.registry+"/charts/fastadmit:"+r.version, entry.Digest,
			func(to name.Reference) error { return remote.Write(to, chart, options...) })
	})
}

func push(reference string, digest v1.Hash, write func(name.Reference) error) error {
	to, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("-registry: %w", err)
	}
	if err := write(to); err != nil {
		return fmt.Errorf("cannot push %s: %w", reference, err)
	}
	fmt.Printf("pushed %s@%s\n", reference, digest)
	return nil
}

// verify compares all files of the release with their checksums.
func (r *release) verify() error {
	sums, err := os.ReadFile(r.path(sumsName))
	if err != nil {
		return fmt.Errorf("%s has no release; make it first: %w", r.out, err)
	}
	files, err := r.digests(sumsName, signatureName, cosignName)
	if err != nil {
		return err
	}
	var are string
	for _, file := range files {
		are += fmt.Sprintf("%s  %s\n", file.sha256, file.name)
	}
	if are != string(sums) {
		return fmt.Errorf("%s: files are not those of %s; make the release again", r.out, sumsName)
	}
	return nil
}

// withLayout unpacks a tar with an image layout and calls do with its only entry.
func (r *release) withLayout(archive string, do func(v1.ImageIndex, v1.Descriptor) error) error {
	dir, err := os.MkdirTemp("", "fastadmit-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := unpack(r.path(archive), dir); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	if len(manifest.Manifests) != 1 {
		return fmt.Errorf("%s: got %d entries, want 1", archive, len(manifest.Manifests))
	}
	return do(index, manifest.Manifests[0])
}

func unpack(file, dir string) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("%q leads out of the archive", header.Name)
		}
		if err := unpackFile(archive, filepath.Join(dir, header.Name)); err != nil {
			return err
		}
	}
}

func unpackFile(from io.Reader, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
