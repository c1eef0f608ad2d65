// Package config reads configuration files.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Admission is kube-apiserver's own configuration file for admission plugins,
// apiserver.config.k8s.io/v1 AdmissionConfiguration (k8s.io/apiserver
// pkg/admission/config.go).
type Admission struct {
	file    string
	plugins map[string]admissionPlugin
}

type admissionFile struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Plugins    []admissionPlugin `json:"plugins"`
}

type admissionPlugin struct {
	Name          string          `json:"name"`
	Path          string          `json:"path"`
	Configuration json.RawMessage `json:"configuration"`
}

const admissionKind = "AdmissionConfiguration"

// The older version has the same fields.
var admissionVersions = []string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}

// ReadAdmission reads a file, YAML or JSON. Known says which plugins there
// are. The error joins everything that is wrong. An empty file name gives an
// Admission without configurations.
func ReadAdmission(file string, known func(name string) bool) (*Admission, error) {
	a := &Admission{file: file, plugins: make(map[string]admissionPlugin)}
	if file == "" {
		return a, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read admission configuration: %w", err)
	}
	var parsed admissionFile
	if err := yaml.UnmarshalStrict(content, &parsed); err != nil {
		return nil, fmt.Errorf("cannot read admission configuration %s: %w", file, err)
	}
	return a, a.add(&parsed, known)
}

func (a *Admission) add(parsed *admissionFile, known func(name string) bool) error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("admission configuration %s: %w", a.file, fmt.Errorf(format, args...)))
	}
	if parsed.Kind != admissionKind {
		refuse("kind: got %q, want %q", parsed.Kind, admissionKind)
	}
	if parsed.APIVersion != admissionVersions[0] && parsed.APIVersion != admissionVersions[1] {
		refuse("apiVersion: got %q, want one of %q", parsed.APIVersion, admissionVersions)
	}
	for i, plugin := range parsed.Plugins {
		if !known(plugin.Name) {
			refuse("plugins[%d].name: unknown plugin %q; fastadmit plugins lists all", i, plugin.Name)
		}
		if _, twice := a.plugins[plugin.Name]; twice {
			refuse("plugins[%d].name: %q is configured twice", i, plugin.Name)
		}
		if plugin.Path != "" && !filepath.IsAbs(plugin.Path) {
			plugin.Path = filepath.Join(filepath.Dir(a.file), plugin.Path)
		}
		a.plugins[plugin.Name] = plugin
	}
	return errors.Join(errs...)
}

// For returns the configuration of a plugin, nil if it has none. Configuration
// inside the file goes before a file that it names.
func (a *Admission) For(name string) ([]byte, error) {
	plugin := a.plugins[name]
	if len(plugin.Configuration) > 0 && string(plugin.Configuration) != "null" {
		return plugin.Configuration, nil
	}
	if plugin.Path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(plugin.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot read its configuration: %w", err)
	}
	return content, nil
}
