package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// admissionConfiguration is kube-apiserver's own configuration file for admission plugins
// (k8s.io/apiserver pkg/apis/apiserver/v1 AdmissionConfiguration).
type admissionConfiguration struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Plugins    []AdmissionPlugin `json:"plugins"`
}

// AdmissionPlugin has the own configuration of a plugin, as an AdmissionConfiguration has it.
type AdmissionPlugin struct {
	// Name is the name of the plugin.
	Name string `json:"name"`
	// Path is the path of a file with the configuration. If it is relative, it begins at the folder of this file.
	Path string `json:"path,omitempty"`
	// Configuration is the configuration. It has precedence over Path.
	Configuration json.RawMessage `json:"configuration,omitempty"`
}

const admissionKind = "AdmissionConfiguration"

// The older version has the same fields.
var admissionVersions = []string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}

// readAdmission reads the file and those it names, and returns the plugins'
// own configurations.
func (r *reader) readAdmission(file string) map[string][]byte {
	var a admissionConfiguration
	document := r.read(file, admissionKind, &a)
	if document == nil {
		r.unread = r.source.Known
		return nil
	}
	r.checkType(document, a.APIVersion, a.Kind, admissionKind, admissionVersions...)
	configs := make(map[string][]byte)
	for i, plugin := range a.Plugins {
		path := fmt.Sprintf("plugins[%d]", i)
		if r.checkName(document, path+".name", plugin.Name, configs) {
			configs[plugin.Name] = r.readConfig(document, path, &plugin, filepath.Dir(file))
		}
	}
	return configs
}

// readConfig returns a plugin's configuration, nil if it has none, and reads the files that it names.
func (r *reader) readConfig(document *strictyaml.Document, path string, plugin *AdmissionPlugin, dir string) []byte {
	config, dir := r.readPlugin(document, path, plugin, dir)
	r.readManifests(plugin.Name, config, dir)
	r.readKubeconfig(plugin.Name, config, dir)
	return config
}

// readPlugin returns a plugin's configuration, nil if it has none, and the folder of
// the file that has it. What stands inside the file goes before a file that it names,
// as upstream.
func (r *reader) readPlugin(document *strictyaml.Document, path string, plugin *AdmissionPlugin, dir string) (content []byte, in string) {
	if len(plugin.Configuration) > 0 && !bytes.Equal(plugin.Configuration, []byte("null")) {
		r.place(plugin.Name, document, path+".configuration")
		return plugin.Configuration, dir
	}
	if plugin.Path == "" {
		return nil, dir
	}
	name := plugin.Path
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	content, err := r.readFile(name)
	if err != nil {
		r.refuse(document.Errorf(path+".path", "cannot read the configuration of %s: %v", plugin.Name, err))
		r.unread = append(r.unread, plugin.Name)
		return nil, dir
	}
	own, err := strictyaml.Parse(name, content)
	if err != nil { // if it should be YAML, the plugin says what is wrong
		own = strictyaml.Unread(name)
	}
	r.place(plugin.Name, own, "")
	return content, filepath.Dir(name)
}

// ManifestExtensions are the extensions of the files that are read in a folder
// staticManifestsDir (k8s.io/apiserver pkg/admission/plugin/manifest LoadFiles).
var ManifestExtensions = []string{".yaml", ".yml", ".json"}

// readManifests reads the folder that a plugin's configuration names as
// staticManifestsDir, if it does. A path that is not absolute, which kube-apiserver
// would refuse, begins at the folder of the file that names it.
func (r *reader) readManifests(plugin string, config []byte, dir string) {
	var names struct {
		StaticManifestsDir string `json:"staticManifestsDir"`
	}
	_ = yaml.Unmarshal(config, &names) // the plugin says what is wrong
	if names.StaticManifestsDir == "" {
		return
	}
	folder := names.StaticManifestsDir
	if !filepath.IsAbs(folder) {
		folder = filepath.Join(dir, folder)
	}
	r.folders = append(r.folders, folder)
	read, err := r.source.Tree.ReadFolder(folder, ManifestExtensions...)
	if err != nil {
		at := r.places[plugin]
		path := strings.TrimPrefix(at.path+".staticManifestsDir", ".")
		r.refuse(at.document.Errorf(path, "cannot read the manifests of %s: %v", plugin, err))
		return
	}
	if r.manifests == nil {
		r.manifests = make(map[string][]admission.File)
	}
	for _, file := range read {
		r.count(file.Content)
		r.manifests[plugin] = append(r.manifests[plugin], admission.File{Name: file.Name, Content: file.Content})
	}
}
