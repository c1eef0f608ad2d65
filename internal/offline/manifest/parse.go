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
	"unicode/utf8"

	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// A document is a part of a file, and the line in which it begins.
type document struct {
	text []byte
	line int
	err  error // why it cannot be read
}

// Parse reads the objects in the content of a file. name is the file name in their Source.
// A document that cannot be read is an Item with a Fault. So is one that kubectl reads as
// other objects than it seems to have.
func Parse(name string, content []byte) []Item {
	if !utf8.Valid(content) {
		return []Item{faulty(Source{File: name}, errors.New("cannot be read: got bytes that are no UTF-8"))}
	}
	documents := split(bytes.TrimPrefix(content, []byte("\ufeff")))
	items := make([][]Item, len(documents))
	parallel(len(documents), func(i int) { items[i] = documents[i].parse(name) })
	var all []Item
	for _, some := range items {
		all = append(all, some...)
	}
	return all
}

// split returns the documents of a file, divided as kubectl does (k8s.io/apimachinery
// pkg/util/yaml YAMLReader): a line that begins with "---" separates them, and may have a
// comment, but nothing else.
func split(content []byte) []document {
	var documents []document
	begin, first := 0, 1 // of a document: its offset, its line
	at, line := 0, 0
	for text := range bytes.Lines(content) {
		line++
		if bytes.HasPrefix(text, []byte("---")) {
			documents = append(documents, document{text: content[begin:at], line: first})
			begin, first = at+len(text), line+1
			if after := bytes.TrimSpace(text[3:]); len(after) > 0 && after[0] != '#' {
				err := fmt.Errorf("got %q behind ---, want a line break or a comment", strictyaml.Shortened(after))
				documents = append(documents, document{line: line, err: err})
			}
		}
		at += len(text)
	}
	return append(documents, document{text: content[begin:], line: first})
}

// textLine returns the line of the first text that is no comment.
func (d *document) textLine() int {
	line := d.line
	for text := range bytes.Lines(d.text) {
		if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] != '#' && trimmed[0] != '%' {
			break
		}
		line++
	}
	return line
}

// parse reads the objects of a document.
func (d *document) parse(name string) []Item {
	source := Source{File: name, Line: d.line}
	if d.err != nil {
		return []Item{{Object: Object{Source: source}, Fault: located(source, d.line, d.err)}}
	}
	if onlyComments.Match(d.text) {
		return nil
	}
	source.Line = d.textLine()
	if isJSON.Match(d.text) {
		items, err := d.parseJSON(name)
		if err != nil {
			return []Item{{Object: Object{Source: source}, Fault: located(source, 1, err)}}
		}
		return items
	}
	text, err := toJSON(d.text)
	switch {
	case err != nil:
		return []Item{{Object: Object{Source: source}, Fault: located(source, d.line, err)}}
	case string(text) == "null":
		return nil
	}
	return unpack(source, text, places{elements: d.elementLines()}, 0)
}

// onlyComments matches a document without text. Comments with other characters are left to
// the YAML library, which knows more line breaks than "\n".
var onlyComments = regexp.MustCompile(`^(?:[ \t]*(?:[#%][\t\x20-\x7e]*)?\r?(?:\n|$))*$`)

// isJSON tells JSON from YAML: a flow mapping in YAML seldom has quoted keys, and
// where it is in JSON as well, it means the same.
var isJSON = regexp.MustCompile(`^\s*\{\s*["}]`)

// parseJSON reads one JSON value after the other.
func (d *document) parseJSON(name string) ([]Item, error) {
	var items []Item
	lines := newLines(d.text, d.line)
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
			offset, err := strictyaml.JSONSyntaxError(err, d.text, int(at))
			return nil, fmt.Errorf("line %d: %w", lines.at(offset), err)
		}
		begin := int(decoder.InputOffset()) - len(value)
		source := Source{File: name, Line: lines.at(begin)}
		if err := checkMembers(value); err != nil {
			items = append(items, faulty(source, err))
			continue
		}
		items = append(items, unpack(source, value, places{at: func(offset int) int { return lines.at(begin + offset) }}, 0)...)
	}
}

// checkMembers refuses JSON in which an object has two members with the same name: readers
// disagree on which of them counts.
func checkMembers(text []byte) error {
	var value any
	strict, err := kjson.UnmarshalStrict(text, &value, kjson.DisallowDuplicateFields)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}

// lineOf finds the line in an error of the YAML library.
var lineOf = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\n  )?line (\d+): `)

// located adds the line in an error's text to the position of the document. first is the
// line of the file that the error calls line 1.
func located(source Source, first int, err error) *Error {
	text := err.Error()
	if match := lineOf.FindStringSubmatchIndex(text); match != nil {
		if line, err := strconv.Atoi(text[match[2]:match[3]]); err == nil {
			source.Line, text = line+first-1, text[match[1]:]
		}
	}
	read := errors.New("cannot be read: " + strings.TrimPrefix(text, "yaml: "))
	if _, ok := errors.AsType[*syntaxError](err); ok {
		read = &syntaxError{read}
	}
	return &Error{Source: source, Err: read}
}
