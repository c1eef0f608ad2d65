package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// readKubeconfig reads the kubeconfig file that a plugin's configuration names as
// kubeConfigFile, if it does. A path that is not absolute, which kube-apiserver would
// look for in its working directory, begins at the folder of the file that names it.
func (r *reader) readKubeconfig(plugin string, config []byte, dir string) {
	var names struct {
		KubeConfigFile string `json:"kubeConfigFile"`
		ImagePolicy    struct {
			KubeConfigFile string `json:"kubeConfigFile"`
		} `json:"imagePolicy"`
	}
	if err := yaml.Unmarshal(config, &names); err != nil {
		return // the plugin says what is wrong
	}
	// That of the webhook plugins has a user for each host.
	name, path, flatten := names.KubeConfigFile, "kubeConfigFile", FlattenUsers
	if name == "" {
		name, path, flatten = names.ImagePolicy.KubeConfigFile, "imagePolicy.kubeConfigFile", Flatten
	}
	if name == "" || r.source.NoKubeconfigs {
		return
	}
	flat, err := flatten(inFolder(dir, name), r.readFile)
	if err != nil {
		at := r.places[plugin]
		r.refuse(at.document.Errorf(strings.TrimPrefix(at.path+"."+path, "."), "cannot read the kubeconfig of %s: %v", plugin, err))
		return
	}
	if r.kubeconfigs == nil {
		r.kubeconfigs = make(map[string][]byte)
	}
	r.kubeconfigs[plugin] = flat
}

// inFolder returns the path of a file that a file in dir names.
func inFolder(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// commandIn returns the path of a command that a file in dir names with a path. The result has
// a separator, because a command without one would be searched in $PATH.
func commandIn(dir, command string) string {
	path := inFolder(dir, command)
	if !strings.ContainsRune(path, filepath.Separator) {
		path = "." + string(filepath.Separator) + path
	}
	return path
}

// Flatten reads a kubeconfig file and replaces the names of files in it by their contents,
// so that the result needs no other files. It does so for the cluster and the user of the
// current context, or for all if there is no current context. read reads a file.
func Flatten(name string, read func(name string) ([]byte, error)) ([]byte, error) {
	return flatten(name, read, false)
}

// FlattenUsers is Flatten for all users. It does not read the files of clusters.
func FlattenUsers(name string, read func(name string) ([]byte, error)) ([]byte, error) {
	return flatten(name, read, true)
}

func flatten(name string, read func(name string) ([]byte, error), users bool) ([]byte, error) {
	content, err := read(name)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := clientcmd.Load(content)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(name)
	inline := func(file *string, data *[]byte) {
		if *file == "" || len(*data) > 0 || err != nil { // both are for the plugin to refuse
			return
		}
		if *data, err = read(inFolder(dir, *file)); err == nil {
			*file = ""
		}
	}
	current := kubeconfig.Contexts[kubeconfig.CurrentContext]
	for _, name := range slices.Sorted(maps.Keys(kubeconfig.Clusters)) {
		if cluster := kubeconfig.Clusters[name]; !users && (current == nil || current.Cluster == name) {
			inline(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kubeconfig.AuthInfos)) {
		if user := kubeconfig.AuthInfos[name]; users || current == nil || current.AuthInfo == name {
			if user.Exec != nil && strings.ContainsRune(user.Exec.Command, filepath.Separator) {
				user.Exec.Command = commandIn(dir, user.Exec.Command)
			}
			inline(&user.ClientCertificate, &user.ClientCertificateData)
			inline(&user.ClientKey, &user.ClientKeyData)
			var token []byte
			if inline(&user.TokenFile, &token); token != nil { // which goes before user.Token
				user.Token = strings.TrimSpace(string(token))
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(*kubeconfig)
}
