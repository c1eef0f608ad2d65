package manifest

import (
	"bytes"
	"os"
	"slices"

	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// LineOf returns the line of a field of the object, such as
// "spec.validations[0].expression". If the field does not exist, it returns the line of the
// innermost existing field around it. LineOf reads the file again. If that is not possible,
// or if the object is an item of a list, it returns the line where the object begins.
func (o *Object) LineOf(path string) int {
	content, err := os.ReadFile(o.File)
	if err != nil || path == "" {
		return o.Line
	}
	for _, d := range split(bytes.TrimPrefix(content, []byte("\ufeff"))) {
		if d.line > o.Line || d.textLine() != o.Line {
			continue
		}
		document, err := strictyaml.Parse(o.File, d.text)
		if err == nil && document.Text("kind") == o.Kind {
			return document.Line(path) + d.line - 1
		}
	}
	return o.Line
}

// lines knows in which lines the offsets of a text are.
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
