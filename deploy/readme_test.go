package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A value is an entry of values.yaml.
type value struct {
	path  string // such as image.tag
	about string // the comment above it
	leaf  bool
}

// values reads the entries of values.yaml with their comments. An entry whose value is on the following lines is a leaf if
// these are not entries with comments, as those of resources.
func readValues(t *testing.T) (all []value) {
	t.Helper()
	key := regexp.MustCompile(`^( *)([A-Za-z]+):(.*)$`)
	var path, comment []string
	described := 0 // depth of the last entry with a comment
	for line := range strings.Lines(readFile(t, "chart/values.yaml")) {
		line = strings.TrimRight(line, "\n")
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "#"); ok {
			if !strings.HasPrefix(text, "  ") { // an example
				comment = append(comment, strings.TrimSpace(text))
			}
			continue
		}
		m := key.FindStringSubmatch(line)
		if m == nil {
			comment = nil
			continue
		}
		depth := len(m[1]) / 2
		path = append(path[:depth], m[2])
		about, _, _ := strings.Cut(strings.Join(comment, " "), "  ") // the first paragraph
		if strings.HasSuffix(strings.TrimSpace(about), ":") {        // before an example
			about = about[:strings.LastIndex(about, ". ")+1]
		}
		comment = nil
		if about == "" && depth > described && all[len(all)-1].about != "" {
			all[len(all)-1].leaf = true
			continue // a part of the value above
		}
		if about == "" && depth > 0 && depth > described {
			continue
		}
		described = depth
		all = append(all, value{path: strings.Join(path, "."), about: about, leaf: m[3] != ""})
	}
	return all
}

// TestChartReadme generates the tables of the chart's README from values.yaml and the presets.
func TestChartReadme(t *testing.T) {
	t.Parallel()
	var defaults map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, "chart/values.yaml")), &defaults); err != nil {
		t.Fatal(err)
	}
	table := "| value | default | meaning |\n|---|---|---|\n"
	for _, v := range readValues(t) {
		if !v.leaf {
			if v.about != "" {
				table += fmt.Sprintf("| **%s** | | %s |\n", v.path, cell(v.about))
			}
			continue
		}
		text, err := json.Marshal(lookUp(defaults, v.path))
		if err != nil {
			t.Fatal(err)
		}
		table += fmt.Sprintf("| `%s` | `%s` | %s |\n", v.path, text, cell(v.about))
	}
	presets := "| preset | use |\n|---|---|\n"
	files, err := filepath.Glob("chart/presets/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		var about []string
		for line := range strings.Lines(readFile(t, file)) {
			text, ok := strings.CutPrefix(line, "# ")
			if !ok {
				break
			}
			about = append(about, strings.TrimSpace(text))
		}
		presets += fmt.Sprintf("| `%s` | %s |\n", filepath.Base(file), cell(strings.Join(about, " ")))
	}
	readme := readFile(t, "chart/README.md")
	want := readme
	for name, block := range map[string]string{"values": table, "presets": presets} {
		pattern := regexp.MustCompile(`(?s)<!-- ` + name + ` -->\n.*?<!-- end -->`)
		want = pattern.ReplaceAllLiteralString(want, "<!-- "+name+" -->\n"+block+"<!-- end -->")
	}
	if *update {
		if err := os.WriteFile("chart/README.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if readme != want {
		t.Error("chart/README.md is not current: go test . -run TestChartReadme -update writes it anew")
	}
}

// cell escapes a text for a cell of a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(text)
}

func lookUp(values any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		values = values.(map[string]any)[name]
	}
	return values
}

// TestSchemaDescriptions copies the comments of values.yaml to the descriptions in
// values.schema.json.
func TestSchemaDescriptions(t *testing.T) {
	t.Parallel()
	const file = "chart/values.schema.json"
	text := readFile(t, file)
	root, err := decodeOrdered(json.NewDecoder(strings.NewReader(text)))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range readValues(t) {
		node := root.(*ordered)
		for name := range strings.SplitSeq(v.path, ".") {
			node = node.get("properties").get(name)
		}
		if node == nil {
			t.Errorf("%s has no %s", file, v.path)
		} else if v.about != "" {
			node.setFirst("description", v.about)
		}
	}
	want := string(appendOrdered(nil, root, "")) + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != want {
		t.Error(file + " is not current: go test . -run TestSchemaDescriptions -update writes it anew")
	}
}

// ordered is a JSON object whose members keep their order.
type ordered struct {
	names  []string
	values map[string]any
}

func (o *ordered) get(name string) *ordered {
	if o == nil {
		return nil
	}
	inner, _ := o.values[name].(*ordered)
	return inner
}

func (o *ordered) setFirst(name string, value any) {
	if _, has := o.values[name]; !has {
		o.names = append([]string{name}, o.names...)
	}
	o.values[name] = value
}

// decodeOrdered decodes a JSON value: objects as *ordered, arrays as []any.
func decodeOrdered(d *json.Decoder) (any, error) {
	d.UseNumber()
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		o := &ordered{values: make(map[string]any)}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			if o.values[name.(string)], err = decodeOrdered(d); err != nil {
				return nil, err
			}
			o.names = append(o.names, name.(string))
		}
		_, err := d.Token()
		return o, err
	case json.Delim('['):
		elements := []any{}
		for d.More() {
			element, err := decodeOrdered(d)
			if err != nil {
				return nil, err
			}
			elements = append(elements, element)
		}
		_, err := d.Token()
		return elements, err
	}
	return token, nil
}

// appendOrdered appends a value: on one line if that has room.
func appendOrdered(dst []byte, value any, indent string) []byte {
	const width = 132
	if line := oneLine(value); len(indent)+len(line) <= width {
		return append(dst, line...)
	}
	inner := indent + "  "
	switch v := value.(type) {
	case *ordered:
		dst = append(dst, '{')
		for i, name := range v.names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, "\n"+inner+oneLine(name)+": "...)
			dst = appendOrdered(dst, v.values[name], inner)
		}
		return append(dst, "\n"+indent+"}"...)
	case []any:
		dst = append(dst, '[')
		for i, element := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendOrdered(append(dst, "\n"+inner...), element, inner)
		}
		return append(dst, "\n"+indent+"]"...)
	}
	return append(dst, oneLine(value)...)
}

func oneLine(value any) string {
	switch v := value.(type) {
	case *ordered:
		var parts []string
		for _, name := range v.names {
			parts = append(parts, oneLine(name)+": "+oneLine(v.values[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, element := range v {
			parts = append(parts, oneLine(element))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(text.String())
}
