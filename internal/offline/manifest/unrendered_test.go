package manifest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/files"
)

// TestShellWord has a shell expand nothing in the name of a folder.
func TestShellWord(t *testing.T) {
	for folder, want := range map[string]string{
		"a/b-1.0_x": "a/b-1.0_x", "-f": "./-f", "a b": "'a b'", "$(x)": "'$(x)'", "a'b`c": `'a'\''b` + "`c'", "": "''",
	} {
		if got := shellWord(folder); got != want {
			t.Errorf("%q: got %s, want %s", folder, got, want)
		}
	}
}

// TestUnrendered reads folders with a chart and a kustomization. What kubectl would read is read; of the
// rest, one item for a folder says what renders it.
func TestUnrendered(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"chart/Chart.yaml":                  "apiVersion: v2\nname: c\nversion: 1.0.0\n",
		"chart/values.yaml":                 "replicas: 1\n",
		"chart/charts/sub/Chart.yaml":       "apiVersion: v2\nname: sub\nversion: 1.0.0\n",
		"chart/charts/sub/templates/c.yaml": "a: {{ .Values.x }}\n",
		"chart/templates/deployment.yaml":   "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Release.Name }}\n",
		"chart/templates/if.yaml":           "{{- if .Values.x }}\nkind: Pod\n{{- end }}\n",
		"chart/templates/plain.yaml":        "apiVersion: v1\nkind: Pod\nmetadata: {name: real} # {{ no template }}\n",
		"chart/templates/twice.yaml":        "# {{ x }}\napiVersion: v1\nkind: ConfigMap\nkind: Pod\nmetadata: {name: twice}\n",
		"overlay/kustomization.yaml":        "resources: [../base]\n",
		"overlay/pod.yaml":                  "apiVersion: v1\nkind: Pod\nmetadata: {name: overlaid}\n",
		"overlay/broken.yaml":               "kind: {{ .Values.x }}\n",
		"base/kustomization.yml":            "apiVersion: v1\nkind: Pod\nmetadata: {name: hidden}\n",
		"base/notes.yaml":                   "some: text\n",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	objects, unrendered, rest := map[string]bool{}, map[string]int{}, 0
	for _, item := range Read([]string{dir}, nil, files.TreeOf) {
		if item.Fault == nil {
			objects[item.Metadata.Name] = true
			continue
		}
		if e, ok := errors.AsType[*UnrenderedError](item.Fault); ok {
			folder, _ := filepath.Rel(dir, e.Folder)
			unrendered[folder]++
			continue
		}
		rest++
	}
	if len(objects) != 3 || !objects["real"] || !objects["overlaid"] || !objects["hidden"] {
		t.Errorf("got the objects %v, want real, overlaid and hidden", objects)
	}
	if len(unrendered) != 2 || unrendered["chart"] != 1 || unrendered["overlay"] != 1 {
		t.Errorf("got %v, want one for chart and one for overlay", unrendered)
	}
	if rest != 3 { // twice.yaml, overlay/broken.yaml, and one for base/notes.yaml
		t.Errorf("got %d other faults, want 3", rest)
	}
	for name, folder := range map[string]string{
		"chart/values.yaml": "chart", "chart/charts/sub/templates/c.yaml": "chart", "chart/templates/deployment.yaml": "chart",
		"overlay/kustomization.yaml": "overlay", "chart/templates": "chart", "chart/charts/sub": "chart",
	} {
		items := Read([]string{filepath.Join(dir, name)}, nil, files.TreeOf)
		items = slices.DeleteFunc(items, func(item Item) bool { return item.Fault == nil || item.File == "twice.yaml" })
		if len(items) == 0 {
			t.Fatalf("%s: got no fault", name)
		}
		e, ok := errors.AsType[*UnrenderedError](items[0].Fault)
		if !ok || e.Folder != filepath.Join(dir, folder) {
			t.Errorf("%s, which is named: got %v, want that %s is rendered first", name, items[0].Fault, folder)
		}
	}
}

// TestOtherFiles reads folders with files for other programs. One item stands for those of a folder; what lacks only one of
// apiVersion and kind, or stands beside an object, is a fault of its own.
func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a/package.json": `{"name":"web"}`, "a/b/patch.json": `[{"op":"remove"}]`, "a/compose.yaml": "services: {}\n---\nx: y\n",
		"a/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n---\nnotes: x\n", "a/half.yaml": "kind: Pod\n",
		"b/only.yaml": "x: y\n", "b/empty.yaml": "# nothing\n",
		"c/tsconfig.json": "{\n  // the target\n  \"target\": \"es5\",\n}\n", "c/grafana.yaml": "apiVersion: 1\nproviders: []\n",
		"c/settings.json": `{"a": 1,}`, "c/cert.yaml": "a: b\n-----BEGIN CERTIFICATE-----\n", "c/.hidden.json": "{,}",
		"c/twice.yaml": "a: 1\na: 2\n", "c/dev.json": "{\n  // the cluster\n  \"x/features/kind:1\": {}\n}\n",
		"d/named.json": "{,}", "d/utf16.yaml": utf16("\ufeffx: ["), "d/kind.yaml": "kind: [",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var got []string
	for _, item := range Read([]string{"a", "b", "a/package.json", "c", "d", "d/named.json"}, nil, files.TreeOf) {
		if item.Fault == nil {
			got = append(got, item.Metadata.Name)
			continue
		}
		if !item.Fault.IsNoObject() && !strings.HasPrefix(item.File, "d/") {
			t.Errorf("%v: got an object", item.Fault)
		}
		got = append(got, item.Fault.Error())
	}
	want := []string{
		"a: 3 files have no manifests: no apiVersion, no kind; the first one is a/b/patch.json",
		`a/half.yaml:1: not a Kubernetes object: got kind "Pod" and apiVersion "", want both`,
		"p", `a/pod.yaml:5: not a Kubernetes object: got kind "" and apiVersion "", want both`,
		"b: b/only.yaml has no manifest: no apiVersion, no kind",
		`a/package.json:1: not a Kubernetes object: got kind "" and apiVersion "", want both`,
		"c: 6 files have no manifests: no apiVersion, no kind; the first one is c/cert.yaml",
		"d/kind.yaml:1: cannot be read: did not find expected node content",
		"d: d/named.json has no manifest: no apiVersion, no kind",
		"d/utf16.yaml: cannot be read: got bytes that are no UTF-8",
		"d/named.json:1: cannot be read: did not find expected node content",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// FuzzOtherFiles compares with kubectl: in a file for other programs, it finds no object.
func FuzzOtherFiles(f *testing.F) {
	for _, file := range hidden {
		f.Add([]byte(file.content))
	}
	for _, content := range []string{
		"apiVersion: 1\nitems: [" + evilFlow + "]\n", "items: [" + evilFlow + "]\n", "Kind: List\nitems: [" + evilFlow + "]\n",
		`{"\u006bind":"Pod","\u0061piVersion":"v1","metadata":{"name":"evil"}} {,}`, `{"\x6bind":"Pod","\x61piVersion":"v1","a":{"b":1},}`,
		"\"ki\\\nnd\": Pod\n\"\\x61piVersion\": v1\na: b\na: c\n", "kind: PodList\nmetadata: a\nitems: [{}]\n", "metadata: a\n",
		"{,}\n---\n" + evil,
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, item := range Read([]string{dir}, nil, files.TreeOf) {
			if item.Fault == nil {
				return
			}
			if _, others := errors.AsType[*OtherFilesError](item.Fault); !others {
				return
			}
		}
		if found, _ := kubectlReads(bytes.TrimPrefix(content, []byte("\ufeff"))); found != nil {
			t.Fatalf("%q: got no object, want %v", content, found)
		}
	})
}
