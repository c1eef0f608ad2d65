package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

// JSON is an object that is kept as JSON. Its methods return the metadata, as those of
// every object of the API, without the fields that the kind does not keep. Several
// goroutines may use it at the same time. It must not be changed.
type JSON struct {
	objectMeta // of the text
	text       []byte
}

type objectMeta = metav1.Object

// NewJSON returns the object in text. It keeps a copy of text.
func NewJSON(text []byte) (*JSON, error) {
	j := new(JSON)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, j); err != nil {
		return nil, fmt.Errorf("cannot read an object of the API: %w", err)
	}
	return j, nil
}

// Value returns the object for reading. In contrast to what is read from a review, the
// Value and the strings read from it may be kept. Two goroutines must not use the same
// Value at the same time. Each call of Value allocates memory for reading, so call it
// once and read from the result.
func (j *JSON) Value() codec.Value { return j.Read(new(codec.Object)) }

// Read is Value with the memory of into, an Object of the caller. It does not allocate if
// into has grown large enough. The Value is valid until into is reset.
func (j *JSON) Read(into *codec.Object) codec.Value {
	into.Reset(j.text)
	return into.Root()
}

// UnmarshalJSON implements json.Unmarshaler: it keeps a copy of text.
func (j *JSON) UnmarshalJSON(text []byte) error {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &object); err != nil {
		return err
	}
	j.objectMeta = &object.Metadata
	j.text = bytes.ToValidUTF8(text, []byte("\uFFFD")) // a copy
	return nil
}

// MarshalJSON implements json.Marshaler.
func (j *JSON) MarshalJSON() ([]byte, error) {
	if j.text == nil {
		return []byte("null"), nil
	}
	return j.text, nil
}

// GetObjectKind implements runtime.Object. It returns an empty kind: the text contains
// the kind.
func (j *JSON) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (j *JSON) DeepCopyObject() runtime.Object {
	if j.objectMeta == nil {
		return new(JSON)
	}
	return &JSON{objectMeta: j.objectMeta.(*metav1.ObjectMeta).DeepCopy(), text: j.text}
}

// SetResourceVersion implements metav1.Object. It is used if files replace the API
// server.
func (j *JSON) SetResourceVersion(version string) {
	j.objectMeta.SetResourceVersion(version)
	var o codec.Object
	o.Reset(j.text)
	if version == "" {
		o.Remove("metadata", "resourceVersion")
	} else {
		o.SetString(version, "metadata", "resourceVersion")
	}
	j.text = o.Root().AppendJSON(nil)
}

// fields are names of members, each with the selected fields below it: nil for all.
type fields map[string]fields

// identityFields are the fields that identify an object and its version.
var identityFields = []string{
	"apiVersion", "kind", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion",
	"metadata.creationTimestamp", "metadata.deletionTimestamp",
}

// originFields are the fields that only tell how an object was created and changed.
var originFields = fields{"metadata": {"managedFields": nil, "annotations": {lastApplied: nil}}}

// add adds a path, unless a field above it is selected already.
func (f fields) add(path []string) {
	below, known := f[path[0]]
	switch {
	case len(path) == 1:
		f[path[0]] = nil
	case !known:
		below = make(fields)
		f[path[0]] = below
		below.add(path[1:])
	case below != nil:
		below.add(path[1:])
	}
}

// namedFields returns the fields of some paths and of identityFields.
func namedFields(kind string, paths []string) fields {
	names := make(fields)
	for _, field := range slices.Concat(identityFields, paths) {
		path := strings.Split(field, ".")
		for _, name := range path {
			if name == "" {
				panic(fmt.Sprintf("cluster: kind %s: got the field %q, want names with dots between them", kind, field))
			}
		}
		names.add(path)
	}
	return names
}

// keepFields returns the function that reduces an object to the fields of keep and
// identityFields. If keep is empty, it removes originFields.
func keepFields(kind string, keep []string) func(*JSON) (*JSON, error) {
	names, drop := originFields, true
	if len(keep) > 0 {
		names, drop = namedFields(kind, keep), false
	}
	return func(j *JSON) (*JSON, error) {
		var o codec.Object
		text := appendFields(make([]byte, 0, len(j.text)), j.Read(&o), names, drop)
		if o.Err() != nil {
			return nil, o.Err()
		}
		return NewJSON(text)
	}
}

// appendFields appends the object v with the fields in names or, if drop is true, with all
// other fields.
func appendFields(dst []byte, v codec.Value, names fields, drop bool) []byte {
	start := len(dst)
	for name, member := range v.Members() {
		below, named := names[name]
		inside := below != nil && (member.Kind() == codec.KindObject || member.Kind() == codec.KindArray && !drop)
		skip := !named || below != nil
		if drop {
			skip = named && below == nil
		}
		if skip && !inside {
			continue
		}
		dst = append(dst, ',')
		dst = codec.AppendString(dst, name)
		dst = append(dst, ':')
		switch {
		case !inside:
			dst = member.AppendJSON(dst)
		case member.Kind() == codec.KindArray:
			dst = appendElements(dst, member, below)
		default:
			dst = appendFields(dst, member, below, drop)
		}
	}
	if len(dst) == start {
		return append(dst, "{}"...)
	}
	dst[start] = '{'
	return append(dst, '}')
}

// appendElements appends the objects of a list with the fields in names. Other elements
// stay as they are.
func appendElements(dst []byte, list codec.Value, names fields) []byte {
	dst = append(dst, '[')
	for i, element := range list.Elements() {
		if i > 0 {
			dst = append(dst, ',')
		}
		if element.Kind() == codec.KindObject {
			dst = appendFields(dst, element, names, false)
		} else {
			dst = element.AppendJSON(dst)
		}
	}
	return append(dst, ']')
}
