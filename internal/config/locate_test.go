package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
)

// TestLocate expects the file and line in errors that plugins report about their
// configurations.
func TestLocate(t *testing.T) {
	loaded, err := read(t, "", `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  path: limits.yaml
- name: AlwaysPullImages
  configuration:
    a: 1
    b:
    - c: 2
`)
	if err != nil {
		t.Fatal(err)
	}
	f := func(err error, want ...string) {
		t.Helper()
		if got := fmt.Sprint(loaded.Locate(err)); got != strings.Join(want, "\n") {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, strings.Join(want, "\n"))
		}
	}
	of := func(plugin string, err error) error { return &admission.EnableError{Plugin: plugin, Err: err} }
	f(nil, "<nil>")
	f(errors.New("other"), "other")
	f(of("DenyServiceExternalIPs", errors.New("no")), "cannot enable plugin DenyServiceExternalIPs: no") // without a configuration
	f(of("EventRateLimit", field.Required(field.NewPath("limits"), "")), "limits.yaml:1: limits: plugin EventRateLimit: Required value")
	f(of("EventRateLimit", errors.New("no")), "limits.yaml:1: plugin EventRateLimit: no")
	inner := field.Invalid(field.NewPath("b").Index(0).Child("c"), 2, "too much")
	f(of("AlwaysPullImages", inner),
		"admission.yaml:10: plugins[1].configuration.b[0].c: plugin AlwaysPullImages: Invalid value: 2: too much")
	f(of("AlwaysPullImages", errors.New("no")), "admission.yaml:8: plugins[1].configuration: plugin AlwaysPullImages: no")
	f(of("AlwaysPullImages", errors.New(`unknown field "a"`)),
		"admission.yaml:8: plugins[1].configuration.a: plugin AlwaysPullImages: unknown field")
	f(of("AlwaysPullImages", &admission.FileError{File: "x.yaml", Err: inner}),
		"plugin AlwaysPullImages: error loading x.yaml: "+inner.Error())
	f(of("AlwaysPullImages", utilerrors.NewAggregate([]error{inner, errors.New(`duplicate field "a"`)})),
		"admission.yaml:10: plugins[1].configuration.b[0].c: plugin AlwaysPullImages: Invalid value: 2: too much",
		"admission.yaml:8: plugins[1].configuration.a: plugin AlwaysPullImages: duplicate field")
	f(errors.Join(of("EventRateLimit", errors.New("no")), errors.New("other")), "limits.yaml:1: plugin EventRateLimit: no", "other")
}

// TestReadManifests reads the folder that a plugin's configuration names.
func TestReadManifests(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"sub/p/a.yaml": "first", "sub/p/b.json": "second",
		"sub/p/c.txt": "no manifest", "q/d.yml": "third"} {
		write(name, content)
	}
	write("sub/q.yaml", "staticManifestsDir: "+filepath.Join(dir, "q"))
	f := func(p, q, none, want string) (digest string) {
		t.Helper()
		write("a.yaml", "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nplugins:\n- {name: P, path: "+
			"sub/p.yaml}\n- {name: Q, path: sub/q.yaml}\n- {name: None, configuration: "+none+"}")
		write("sub/p.yaml", p)
		write("sub/q.yaml", q)
		loaded, err := Read(Source{AdmissionFile: filepath.Join(dir, "a.yaml"), Known: []string{"P", "Q", "None"}})
		var got []string
		for _, name := range []string{"P", "Q", "None"} {
			for _, file := range loaded.Manifests[name] {
				got = append(got, fmt.Sprintf("%s %s %s", name, filepath.Base(file.Name), file.Content))
			}
		}
		for _, folder := range loaded.Folders {
			relative, _ := filepath.Rel(dir, folder)
			got = append(got, relative)
		}
		if err != nil {
			got = append(got, strings.ReplaceAll(err.Error(), dir, ""))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s, %s, %s: got  %s\nwant %s", p, q, none, strings.Join(got, ", "), want)
		}
		return loaded.Digest
	}
	const relative = "staticManifestsDir: p"
	absolute := "staticManifestsDir: " + filepath.Join(dir, "q")
	before := f(relative, absolute, "7", "P a.yaml first, P b.json second, Q d.yml third, sub/p, q")
	f("{}", "{", "{staticManifestsDir: q}", "None d.yml third, q")
	f("more: 1\nstaticManifestsDir: gone", "{}", "7",
		"sub/gone, /sub/p.yaml:2: staticManifestsDir: cannot read the manifests of P: open /sub/gone: no such file or directory")
	f("{}", "{}", "{staticManifestsDir: gone}",
		"gone, /a.yaml:6: plugins[2].configuration.staticManifestsDir: cannot read the manifests of None: open /gone: no "+
			"such file or directory")
	write("q/d.yml", "changed")
	if after := f(relative, absolute, "7", "P a.yaml first, P b.json second, Q d.yml changed, sub/p, q"); after == before {
		t.Error("got the same digest for a manifest that was changed")
	}
}
