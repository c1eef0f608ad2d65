package manifest

import (
	"bytes"
	"os"

	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// LineOf returns the line in which a field of the object stands, such as
// "spec.validations[0].expression", or what is around it if there is no such field.
// The file is read again for this. Of an object in a list, and where the file cannot
// be read again, it is the line in which the object begins.
func (o *Object) LineOf(path string) int {
	content, err := os.ReadFile(o.File)
	if err != nil || path == "" {
		return o.Line
	}
	for _, d := range split(bytes.TrimPrefix(content, []byte("\ufeff"))) {
		if d.line != o.Line {
			continue
		}
		padded := append(bytes.Repeat([]byte("\n"), d.line-1), d.text...)
		document, err := strictyaml.Parse(o.File, padded)
		if err == nil && document.Text("kind") == o.Kind {
			return document.Line(path)
		}
	}
	return o.Line
}
