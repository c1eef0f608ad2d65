package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// admission is kube-apiserver's own configuration file for admission plugins
// (k8s.io/apiserver pkg/apis/apiserver/v1 AdmissionConfiguration).
type admission struct {
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

// readAdmission reads the file and those it names, and returns the plugins'
// own configurations.
func (r *reader) readAdmission(file string) map[string][]byte {
	var a admission
	document := r.read(file, admissionKind, &a)
	if document == nil {
		return nil
	}
	r.checkType(document, a.APIVersion, a.Kind, admissionKind, admissionVersions...)
	configs := make(map[string][]byte)
	for i, plugin := range a.Plugins {
		path := fmt.Sprintf("plugins[%d]", i)
		if r.checkName(document, path+".name", plugin.Name, configs) {
			configs[plugin.Name] = r.readPlugin(document, path, &plugin, filepath.Dir(file))
		}
	}
	return configs
}

// readPlugin returns a plugin's configuration, nil if it has none. What stands
// inside the file goes before a file that it names, as upstream.
func (r *reader) readPlugin(document *strictyaml.Document, path string, plugin *admissionPlugin, dir string) []byte {
	if len(plugin.Configuration) > 0 && !bytes.Equal(plugin.Configuration, []byte("null")) {
		r.place(plugin.Name, document, path+".configuration")
		return plugin.Configuration
	}
	if plugin.Path == "" {
		return nil
	}
	name := plugin.Path
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	r.files = append(r.files, name)
	content, err := r.source.ReadFile(name)
	if err != nil {
		r.refuse(document.Errorf(path+".path", "cannot read the configuration of %s: %v", plugin.Name, err))
		return nil
	}
	own, err := strictyaml.Parse(name, content)
	if err != nil { // if it should be YAML, the plugin says what is wrong
		own = strictyaml.Unread(name)
	}
	r.place(plugin.Name, own, "")
	return content
}
