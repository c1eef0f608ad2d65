package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

const (
	// uidBytes is the length of a UUID, which kube-apiserver makes for each call.
	uidBytes = 36

	// freshBytes is the length of the suffix that makes a name unique: "-" and eight hexadecimal
	// digits.
	freshBytes = 9

	// nameBytesMax is the maximum length of a name: the limit of labels, which also holds for the
	// names of most kinds.
	nameBytesMax = 63
)

// A Recording is a review to send. It is sent with a new uid and new names of its
// objects each time: names get a random suffix of nine characters. The length of the
// review is always the same.
type Recording struct {
	// Name identifies the recording in reports.
	Name string
	// Kind is the resource and the operation, such as "pods:create" or
	// "pods/status:update".
	Kind string
	// Expect is the decision that the answer must have. Empty means Config.Expect.
	Expect Expect

	version string // apiVersion
	body    []byte
	uid     int   // offset of the uid in body
	names   []int // offsets of the names' suffixes
	place   int   // its index in the mix
}

// Bytes returns the length of the request body in bytes.
func (r *Recording) Bytes() int { return len(r.body) }

// NewRecording creates a recording from an AdmissionReview in JSON. The review is copied.
// It must have a uid, a resource and an operation.
func NewRecording(name string, review []byte) (*Recording, error) {
	found, err := scanReview(review)
	if err != nil {
		return nil, fmt.Errorf("cannot send %s: %w", name, err)
	}
	r := &Recording{Name: name, Kind: found.kind(), version: found.version}
	r.render(review, found)
	return r, nil
}

// fields are the parts of a review that are read.
type fields struct {
	version, resource, subresource, operation string

	uid   span
	name  span
	edits []span // names, and the namespace of a namespace
}

func (f *fields) kind() string {
	kind := f.resource
	if f.subresource != "" {
		kind += "/" + f.subresource
	}
	return kind + ":" + strings.ToLower(f.operation)
}

// A span is a string in a document: its bytes without the quotes.
type span struct {
	start int
	value string
}

// scanReview finds the fields that are read and those that are overwritten for each request.
func scanReview(review []byte) (*fields, error) {
	found := new(fields)
	var kind string
	var namespace span
	err := scanStrings(json.NewDecoder(bytes.NewReader(review)), nil, func(path []string, value string, end int) {
		at := span{start: end - 1 - len(value), value: value}
		plain := at.start > 0 && string(review[at.start:end-1]) == value // the string has no escapes
		switch strings.Join(path, ".") {
		case "kind":
			kind = value
		case "apiVersion":
			found.version = value
		case "request.resource.resource":
			found.resource = value
		case "request.subResource":
			found.subresource = value
		case "request.operation":
			found.operation = value
		case "request.namespace":
			namespace = at
		case "request.uid":
			found.uid = at
		case "request.name", "request.object.metadata.name", "request.oldObject.metadata.name":
			if plain && value != "" {
				found.edits = append(found.edits, at)
			}
			if path[1] == "name" {
				found.name = at
			}
		}
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is not JSON: %w", err)
	case kind != "AdmissionReview" || !strings.HasPrefix(found.version, "admission.k8s.io/"):
		return nil, fmt.Errorf("got kind %q of %q, want AdmissionReview of admission.k8s.io", kind, found.version)
	case found.uid.value == "" || found.resource == "" || found.operation == "":
		return nil, fmt.Errorf("got request.uid %q, resource %q and operation %q, want all three",
			found.uid.value, found.resource, found.operation)
	}
	if found.resource == "namespaces" && namespace.value != "" && namespace.value == found.name.value {
		found.edits = append(found.edits, namespace)
	}
	return found, nil
}

// scanStrings calls visit with the path, the value and the end of each string
// value of the document.
func scanStrings(d *json.Decoder, path []string, visit func(path []string, value string, end int)) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case string:
		visit(path, token, int(d.InputOffset()))
	case json.Delim:
		for d.More() {
			var key string
			if token == '{' {
				t, err := d.Token()
				if err != nil {
					return err
				}
				key, _ = t.(string)
			}
			if err := scanStrings(d, append(path, key), visit); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

// render makes the body, with room for a uid and for the suffixes of names.
func (r *Recording) render(review []byte, found *fields) {
	spans := append([]span{found.uid}, found.edits...)
	slices.SortFunc(spans, func(a, b span) int { return a.start - b.start })
	done := 0
	for _, s := range spans {
		r.body = append(r.body, review[done:s.start]...)
		done = s.start + len(s.value)
		if s == found.uid {
			r.uid = len(r.body)
			r.body = append(r.body, bytes.Repeat([]byte("0"), uidBytes)...)
			continue
		}
		r.body = append(r.body, s.value[:min(len(s.value), nameBytesMax-freshBytes)]...)
		r.names = append(r.names, len(r.body))
		r.body = append(r.body, bytes.Repeat([]byte("-"), freshBytes)...)
	}
	r.body = append(r.body, review[done:]...)
}

// freshen writes a new uid and new names into a copy of the body. It returns the uid, a view of
// that copy.
func (r *Recording) freshen(body []byte, random *rand.Rand) (uid []byte) {
	const digits = "0123456789abcdef"
	uid = body[r.uid : r.uid+uidBytes]
	bits := [2]uint64{random.Uint64(), random.Uint64()}
	for i := range uid {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			uid[i] = '-'
			continue
		}
		half := &bits[i/19] // the UUID has 16 digits before byte 19, and 16 after it
		uid[i] = digits[*half&15]
		*half >>= 4
	}
	uid[14] = '4'                   // the version: random
	uid[19] = digits[8+(uid[19]&3)] // the variant
	for _, at := range r.names {
		copy(body[at+1:at+freshBytes], uid[:freshBytes-1])
	}
	return uid
}
