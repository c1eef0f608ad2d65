package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/files"
)

// shown has a line for each item.
func shown(items []Item) string {
	var lines []string
	for _, item := range items {
		if item.Fault != nil {
			lines = append(lines, item.Fault.Error())
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %s/%s", item.Source, item.APIVersion, item.Kind, item.Metadata.Name))
	}
	return strings.Join(lines, "\n")
}

func TestParse(t *testing.T) {
	f := func(content string, want ...string) {
		t.Helper()
		if got := shown(Parse("f", []byte(content))); got != strings.Join(want, "\n") {
			t.Errorf("%s\ngot\n%s\nwant\n%s", content, got, strings.Join(want, "\n"))
		}
	}
	const a, b = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\n"
	f("")
	f("# nothing\n---\n\n# but comments\n")
	f(a, "f:1 v1 Pod/a")
	f("\ufeff"+a, "f:1 v1 Pod/a")
	f("\ufeff---\n"+a, "f:2 v1 Pod/a")
	f("# a\n\n---\n# b\n"+a+"--- # another\n"+b+"...\n---\n\n", "f:5 v1 Pod/a", "f:9 v1 Pod/b")
	f("%YAML 1.2\n---\n"+a, "f:3 v1 Pod/a")
	f(a+"data: |\n  a\n  ---\n  b\n", "f:1 v1 Pod/a")
	f(a+"-----BEGIN: x\n"+b, "f:1 v1 Pod/a", `f:4: cannot be read: got "--BEGIN: x" behind ---, want a line break or a comment`,
		"f:5 v1 Pod/b")
	f(`{apiVersion: v1, kind: Pod, metadata: {name: flow}}`, "f:1 v1 Pod/flow")
	f("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}\n\n{\"apiVersion\":\"v1\",\n\"kind\":\"Pod\","+
		"\"metadata\":{\"name\":\"b\"}}",
		"f:1 v1 Pod/a", "f:3 v1 Pod/b")
	f("a: [", "f:1: cannot be read: did not find expected node content")
	f("a: b\nc: [1, 2\nd: e\n", "f:3: cannot be read: did not find expected ',' or ']'")
	f("a: b\nc: \"d\" e\nf: g\n", "f:2: cannot be read: did not find expected key; "+
		"YAML takes `\"` for its own syntax here: write >-, and the text indented in the next line")
	f("---\n"+a+"---\na: 1\nb: 2\na: 3\n---\n"+b, "f:2 v1 Pod/a", `f:8: cannot be read: key "a" already set in map`, "f:10 v1 Pod/b")
	f("{\n\"a\": 1,\n}}", "f:2: cannot be read: got a comma before }: remove it, as JSON has none behind the last one")
	f("{\"a\": [1,\n2,\n\n]}", "f:2: cannot be read: got a comma before ]: remove it, as JSON has none behind the last one")
	f("{\"a\": 1\n}\n}", "f:3: cannot be read: got }, which closes nothing")
	f("# a\n---\n{\"a\": 1\n\"b\": 2}", "f:3: cannot be read: want a comma here, before the next value")
	f("{\"a\": 1,\n// b\n\"b\": 2}", "f:2: cannot be read: got a comment: JSON has none")
	f("{\"a\": 1,\n\"b\": \"c\n\"}", "f:2: cannot be read: got a line break or another control character in a text: "+
		"close it with another \" in its line")
	f("{\"a\": {\n\"b\": 2}", "f:2: cannot be read: the text ends within an object or a list: want a } or ]")
	f("{\"a\": 'b'}", `f:1: cannot be read: invalid character '\'' looking for beginning of value`)
	const conflict = "cannot be read: got a conflict marker of git: resolve the conflict first"
	f("a: b\n<<<<<<< HEAD\nc: d\n=======\nc: e\n>>>>>>> x\n", "f:2: "+conflict)
	f("{\"a\": 1,\n<<<<<<< HEAD\n\"b\": 2\n}", "f:2: "+conflict)
	f("a: 1\n---\nb:\n  name:web\n  labels: {}\n", `f:1: not a Kubernetes object: got kind "" and apiVersion "", want both`,
		"f:5: cannot be read: mapping values are not allowed in this context; "+
			`a space is missing behind the colon of "name:"`)
	f("a: b\nc:d\ne: f\n", `f:3: cannot be read: could not find expected ':'; a space is missing behind the colon of "c:"`)
	f("a:\n  https://x\n  b: c\n", "f:3: cannot be read: mapping values are not allowed in this context")
	f("kind: Pod", `f:1: not a Kubernetes object: got kind "Pod" and apiVersion "", want both`)
	f("- 1", `f:1: not a Kubernetes object: got kind "" and apiVersion "", want both`)
	f("apiVersion: v1\nkind: Pod\nmetadata: a", "f:1: metadata: got a string, want an object")
	f("apiVersion: v1\nkind: Pod\nmetadata: {namespace: 3}",
		"f:1: metadata.namespace: got a number, want a string: write it in quotation marks")
	f("apiVersion: 1\nkind: Pod", "f:1: apiVersion: got a number, want a string: write it in quotation marks")
	f("apiVersion: 1\nkind: PodList\nitems: []", "f:1: apiVersion: got a number, want a string: write it in quotation marks")
	f("kind: PodList\nitems: []\nmetadata: a", "f:1: metadata: got a string, want an object")
	none := `f:1: not a Kubernetes object: got kind "" and apiVersion "", want both`
	f("apiVersion: 1\nproviders: []", none) // of Grafana
	f("Resources: {}\nMetadata: {a: b}\nmetadata: c\nItems: 1", none)
	f("items: [{apiVersion: v1, kind: Pod}]", none)
	f("items: [{apiVersion: v1, kind: Pod}]\nKind: PodList", `f:1: got the member "Kind", want "kind"`)
}

func TestLists(t *testing.T) {
	f := func(content string, want ...string) {
		t.Helper()
		if got := shown(Parse("f", []byte(content))); got != strings.Join(want, "\n") {
			t.Errorf("%s\ngot\n%s\nwant\n%s", content, got, strings.Join(want, "\n"))
		}
	}
	// As kubectl get -o yaml writes it.
	f(`apiVersion: v1
items:
- apiVersion: v1
  kind: Pod
  metadata:
    name: a
  data: |
    - x
# a comment
- apiVersion: v1
  kind: Pod
  metadata:
    name: b
kind: List
metadata:
  resourceVersion: ""
`, "f:3 v1 Pod/a", "f:10 v1 Pod/b")
	f("kind: PodList\napiVersion: v1\nitems:\n  -\n    metadata:\n      name: a\n  - metadata: {name: b}\n", "f:4 v1 Pod/a",
		"f:7 v1 Pod/b")
	f("kind: List\napiVersion: v1\nitems:\n- &a {apiVersion: v1, kind: Pod, metadata: {name: a}}\n- *a\n", "f:4 v1 Pod/a", "f:5 v1 Pod/a")
	f("kind: List\napiVersion: v1\nitems: [{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]}]\n",
		"f:1 v1 Pod/a")
	f("kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n- a: [\n",
		"f:6: cannot be read: did not find expected node content")
	f("kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n- 1\n", "f:4 v1 Pod/",
		`f:6: not a Kubernetes object: got kind "" and apiVersion "", want both`)
	f("kind: List\napiVersion: v1\nitems: []\n")
	f("{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":[\n{\"metadata\":{\"name\":\"a\"}},\n\n{\"metadata\":{\"name\":\"b\"}}]}",
		"f:2 v1 Pod/a", "f:4 v1 Pod/b")
	// They only look like lists.
	f("kind: AllowList\napiVersion: example.com/v1\nspec:\n  items:\n  - a\n", "f:1 example.com/v1 AllowList/")
}

// TestLines shows that lines are those of the elements, whatever they contain.
func TestLines(t *testing.T) {
	list := "apiVersion: v1\nkind: List\nitems:\n"
	for i := range 50 {
		list += fmt.Sprintf("- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: c%d\n", i) +
			"  data:\n    list: |-\n      - a\n\n      - b\n    items: |\n      items:\n"
	}
	items := Parse("f", []byte(list))
	if len(items) != 50 {
		t.Fatalf("got %d objects, want 50", len(items))
	}
	for i := range items {
		if item := &items[i]; item.Metadata.Name != fmt.Sprintf("c%d", i) || item.Line != 4+11*i {
			t.Errorf("%d: got %s in line %d", i, item.Metadata.Name, item.Line)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	pod := func(name string) string { return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\n" }
	write("d/b.yml", pod("b"))
	write("d/a.yaml", pod("a"))
	write("d/sub/c.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"c"}}`)
	write("d/sub/bad.yaml", "kind: [")
	write("d/README.md", "no manifest")
	write("d/.github/ci.yaml", "on: push")
	write("d/.hidden.yaml", "x: y\n---\n"+pod("hidden"))
	write("d/.dir/broken.yaml", "kind: [")
	write("d/.git/c.yaml", pod("git"))
	write("e/README.md", "no manifest")
	plain := write("plain.txt", pod("plain"))
	if err := os.Symlink(plain, filepath.Join(dir, "d/link.yaml")); err != nil {
		t.Fatal(err)
	}
	got := shown(Read([]string{filepath.Join(dir, "d"), "-", filepath.Join(dir, "no.yaml"), filepath.Join(dir, "e"), plain},
		strings.NewReader(pod("in")), files.TreeOf))
	want := strings.ReplaceAll(`DIR/d/.dir/broken.yaml:1: cannot be read: did not find expected node content
DIR/d/.hidden.yaml:3 v1 Pod/hidden
DIR/d/a.yaml:1 v1 Pod/a
DIR/d/b.yml:1 v1 Pod/b
DIR/d/link.yaml: read DIR/d/link.yaml: the path, or a symbolic link in it, leads out of the folder "DIR/d"`+
		`; want a file in this folder, and relative links; --allow-files-outside allows others
DIR/d/sub/bad.yaml:1: cannot be read: did not find expected node content
DIR/d/sub/c.json:1 v1 Pod/c
stdin:1 v1 Pod/in
DIR/no.yaml: stat DIR/no.yaml: no such file or directory
DIR/e: the folder has no file that ends in one of [".json" ".yaml" ".yml"]
DIR/plain.txt:1 v1 Pod/plain`, "DIR", dir)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got = shown(Read([]string{filepath.Join(dir, "d/link.yaml")}, nil, files.TreeOf))
	if want := "d/link.yaml:1 v1 Pod/plain"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s of a link that the user names, want %s", got, want)
	}
	if got := shown(Read([]string{filepath.Join(dir, "d")}, nil, files.Everywhere)); !strings.Contains(got, "d/link.yaml:1 v1 Pod/plain") {
		t.Errorf("got %s, want the file to which the link leads", got)
	}
	t.Chdir(filepath.Join(dir, "e"))
	write("e/.x.yaml", "x: y")
	if got := shown(Read([]string{"."}, nil, files.TreeOf)); got != "" {
		t.Errorf("got %s of a hidden file that is no object", got)
	}
	write("e/x.yaml", "x: y")
	got = shown(Read([]string{"."}, nil, files.TreeOf))
	if want := ".: x.yaml has no manifest: no apiVersion, no kind"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
