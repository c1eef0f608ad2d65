package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

type document struct {
	embedded `json:",inline"`
	Name     string                `json:"name"`
	Items    []item                `json:"items,omitempty"`
	Labels   map[string]string     `json:"labels,omitempty"`
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	Any      json.RawMessage       `json:"any,omitempty"`
	Hidden   string                `json:"-"`
}

type embedded struct {
	Kind string `json:"kind"`
}

type item struct {
	On      *bool            `json:"on"`
	Number  int32            `json:"number"`
	Timeout *metav1.Duration `json:"timeout"`
}

func decode(t *testing.T, content string) (document, []error) {
	t.Helper()
	var d document
	parsed, err := Parse("file.yaml", []byte(content))
	if err != nil {
		return d, []error{err}
	}
	errs, _ := parsed.Decode(&d)
	return d, errs
}

func TestDecode(t *testing.T) {
	for _, content := range []string{`
kind: K
name: "1"
items:
- {on: true, number: 0x10, timeout: 1m30s}
- &two {number: 2, on: null}
- *two
labels: {a: b}
selector:
  matchExpressions:
  - {key: a, operator: In, values: [b]}
any: {deep: [1, {x: null}]}
`, `{"kind": "K", "name": "1",
	"items": [{"on": true, "number": 16, "timeout": "1m30s"}, {"number": 2}, {"number": 2}], "labels": {"a": "b"},
	"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, "any": {"deep": [1, {"x": null}]}}`,
	} {
		d, errs := decode(t, content)
		if len(errs) > 0 {
			t.Fatal(errors.Join(errs...))
		}
		first := d.Items[0]
		if d.Kind != "K" || d.Name != "1" || !*first.On || first.Number != 16 || first.Timeout.Duration != 90*time.Second ||
			len(d.Items) != 3 || d.Items[2].Number != 2 || d.Labels["a"] != "b" || d.Selector.MatchExpressions[0].Values[0] != "b" ||
			string(d.Any) != `{"deep":[1,{"x":null}]}` {
			t.Errorf("got %+v", d)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	f := func(content string, want ...string) {
		t.Helper()
		_, errs := decode(t, content)
		var got []string
		for _, err := range errs {
			got = append(got, err.Error())
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s\ngot\n%s\nwant\n%s", content, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	const fields = "unknown field, want one of kind, name, items, labels, selector, any"
	f("", "file.yaml: got an empty file, want a document")
	f("# nothing\n", "file.yaml: got an empty file, want a document")
	f("a: [1", "file.yaml: line 1: did not find expected ',' or ']'")
	f("kind: K\n---\nkind: L\n", "file.yaml:2: got a second document, want one")
	f("a: {b: c\nd: e\nf: g\n", "file.yaml: line 2: did not find expected ',' or '}'")
	f("kind: K\n---\n# nothing\n---\na: b\n", "file.yaml:4: got a second document, want one")
	f("kind: K\n---\na: [\n", "file.yaml: line 3: did not find expected node content")
	quotes := func(syntax string) string {
		return "; YAML takes " + syntax + " for its own syntax here: write >-, and the text indented in the next line"
	}
	f("a: b\nname: !has(a) || b\n", "file.yaml: line 2: did not find expected comment or line break"+quotes("`!`"))
	f("- name: 'a' in b\n", "file.yaml: line 1: did not find expected key"+quotes("`'`"))
	f("name: [a].all(b, b)\n", "file.yaml: line 1: did not find expected key"+quotes("`[`"))
	f("a:\n  b: c\n\n   e: f\n",
		"file.yaml: line 4: mapping values are not allowed in this context; it is indented below \"b: c\", which has a value already")
	f("a:\n  b: c\n d: e\n", "file.yaml: line 3: did not find expected key; want the indentation of a line above it")
	f("a:\n  b: c\n- d\n", "file.yaml: line 3: did not find expected key")
	f("# {{ a }}\na: b\nc: {{ .Values.c }}\n{{- if }}\n",
		"file.yaml: line 3: got a template, {{: render it first with the program that it is for, such as helm template")
	f("x: y\na: b: c\nc: {{ d }}\n", "file.yaml: line 2: mapping values are not allowed in this context"+quotes("`: `"))
	f("a: b\nname: a ? b : c\n", "file.yaml: line 2: mapping values are not allowed in this context"+quotes("`: `"))
	f("labels:\n\ta: b\n", "file.yaml: line 2: got a tab; YAML is indented by spaces")
	f("kind: K\nlabels:\n- a: b\n\tc: d\n", "file.yaml: line 4: got a tab; YAML is indented by spaces")
	f("kind: K\nlabels:\n  a: b\n   c\n\n \td: e\n\tf: g\n", "file.yaml: line 6: got a tab; YAML is indented by spaces")
	f("kind: K\nname: |\n\ta\n", "file.yaml: line 3: got a tab; YAML is indented by spaces")
	f("kind: K\nname: a\n\t", "file.yaml: line 3: got a tab; YAML is indented by spaces")
	const double = "the text that begins with \" has no end: close it with another \""
	const single = "the text that begins with ' has no end: close it with another '"
	f("kind: K\nname: \"a\nb: c\n", "file.yaml: line 2: "+double)
	f("kind: K\nlabels:\n  a: [\"b\", \"it's]\n", "file.yaml: line 3: "+double)
	f("name: 'a \"b\" c\nkind: K\n", "file.yaml: line 1: "+single)
	f("'", "file.yaml: line 1: "+single)
	f("[]", "file.yaml:1: got a list, want an object")
	f("text", `file.yaml:1: got "text", want an object`)
	f("kind: K\nHidden: x\nnaem: y", "file.yaml:2: Hidden: "+fields, "file.yaml:3: naem: unknown field, did you mean name?")
	f("name: a\nkind: K\nname: b", "file.yaml:3: name: given twice")
	f(`{"labels": {"a": "b", "a": "c"}}`, "file.yaml:1: labels.a: given twice")
	f("<<: {kind: K}", "file.yaml:1: <<: "+fields)
	f("name: 1\nkind: [a]\nlabels: {a: true}",
		"file.yaml:1: name: got 1, want a string", "file.yaml:2: kind: got a list, want a string",
		"file.yaml:3: labels.a: got true, want a string")
	f("items:\n- on: yes\n  number: 5000000000\n- number: 1.5\n  timeout: 5\n- number: x\n  timeout: 5x",
		`file.yaml:2: items[0].on: got "yes", want true or false`,
		"file.yaml:3: items[0].number: got 5000000000, want a whole number of 32 bits",
		"file.yaml:4: items[1].number: got 1.5, want a whole number",
		"file.yaml:5: items[1].timeout: got 5, want a duration such as 1m30s or 500ms",
		`file.yaml:6: items[2].number: got "x", want a whole number`,
		`file.yaml:7: items[2].timeout: got "5x", want a duration such as 1m30s or 500ms`)
	f("items: {on: true}", "file.yaml:1: items: got an object, want a list")
	f("selector:\n  matchExpressions:\n  - key: [x]\n", "file.yaml:3: selector.matchExpressions[0].key: got a list, want a string")
	f("name: "+strings.Repeat("x", 100)+"\nkind: {}", "file.yaml:2: kind: got an object, want a string")
	f("items: &a\n- *a", "file.yaml:1: items[0]: got a list, want an object")
	f("any: &a {x: *a}", "file.yaml:1: any: got an object: yaml: anchor 'a' value contains itself")
}

// TestLimits parses documents with the maximum number of values, members and errors, and more.
func TestLimits(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		_, err := Parse("file.yaml", []byte(text))
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != "file.yaml:1: "+want) {
			t.Errorf("%.40s: got %v, want %s", text, err, want)
		}
	}
	members := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "k%d: 1\n", i)
		}
		return text.String()
	}
	f(members(membersMax-1), "")
	f(members(membersMax), "")
	f(members(membersMax+1), "got an object with 10001 members, want at most 10000")
	// The document, the first list with 1,023 numbers, and the second, which has n of these lists.
	values := func(n, more int) string {
		return "[&x [" + strings.Repeat("1,", 1023) + "], [" + strings.Repeat("*x,", n) + strings.Repeat("1,", more) + "]]"
	}
	f(values(1022, 1021), "")
	f(values(1022, 1022), "")
	f(values(1022, 1023), "got more than 1048576 values, those of aliases counted each time")

	errs := func(n int) []error {
		d, err := Parse("file.yaml", []byte("items: ["+strings.Repeat("1,", n)+"]"))
		if err != nil {
			t.Fatal(err)
		}
		all, _ := d.Decode(new(document))
		return all
	}
	for n, want := range map[int]int{errorsMax - 1: errorsMax - 1, errorsMax: errorsMax, errorsMax + 1: errorsMax + 1,
		1000: errorsMax + 1} {
		got := errs(n)
		if len(got) != want {
			t.Errorf("%d errors: got %d, want %d", n, len(got), want)
		}
		if want := "more than 100 errors, of which these are the first"; n > errorsMax &&
			!strings.HasSuffix(got[errorsMax].Error(), want) {
			t.Errorf("%d errors: got %v in the end, want %s", n, got[errorsMax], want)
		}
	}
}

// TestOthers checks values beside those that Decode leaves out, and leaves out what follows from that.
func TestOthers(t *testing.T) {
	d, err := Parse("file.yaml", []byte("kind: 5\nname: a\nitems:\n- on: 1\n  number: 2\n- 7\nlabels: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	var into document
	errs, decoded := d.Decode(&into)
	if !decoded || into.Name != "a" || len(into.Items) != 2 || into.Items[0].Number != 2 || into.Kind != "" {
		t.Errorf("got %v, %+v", decoded, into)
	}
	for _, path := range []string{"kind", "name", "items[0].number", "items[1]", "items[1].number", "items[10].on", "labels.a"} {
		errs = append(errs, d.Errorf(path, "checked"))
	}
	const want = "file.yaml:1: kind: got 5, want a string\nfile.yaml:4: items[0].on: got 1, want true or false\n" +
		"file.yaml:6: items[1]: got 7, want an object\nfile.yaml:7: labels: got \"x\", want an object\n" +
		"file.yaml:2: name: checked\nfile.yaml:5: items[0].number: checked\nfile.yaml:4: items[10].on: checked"
	if got := Join(errs...); got == nil || got.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", got, want)
	}
}

func TestKeyLine(t *testing.T) {
	const content = "spec:\n  containers:\n  - name: a\n    image: b\n  labels:\n    a.b/c: d\n  same: &x\n    y: 1\n  again: *x\n"
	d, err := Parse("file.yaml", []byte(content))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{
		"spec": 1, "spec.containers": 2, "spec.containers[*].image": 2, "spec.containers[0]": 3, "spec.containers[0].image": 4,
		"spec.labels": 5, "spec.again": 9, "spec.again.y": 8, "spec.none": 0, "spec.containers[1]": 0, "spec.containers.image": 0,
		"spec.labels.a.z": 0, "[*]": 0, "": 0,
	} {
		if got := d.KeyLine(path); got != want {
			t.Errorf("%q: got %d, want %d", path, got, want)
		}
	}
}

func TestLocate(t *testing.T) {
	d, err := Parse("file.yaml", []byte("kind: K\nitems:\n- on: true\n\n- number: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	path := field.NewPath("items")
	f := func(err error, want string) {
		t.Helper()
		if got := errors.Join(d.Locate(err)...).Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	f(field.Invalid(path.Index(1).Child("number"), 1, "must be 2"), `file.yaml:5: items[1].number: Invalid value: 1: must be 2`)
	f(field.Required(path.Index(0).Child("timeout"), ""), `file.yaml:3: items[0].timeout: Required value`)
	f(field.Required(path.Index(7).Child("timeout"), ""), `file.yaml:3: items[7].timeout: Required value`)
	f(field.Required(field.NewPath("name"), ""), `file.yaml:1: name: Required value`)
	f(errors.New("as it is"), "as it is")
}

// FuzzDecode compares with sigs.k8s.io/yaml, which kube-apiserver reads its configuration with: what both
// accept is equal.
func FuzzDecode(f *testing.F) {
	f.Add("kind: K\nname: \"1\"\nitems: [{on: true, number: 0x10, timeout: 1m30s}, &two {number: 2, on: null}, *two]\nlabels: {a: b}\n" +
		"selector: {matchExpressions: [{key: a, operator: In, values: [b]}]}\nany: {deep: [1, {x: null}]}\n")
	f.Add("{<<: {kind: a}, name: !!str 1, any: [.inf, 1e3, 0o7, 2001-01-01, ~, !!binary aGk=, \"\\u0000\"]}")
	f.Fuzz(func(t *testing.T, content string) {
		var got, want document
		parsed, err := Parse("f", []byte(content))
		if err != nil {
			return
		}
		if errs, decoded := parsed.Decode(&got); len(errs) > 0 || !decoded {
			return
		}
		if err := yaml.UnmarshalStrict([]byte(content), &want); err != nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got\n%+v\nwant\n%+v", content, got, want)
		}
	})
}
