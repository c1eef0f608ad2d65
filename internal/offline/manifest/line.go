package manifest

import (
	"bytes"
	"os"

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
