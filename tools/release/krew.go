package main

import (
	"context"
	"os"

	"sigs.k8s.io/yaml"
)

// krewName is what krew installs the archives with.
const krewName = "fastadmit.krew.yaml"

// A krewPlugin is the manifest of a plugin of kubectl (sigs.k8s.io/krew pkg/index/types.go).
type (
	krewPlugin struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   map[string]string `json:"metadata"`
		Spec       krewSpec          `json:"spec"`
	}
	krewSpec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Platforms        []krewPlatform `json:"platforms"`
	}
	krewPlatform struct {
		Selector map[string]map[string]string `json:"selector"`
		URI      string                       `json:"uri"`
		SHA256   string                       `json:"sha256"`
		Bin      string                       `json:"bin"`
		Files    []krewFile                   `json:"files"`
	}
	krewFile struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
)

const krewDescription = `Runs the admission plugins of kube-apiserver and admission policies on manifests
(kubectl fastadmit review) and on the objects of a cluster (kubectl fastadmit audit):
what would be denied or changed, and why (--explain). It changes nothing in the cluster.
`

// krew writes the manifest with which krew installs "kubectl fastadmit".
func (r *release) krew(context.Context) error {
	p := krewPlugin{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: map[string]string{"name": "fastadmit"},
		Spec: krewSpec{Version: "v" + r.version, Homepage: source, ShortDescription: "Ask admission plugins and policies",
			Description: krewDescription}}
	for _, platform := range platforms {
		url, sum, err := r.download(platform.os, platform.arch)
		if err != nil {
			return err
		}
		binary := inArchive(platform.os)
		p.Spec.Platforms = append(p.Spec.Platforms, krewPlatform{
			Selector: map[string]map[string]string{"matchLabels": {"os": platform.os, "arch": platform.arch}},
			URI:      url, SHA256: sum, Bin: binary, Files: []krewFile{{binary, "."}, {"LICENSE", "."}},
		})
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(r.path(krewName), text, 0o644)
}
