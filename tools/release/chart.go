package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// The media types of a chart in a registry (helm.sh/helm pkg/registry/constants.go).
const (
	chartConfig types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartLayer  types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chart packages the chart with the version of the release, as a file for
// "helm install FILE" and as chartArchive.
func (r *release) chart(ctx context.Context) error {
	staged, err := os.MkdirTemp("", "fastadmit-chart")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged)
	dir := filepath.Join(staged, "fastadmit")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(r.root, "deploy", "chart"))); err != nil {
		return err
	}
	if err := r.nameImage(filepath.Join(dir, "values.yaml")); err != nil {
		return err
	}
	// helm writes the times of files into the archive.
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, r.time, r.time)
	}); err != nil {
		return err
	}
	fmt.Println("packaging the chart")
	if _, err := output(ctx, r.root, "bin/tools/helm", "package", dir,
		"--version", r.version, "--app-version", r.version, "--destination", r.out); err != nil {
		return err
	}
	image, err := r.chartImage(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	return r.writeLayout(chartArchive, func(to layout.Path) error {
		return to.AppendImage(image, layout.WithAnnotations(r.annotations()))
	})
}

// nameImage sets the published image in the chart's values.
func (r *release) nameImage(values string) error {
	text, err := os.ReadFile(values)
	if err != nil {
		return err
	}
	const unreleased = "\n  #\n  # There is no release yet: build and push your own with \"make image\".\n  repository: fastadmit\n"
	if strings.Count(string(text), unreleased) != 1 {
		return fmt.Errorf("deploy/chart/values.yaml: got %d places, want one, with %q", strings.Count(string(text), unreleased),
			unreleased)
	}
	released := "\n  repository: " + r.registry + "/fastadmit\n"
	return os.WriteFile(values, []byte(strings.Replace(string(text), unreleased, released, 1)), 0o644)
}

func (r *release) chartFile() string { return r.path("fastadmit-" + r.version + ".tgz") }

// chartImage returns the artifact that "helm push" makes of the chart.
func (r *release) chartImage(chartYAML string) (v1.Image, error) {
	text, err := os.ReadFile(chartYAML)
	if err != nil {
		return nil, err
	}
	var about map[string]any
	if err := yaml.Unmarshal(text, &about); err != nil {
		return nil, fmt.Errorf("%s: %w", chartYAML, err)
	}
	about["version"], about["appVersion"] = r.version, r.version
	config, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(r.chartFile())
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), chartConfig)
	image, err := mutate.Append(base, mutate.Addendum{Layer: static.NewLayer(content, chartLayer)})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(&artifact{Image: image, config: config})
}

// An artifact is an image with the config of a chart.
type artifact struct {
	v1.Image
	config []byte
}

// RawConfigFile returns the config.
func (a *artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// RawManifest returns the manifest, with the config's digest in it.
func (a *artifact) RawManifest() ([]byte, error) {
	manifest, err := a.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	digest, size, err := v1.SHA256(newReader(a.config))
	if err != nil {
		return nil, err
	}
	manifest.Config.Digest, manifest.Config.Size = digest, size
	return json.Marshal(manifest)
}

// LayerByDigest returns the layer.
func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	layers, err := a.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		if has, err := layer.Digest(); err != nil || has == digest {
			return layer, err
		}
	}
	return nil, errors.New("no layer " + digest.String())
}
