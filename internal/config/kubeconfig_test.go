package config

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// kubeconfigFiles are the files in a folder, by name.
var kubeconfigFiles = map[string]string{
	"dir/admission.yaml": `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: A
  configuration: {imagePolicy: {kubeConfigFile: sub/kubeconfig}}
- name: B
  path: sub/b.yaml
`,
	"dir/sub/b.yaml": "other: 1\nimagePolicy: {kubeConfigFile: kubeconfig}",
	"dir/sub/kubeconfig": `apiVersion: v1
kind: Config
clusters:
- {name: used, cluster: {server: https://used, certificate-authority: pki/ca.crt}}
- {name: unused, cluster: {server: https://unused, certificate-authority: missing}}
users:
- {name: used, user: {client-certificate: pki/tls.crt, client-key: pki/tls.key, tokenFile: token, token: before}}
- {name: unused, user: {tokenFile: missing}}
contexts:
- {name: x, context: {cluster: used, user: used}}
current-context: x
`,
	"dir/sub/pki/ca.crt": "CA", "dir/sub/pki/tls.crt": "CERT", "dir/sub/pki/tls.key": "KEY", "dir/sub/token": " secret\n",
}

// readKubeconfigs reads kubeconfigFiles with some files changed.
func readKubeconfigs(changed map[string]string) (*Loaded, error) {
	files := maps.Clone(kubeconfigFiles)
	maps.Copy(files, changed)
	return Read(Source{
		AdmissionFile: "dir/admission.yaml", Known: []string{"A", "B"},
		ReadFile: func(name string) ([]byte, error) {
			content, ok := files[name]
			if !ok {
				return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
			}
			return []byte(content), nil
		},
	})
}

// TestKubeconfigs has the kubeconfig files of plugins, with the files that they name.
func TestKubeconfigs(t *testing.T) {
	loaded, err := readKubeconfigs(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, plugin := range []string{"A", "B"} {
		got := string(loaded.Kubeconfigs[plugin])
		for _, want := range []string{"certificate-authority-data: Q0E=", "client-certificate-data: Q0VSVA==",
			"client-key-data: S0VZ", "token: secret", "tokenFile: missing"} {
			if !strings.Contains(got, want+"\n") {
				t.Errorf("%s: got %s, want %q in it", plugin, got, want)
			}
		}
		if strings.Contains(got, "pki/") || strings.Contains(got, "tokenFile: token") {
			t.Errorf("%s: got %s, want no names of files that were read", plugin, got)
		}
	}
	for name := range kubeconfigFiles {
		if !slices.Contains(loaded.Files, name) {
			t.Errorf("got files %q, want %s among them", loaded.Files, name)
		}
		other, err := readKubeconfigs(map[string]string{name: kubeconfigFiles[name] + " "})
		if err != nil || other.Digest == loaded.Digest {
			t.Errorf("%s: got %v and the same digest %v after it changed", name, err, other.Digest == loaded.Digest)
		}
	}
}

// TestKubeconfigsWrong has invalid kubeconfig files.
func TestKubeconfigsWrong(t *testing.T) {
	f := func(changed map[string]string, want ...string) {
		t.Helper()
		_, err := readKubeconfigs(changed)
		for _, want := range want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	admission := func(a string) map[string]string {
		return map[string]string{"dir/admission.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: " +
			"AdmissionConfiguration\nplugins:\n- name: A\n  configuration:\n    " + a}
	}
	f(admission("kubeConfigFile: /none"),
		"dir/admission.yaml:6: plugins[0].configuration.kubeConfigFile: cannot read the kubeconfig of A: open /none: file does not exist")
	f(map[string]string{"dir/sub/b.yaml": "kubeConfigFile: /none\n---\n{}"},
		"dir/sub/b.yaml: kubeConfigFile: cannot read the kubeconfig of B: open /none: file does not exist")
	f(map[string]string{"dir/sub/kubeconfig": "rubbish"},
		"dir/admission.yaml:5: plugins[0].configuration.imagePolicy.kubeConfigFile: cannot read the kubeconfig of A: "+
			"couldn't get version/kind",
		"dir/sub/b.yaml:2: imagePolicy.kubeConfigFile: cannot read the kubeconfig of B: couldn't get version/kind")
	f(map[string]string{"dir/sub/kubeconfig": strings.Replace(kubeconfigFiles["dir/sub/kubeconfig"], "pki/tls.key", "pki/none", 1)},
		"open dir/sub/pki/none: file does not exist")
	for _, fine := range []string{"kubeConfigFile: ''", "kubeConfigFile: [1]", "imagePolicy: 1",
		"{kubeConfigFile: /none, imagePolicy: 1}", "x: y"} {
		if _, err := readKubeconfigs(admission(fine)); err != nil {
			t.Errorf("%s: got %v, want it to be for the plugin to say", fine, err)
		}
	}
}

// TestFlattenUsers has a kubeconfig of the webhook plugins: it reads the files of all users, and not
// those of clusters.
func TestFlattenUsers(t *testing.T) {
	loaded, err := readKubeconfigs(map[string]string{
		"dir/sub/b.yaml": "kubeConfigFile: kubeconfig",
		"dir/sub/kubeconfig": `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c",` +
			`"cluster":{"certificate-authority":"missing"}}],` +
			`"users":[{"name":"a.example.com:8443","user":{"tokenFile":"token"}},{"name":"*",` +
			`"user":{"client-certificate":"pki/tls.crt","client-key":"pki/tls.key"}},` +
			`{"name":"e","user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"bin/login",` +
			`"interactiveMode":"Never"}}}],` +
			`"contexts":[{"name":"x","context":{"cluster":"c","user":"*"}}],"current-context":"x"}`,
		"dir/admission.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: A\n  " +
			"path: sub/b.yaml\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	got := string(loaded.Kubeconfigs["A"])
	for _, want := range []string{"token: secret", "client-certificate-data: Q0VSVA==", "client-key-data: S0VZ",
		"certificate-authority: missing", "command: dir/sub/bin/login"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %q in it", got, want)
		}
	}
	for _, want := range []string{"dir/sub/token", "dir/sub/pki/tls.crt", "dir/sub/pki/tls.key"} {
		if !slices.Contains(loaded.Files, want) {
			t.Errorf("got files %q, want %s among them", loaded.Files, want)
		}
	}
}

// TestFlattenAll has a kubeconfig without a current context: it reads all files, except where the
// kubeconfig also contains the data.
func TestFlattenAll(t *testing.T) {
	var read []string
	flat, err := Flatten("kubeconfig", func(name string) ([]byte, error) {
		read = append(read, name)
		switch name {
		case "kubeconfig":
			return []byte(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c",` +
				`"cluster":{"certificate-authority":"ca"}}],"users":[{"name":"b","user":{"tokenFile":"/b"}},{"name":"a",` +
				`"user":{"tokenFile":"a"}},` +
				`{"name":"c","user":{"client-key":"beside","client-key-data":"YQ==","token":"kept"}}]}`), nil
		case "a", "/b", "ca":
			return []byte(name), nil
		}
		return nil, errors.New("not read")
	})
	if want := []string{"kubeconfig", "ca", "a", "/b"}; err != nil || !slices.Equal(read, want) ||
		!strings.Contains(string(flat), "client-key: beside") || !strings.Contains(string(flat), "token: kept") {
		t.Errorf("got %s, %q, %v, want %q read", flat, read, err, want)
	}
}

// TestFlattenCommand has the commands of kubeconfig files. A command with a path keeps a path;
// otherwise it would be searched in $PATH.
func TestFlattenCommand(t *testing.T) {
	f := func(file, command, want string) {
		t.Helper()
		flat, err := Flatten(file, func(string) ([]byte, error) {
			return []byte(`{"apiVersion":"v1","kind":"Config","users":[{"name":"a","user":{"exec":{"command":"` + command + `",` +
				`"apiVersion":"client.authentication.k8s.io/v1","interactiveMode":"Never"}}}]}`), nil
		})
		if err != nil || !strings.Contains(string(flat), "command: "+want+"\n") {
			t.Errorf("%s in %s: got %s, %v, want %s", command, file, flat, err, want)
		}
	}
	f("kubeconfig", "run", "run")
	f("dir/kubeconfig", "run", "run")
	f("kubeconfig", "./run", "./run")
	f("./kubeconfig", "././run", "./run")
	f("dir/kubeconfig", "../run", "./run")
	f("dir/kubeconfig", "./run", "dir/run")
	f("kubeconfig", "bin/run", "bin/run")
	f("kubeconfig", "../run", "../run")
	f("/dir/kubeconfig", "./run", "/dir/run")
	f("kubeconfig", "/bin/run", "/bin/run")
}
