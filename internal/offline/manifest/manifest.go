// Package manifest reads Kubernetes objects from files, folders and standard input. It
// reads YAML and JSON, files with several documents, and lists of objects. It records the
// file and line of each object.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// Object is an object from a file.
type Object struct {
	Source
	Head
	// JSON is the text of the object. YAML is converted to JSON as kubectl does.
	JSON []byte
}

// Source is a position in a file.
type Source struct {
	File string // as the user named it, Stdin for standard input
	Line int    // from 1; 0 for the whole file
}

// Stdin is the file name of standard input in a Source.
const Stdin = "stdin"

func (s Source) String() string {
	if s.Line == 0 {
		return s.File
	}
	return fmt.Sprintf("%s:%d", s.File, s.Line)
}

// Head contains the fields that all objects have.
type Head struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
}

// Metadata is the part of an object's metadata that says which object it is.
type Metadata struct {
	Name         string `json:"name"`
	GenerateName string `json:"generateName"`
	Namespace    string `json:"namespace"`
}

// GroupVersionKind returns the group, version and kind of the object.
func (h *Head) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
}

// Error is a part of the input that could not be read.
type Error struct {
	Source
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %v", e.Source, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Item is an object, or an error in its place.
type Item struct {
	Object
	Fault *Error // nil if the object was read
}

// newItem makes an item of an object's JSON text.
func newItem(source Source, text []byte) Item {
	item := Item{Object: Object{Source: source, JSON: text}}
	if trimmed := bytes.TrimSpace(text); len(trimmed) == 0 || trimmed[0] != '{' {
		return faulty(source, new(NoObjectError))
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &item.Head)
	if err == nil {
		err = checkCase(text)
	}
	if err != nil {
		if none := forOthers(text); none != nil {
			return faulty(source, none)
		}
		item.Fault = &Error{source, headError(err)} // what can be read of the Head says which object it is
		return item
	}
	if item.Kind == "" || item.APIVersion == "" {
		return faulty(source, &NoObjectError{APIVersion: item.APIVersion, Kind: item.Kind})
	}
	return item
}

// forOthers returns the error for a document that is for another program, such as one of Grafana, whose apiVersion is a number:
// neither a kind nor an apiVersion is a text, in any spelling. It returns nil for what was meant to be an object of Kubernetes.
func forOthers(text []byte) *NoObjectError {
	var members map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &members) != nil {
		return nil
	}
	for name := range members {
		if strings.EqualFold(name, "apiVersion") && name != "apiVersion" || strings.EqualFold(name, "kind") && name != "kind" {
			return nil // checkCase refuses it
		}
	}
	version, _ := members["apiVersion"].(string)
	kind, _ := members["kind"].(string)
	if version != "" || kind != "" {
		return nil
	}
	return new(NoObjectError)
}

// A HeadError means that a field of a Head has a wrong type.
type HeadError struct {
	Path string // of the field
	text string
}

func (e *HeadError) Error() string { return e.Path + ": " + e.text }

// headError returns an error of reading a Head in the words of JSON.
func headError(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	path, text := strictyaml.Mismatch(wrong)
	return &HeadError{path, text}
}

// checkCase refuses members that differ from those of a Head in capital letters only.
// kube-apiserver leaves them out, and other programs read them.
func checkCase(text []byte) error {
	var object struct {
		Metadata map[string]ignored `json:"metadata"`
	}
	var members map[string]ignored
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &members); err != nil {
		return err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &object); err != nil {
		return err
	}
	for name := range members {
		for _, known := range [...]string{"apiVersion", "kind", "metadata", "items"} {
			if name != known && strings.EqualFold(name, known) {
				return fmt.Errorf("got the member %q, want %q", name, known)
			}
		}
	}
	for name := range object.Metadata {
		for _, known := range [...]string{"name", "generateName", "namespace", "labels"} {
			if name != known && strings.EqualFold(name, known) {
				return fmt.Errorf("got the member %q of metadata, want %q", name, known)
			}
		}
	}
	return nil
}

// ignored is a value that is skipped.
type ignored struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (ignored) UnmarshalJSON([]byte) error { return nil }

// NoObjectError means that a document is not a Kubernetes object: it is not a JSON object,
// or it has no apiVersion or no kind.
type NoObjectError struct{ APIVersion, Kind string }

func (e *NoObjectError) Error() string {
	return fmt.Sprintf("not a Kubernetes object: got kind %q and apiVersion %q, want both", e.Kind, e.APIVersion)
}

func faulty(source Source, err error) Item {
	return Item{Object: Object{Source: source}, Fault: &Error{Source: source, Err: err}}
}

// parallel calls do for each number below n, in as many goroutines as there are
// processors, and waits for all.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}
