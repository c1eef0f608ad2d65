package manifest

import (
	"bytes"
	"os"
	"slices"

	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// Positions finds the lines of fields of objects. It reads each file again, once. The zero
// Positions is ready.
type Positions struct {
	files map[string]map[int]*position // by the line in which the object begins
}

// position is a document of a file.
type position struct {
	document
	parsed *strictyaml.Document // nil before it is needed, or if it cannot be parsed
}

// LineOf returns the line of a field of an object, such as
// "spec.validations[0].expression". If the field does not exist, it returns the line of the
// innermost existing field around it. If the file cannot be read again, or if the object is
// an item of a list, it returns the line where the object begins.
func (p *Positions) LineOf(o *Object, path string) int {
	if d := p.document(o); d != nil && path != "" {
		return d.parsed.Line(path) + d.line - 1
	}
	return o.Line
}

// KeyLineOf returns the line of the key of a field of an object, or of a list in its path whose elements are all meant, as in
// "spec.containers[*].image". It returns 0 if the field does not exist, and where LineOf does not find fields.
func (p *Positions) KeyLineOf(o *Object, path string) int {
	d := p.document(o)
	if d == nil {
		return 0
	}
	line := d.parsed.KeyLine(path)
	if line == 0 {
		return 0
	}
	return line + d.line - 1
}

// TagOf returns the YAML tag that an author wrote at a field of an object, "" if there is none or LineOf does not find the field.
func (p *Positions) TagOf(o *Object, path string) string {
	if d := p.document(o); d != nil {
		return d.parsed.Tag(path)
	}
	return ""
}

// CommentsOf returns the comments above a field of an object and behind it. They are empty if LineOf
// does not find the field.
func (p *Positions) CommentsOf(o *Object, path string) (above, behind string) {
	if d := p.document(o); d != nil {
		return d.parsed.Comments(path)
	}
	return "", ""
}

// document returns the document of an object, nil if it cannot be found.
func (p *Positions) document(o *Object) *position {
	d := p.read(o.File)[o.Line]
	if d == nil {
		return nil
	}
	if d.parsed == nil {
		d.parsed, _ = strictyaml.Parse(o.File, d.text) // Parse of this package reports errors
	}
	if d.parsed == nil || d.parsed.Text("kind") != o.Kind {
		return nil
	}
	return d
}

// read returns the documents of a file.
func (p *Positions) read(file string) map[int]*position {
	if documents, ok := p.files[file]; ok {
		return documents
	}
	documents := make(map[int]*position)
	if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() { // a pipe was read to its end, and would block
		if content, err := os.ReadFile(file); err == nil {
			for _, d := range split(bytes.TrimPrefix(content, []byte("\ufeff"))) {
				documents[d.textLine()] = &position{document: d}
			}
		}
	}
	if p.files == nil {
		p.files = make(map[string]map[int]*position)
	}
	p.files[file] = documents
	return documents
}

// lines converts offsets of a text to line numbers.
type lines struct {
	first  int   // the line of offset 0
	breaks []int // the offsets of line breaks
}

func newLines(text []byte, first int) *lines {
	l := &lines{first: first}
	for at, b := range text {
		if b == '\n' {
			l.breaks = append(l.breaks, at)
		}
	}
	return l
}

func (l *lines) at(offset int) int {
	before, _ := slices.BinarySearch(l.breaks, offset)
	return l.first + before
}

// elementLines returns the lines of the elements of the block sequence under the key items,
// as kubectl writes a list. For documents that are written in another way, it may return
// anything: what it returns is for messages only.
func (d *document) elementLines() (at []int) {
	const outside, begun, within = 0, 1, 2
	state, indent, line := outside, 0, d.line-1
	for text := range bytes.Lines(d.text) {
		line++
		content := bytes.TrimLeft(text, " ")
		depth := len(text) - len(content)
		isElement := bytes.HasPrefix(content, []byte("- ")) || string(bytes.TrimSpace(content)) == "-"
		isBlank := len(bytes.TrimSpace(content)) == 0 || content[0] == '#'
		switch {
		case state == outside && bytes.Equal(bytes.TrimRight(text, " \r\n"), []byte("items:")):
			state = begun
		case isBlank, state == outside:
		case state == begun && isElement:
			state, indent = within, depth
		case state == begun, depth < indent, depth == indent && !isElement:
			state = outside
		}
		if state == within && isElement && depth == indent {
			at = append(at, line)
		}
	}
	return at
}
