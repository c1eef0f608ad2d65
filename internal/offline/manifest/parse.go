package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// A document is a part of a file, and the line that it begins in.
type document struct {
	text []byte
	line int
}

// Parse reads the objects in the content of a file. name is the file name in their Source.
// A document that cannot be read is an Item with a Fault.
func Parse(name string, content []byte) []Item {
	documents := split(bytes.TrimPrefix(content, []byte("\ufeff")))
	items := make([][]Item, len(documents))
	parallel(len(documents), func(i int) { items[i] = documents[i].parse(name) })
	var all []Item
	for _, some := range items {
		all = append(all, some...)
	}
	return all
}

// split returns the documents of a file: they begin with a line that begins with
// "---" and may end with one of "..." (YAML 1.2.2, section 9.1). Those without any
// text but comments are left out.
func split(content []byte) []document {
	var documents []document
	begin, first := 0, 1 // of a document: its offset, its line
	at, line := 0, 0
	end := func() {
		d := document{text: content[begin:at], line: first}
		if d.skipComments(); len(d.text) > 0 {
			documents = append(documents, d)
		}
	}
	for text := range bytes.Lines(content) {
		line++
		starts := bytes.HasPrefix(text, []byte("---")) && (len(bytes.TrimSpace(text)) == 3 || text[3] == ' ' || text[3] == '\t')
		ends := string(bytes.TrimSpace(text)) == "..." && text[0] == '.'
		if starts || ends {
			end()
			begin, first = at, line
		}
		at += len(text)
		if ends {
			begin, first = at, line+1
		}
	}
	end()
	return documents
}

// skipComments drops the lines before the first with text.
func (d *document) skipComments() {
	for len(d.text) > 0 {
		line, rest, _ := bytes.Cut(d.text, []byte("\n"))
		trimmed := bytes.TrimSpace(line)
		if marker := bytes.HasPrefix(line, []byte("---")); marker {
			trimmed = bytes.TrimSpace(trimmed[3:])
		}
		if len(trimmed) > 0 && trimmed[0] != '#' && trimmed[0] != '%' {
			return
		}
		d.text = rest
		d.line++
	}
}

// parse reads the objects of a document.
func (d *document) parse(name string) []Item {
	source := Source{File: name, Line: d.line}
	if isJSON.Match(d.text) {
		items, err := d.parseJSON(name)
		if err != nil {
			return []Item{{Object: Object{Source: source}, Fault: located(source, err)}}
		}
		return items
	}
	if items, ok := d.parseItems(name); ok {
		return items
	}
	text, err := yaml.YAMLToJSONStrict(d.text)
	switch {
	case err != nil:
		return []Item{d.refuse(source)}
	case string(text) == "null":
		return nil
	}
	return unpack(source, text, nil)
}

// isJSON tells JSON from YAML: a flow mapping in YAML seldom has quoted keys, and
// where it is in JSON as well, it means the same.
var isJSON = regexp.MustCompile(`^\s*\{\s*["}]`)

// parseJSON reads one JSON value after the other.
func (d *document) parseJSON(name string) ([]Item, error) {
	var items []Item
	decoder := json.NewDecoder(bytes.NewReader(d.text))
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			at := decoder.InputOffset()
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				at = syntax.Offset
			}
			return nil, fmt.Errorf("line %d: %w", d.lineAt(int(at)), err)
		}
		begin := int(decoder.InputOffset()) - len(value)
		source := Source{File: name, Line: d.lineAt(begin)}
		items = append(items, unpack(source, value, func(offset int) int { return d.lineAt(begin + offset) })...)
	}
}

func (d *document) lineAt(offset int) int {
	return d.line + bytes.Count(d.text[:min(offset, len(d.text))], []byte("\n"))
}

// lineOf finds the line in an error of the YAML library.
var lineOf = regexp.MustCompile(`line (\d+): `)

// refuse says what is wrong with a YAML document: it is read once more as it
// stands in the file, so that the error has the line there.
func (d *document) refuse(source Source) Item {
	padded := append(bytes.Repeat([]byte("\n"), d.line-1), d.text...)
	_, err := yaml.YAMLToJSONStrict(padded)
	return Item{Object: Object{Source: source}, Fault: located(source, err)}
}

// located moves the line that an error names to where errors have it.
func located(source Source, err error) *Error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "yaml: "), "unmarshal errors:\n  ")
	if match := lineOf.FindStringSubmatchIndex(text); match != nil && match[0] == 0 {
		if line, err := strconv.Atoi(text[match[2]:match[3]]); err == nil {
			source.Line, text = line, text[match[1]:]
		}
	}
	return &Error{Source: source, Err: errors.New("cannot be read: " + text)}
}
