// Package strictyaml decodes configuration files in YAML or JSON into Go types. It reports
// all errors of a file together. Each error has the file, the line, the path in the
// document, the actual value and the allowed values.
package strictyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"bytes"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/alike"
)

// Document is one YAML document of a file.
type Document struct {
	file string
	root *yaml.Node
	// undecoded are the paths of the values that Decode left out, because they have a wrong type.
	undecoded []string
}

// Error is an error in a document.
type Error struct {
	File string
	Line int    // of the value or of the innermost value around it; 0 for some errors of the parser
	Path string // such as "plugins[0].timeout"; "" for the whole document
	Want string // the message: the actual value, and what is allowed

	// follows is true if the value is not what stands in the file, because Decode left that out.
	follows bool
}

func (e *Error) Error() string {
	text := e.File
	if e.Line > 0 {
		text += ":" + strconv.Itoa(e.Line)
	}
	if e.Path != "" {
		text += ": " + e.Path
	}
	return text + ": " + e.Want
}

// Parse parses a file, which must have exactly one document. file is the name for errors.
// The error is an *Error.
func Parse(file string, content []byte) (*Document, error) {
	d := &Document{file: file}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, &Error{File: file, Want: "got an empty file, want a document"}
	} else if err != nil {
		return nil, &Error{File: file, Want: SyntaxError(err, content).Error()}
	}
	var second yaml.Node
	err := decoder.Decode(&second)
	if err == nil && second.Content[0].ShortTag() == "!!null" { // behind a line --- at the end
		err = decoder.Decode(&second)
	}
	if err == nil {
		return nil, &Error{File: file, Line: second.Line, Want: "got a second document, want one"}
	} else if !errors.Is(err, io.EOF) {
		return nil, &Error{File: file, Want: SyntaxError(err, content).Error()}
	}
	d.root = document.Content[0]
	counter := counter{inside: make(map[*yaml.Node]bool)}
	if at, want := counter.refuse(d.root); at != nil {
		return nil, &Error{File: file, Line: at.Line, Want: want}
	}
	return d, nil
}

const (
	// valuesMax is the maximum number of values in a document. The values of an alias count each time it
	// is used: a list of 10,000 numbers that another list names 10,000 times has 100,000,000 values.
	valuesMax = 1 << 20
	// membersMax is the maximum number of members of a mapping. The time for decoding grows
	// with the square of it (go.yaml.in/yaml/v3 compares all keys): 0.1 s for so many.
	membersMax = 10_000
)

// A counter counts the values of a document.
type counter struct {
	values int
	inside map[*yaml.Node]bool // aliases around the value; one that contains itself is not followed again
}

// refuse returns the value that exceeds a limit, and the limit; nil if there is none.
func (c *counter) refuse(node *yaml.Node) (at *yaml.Node, want string) {
	if node.Kind == yaml.AliasNode {
		if node = node.Alias; c.inside[node] {
			return nil, ""
		}
		c.inside[node] = true
		defer delete(c.inside, node)
	}
	c.values++
	switch members := len(node.Content) / 2; {
	case c.values > valuesMax:
		return node, fmt.Sprintf("got more than %d values, those of aliases counted each time", valuesMax)
	case node.Kind == yaml.MappingNode && members > membersMax:
		return node, fmt.Sprintf("got an object with %d members, want at most %d", members, membersMax)
	}
	for _, below := range node.Content {
		if at, want = c.refuse(below); at != nil {
			return at, want
		}
	}
	return nil, ""
}

// Unread returns an empty Document. It is for errors in a file that Parse cannot parse.
func Unread(file string) *Document { return &Document{file: file, root: new(yaml.Node)} }

// Decode decodes the document into the value that into points to. It uses the field names
// of encoding/json. errs are all errors in the document: unknown fields, duplicate fields
// and values of wrong types. If decoded is true, the other fields of into are set even if
// there are errors, so the caller can check them too. Values of wrong types are left out; Join leaves out the errors
// that follow from that.
func (d *Document) Decode(into any) (errs []error, decoded bool) {
	c := checker{document: d}
	c.check(d.root, reflect.TypeOf(into).Elem(), "")
	if slices.Contains(d.undecoded, "") {
		return c.errs, false // the whole document
	}
	for _, node := range c.wrong {
		*node = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null", Line: node.Line}
	}
	text, err := toJSON(d.root)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, into)
	}
	if err != nil && len(c.errs) == 0 {
		c.errs = []error{&Error{File: d.file, Want: err.Error()}}
	}
	return c.errs, err == nil
}

// Locate converts field errors (k8s.io/apimachinery pkg/util/validation/field) to *Error,
// with the file and line. It returns other errors unchanged.
func (d *Document) Locate(errs ...error) []error {
	located := make([]error, len(errs))
	for i, err := range errs {
		located[i] = err
		if e, ok := errors.AsType[*field.Error](err); ok {
			located[i] = d.Errorf(e.Field, "%s", e.ErrorBody())
		}
	}
	return located
}

// Errorf returns an *Error for the value at a path. If there is no such value, it has the
// line of the innermost value around it.
func (d *Document) Errorf(path, format string, args ...any) error {
	return &Error{File: d.file, Line: d.Line(path), Path: path, Want: fmt.Sprintf(format, args...), follows: d.isUndecoded(path)}
}

// isUndecoded reports whether Decode left out the value at a path, or a value around it.
func (d *Document) isUndecoded(path string) bool {
	return slices.ContainsFunc(d.undecoded, func(undecoded string) bool {
		below, ok := strings.CutPrefix(path, undecoded)
		return ok && (below == "" || below[0] == '.' || below[0] == '[')
	})
}

// Join joins errors as errors.Join does, without those of values that Decode left out: it has returned an error of their own.
func Join(errs ...error) error {
	return errors.Join(slices.DeleteFunc(slices.Clone(errs), func(err error) bool {
		e, ok := errors.AsType[*Error](err)
		return ok && e.follows
	})...)
}

func toJSON(node *yaml.Node) ([]byte, error) {
	var value any
	if err := node.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// A checker compares a document with a type.
type checker struct {
	document *Document
	errs     []error
	wrong    []*yaml.Node // values of wrong types
	depth    int
}

const (
	// depthMax is the maximum depth of a document: several times that of any configuration.
	// It also ends the check of aliases that contain themselves.
	depthMax = 64

	// errorsMax is the maximum number of errors that are reported of a document.
	errorsMax = 100
)

func (c *checker) refuse(node *yaml.Node, path, format string, args ...any) {
	switch {
	case len(c.errs) > errorsMax:
		return
	case len(c.errs) == errorsMax:
		path, format, args = "", "more than %d errors, of which these are the first", []any{errorsMax}
	}
	c.errs = append(c.errs, &Error{File: c.document.file, Line: node.Line, Path: path, Want: fmt.Sprintf(format, args...)})
}

// refuseValue refuses a value that cannot be decoded.
func (c *checker) refuseValue(node *yaml.Node, path, format string, args ...any) {
	c.refuse(node, path, format, args...)
	c.wrong = append(c.wrong, node)
	c.document.undecoded = append(c.document.undecoded, path)
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func (c *checker) check(node *yaml.Node, t reflect.Type, path string) {
	if c.depth++; c.depth > depthMax {
		c.depth--
		c.refuseValue(node, path, "nested deeper than %d", depthMax)
		return
	}
	defer func() { c.depth-- }()
	node = resolve(node)
	if node.ShortTag() == "!!null" {
		return
	}
	if t.Kind() != reflect.Pointer && (reflect.PointerTo(t).Implements(unmarshaler) || t == reflect.TypeFor[[]byte]()) {
		c.checkOwn(node, t, path)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		c.check(node, t.Elem(), path)
	case reflect.Struct:
		c.checkStruct(node, t, path)
	case reflect.Map:
		c.eachMember(node, path, func(name string, value *yaml.Node, path string) { c.check(value, t.Elem(), path) })
	case reflect.Slice:
		if c.expect(node, path, yaml.SequenceNode, "a list") {
			for i, element := range node.Content {
				c.check(element, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
			}
		}
	case reflect.String:
		c.expectTag(node, path, "!!str", "a string")
	case reflect.Bool:
		c.expectTag(node, path, "!!bool", "true or false")
	case reflect.Int32, reflect.Int64, reflect.Int:
		if c.expectTag(node, path, "!!int", "a whole number") {
			if _, err := strconv.ParseInt(node.Value, 0, t.Bits()); err != nil {
				c.refuseValue(node, path, "got %s, want a whole number of %d bits", node.Value, t.Bits())
			}
		}
	default:
		panic("no configuration has a " + t.String())
	}
}

// checkOwn checks a value of a type with its own decoder, such as metav1.Duration, or of
// bytes, which are in base64.
func (c *checker) checkOwn(node *yaml.Node, t reflect.Type, path string) {
	text, err := toJSON(node)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	wrong, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		c.refuseValue(node, path, "got %s, want a duration such as 1m30s or 500ms", shown(node))
	case isType:
		c.refuseValue(node, path, "got %s, want %s", shown(node), Wanted(wrong.Type))
	default:
		c.refuseValue(node, path, "got %s: %v", shown(node), err)
	}
}

// Wanted returns what a file must have for a Go type, for messages.
func Wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return Wanted(t.Elem())
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	}
	return aString
}

// aString is what Wanted returns for a string.
const aString = "a string"

// checkStruct checks the members of a mapping against the fields of a struct.
func (c *checker) checkStruct(node *yaml.Node, t reflect.Type, path string) {
	names, fields := alike.Fields(t)
	c.eachMember(node, path, func(name string, value *yaml.Node, path string) {
		if t, ok := fields[name]; ok {
			c.check(value, t, path)
			return
		}
		c.refuse(value, path, "unknown field%s", alike.Want(name, names))
	})
}

// eachMember calls f with the members of a mapping, once for each name.
func (c *checker) eachMember(node *yaml.Node, path string, f func(name string, value *yaml.Node, path string)) {
	if !c.expect(node, path, yaml.MappingNode, "an object") {
		return
	}
	seen := make(map[string]bool)
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		below := strings.TrimPrefix(path+"."+key.Value, ".")
		if seen[key.Value] {
			c.refuse(key, below, "given twice")
			continue
		}
		seen[key.Value] = true
		f(key.Value, value, below)
	}
}

func (c *checker) expect(node *yaml.Node, path string, kind yaml.Kind, want string) bool {
	if node.Kind != kind {
		c.refuseValue(node, path, "got %s, want %s", shown(node), want)
		return false
	}
	return true
}

func (c *checker) expectTag(node *yaml.Node, path, tag, want string) bool {
	if node.Kind != yaml.ScalarNode || node.ShortTag() != tag {
		c.refuseValue(node, path, "got %s, want %s", shown(node), want)
		return false
	}
	return true
}

// shown returns the text of a value for a message, truncated if it is long.
func shown(node *yaml.Node) string {
	const bytesMax = 64
	switch node.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	if len(node.Value) > bytesMax {
		return strconv.Quote(node.Value[:bytesMax]) + "..."
	}
	if node.ShortTag() == "!!str" {
		return strconv.Quote(node.Value)
	}
	return node.Value
}
