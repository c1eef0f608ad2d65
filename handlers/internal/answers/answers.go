// Package answers reads the answers of the servers that plugins call. It bounds how long they are
// and how many elements are decoded, and takes the memory for them from that of the reviews.
package answers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

// otherBytesMax is the longest answer that is decoded although it is not a JSON object: several times
// that of a backend which answers in YAML.
const otherBytesMax = 16 << 10

// anchor occurs in all YAML with anchors. Aliases of anchors can turn a few KiB into megabytes.
var anchor = []byte("&")

// listedMax is how many elements of all lists of an answer are decoded. Later ones are dropped.
// Users get at most 4,096 characters of warnings, 24 KiB of causes, which are at most 1,755, and
// 32 KiB of audit annotations. An answer of 8 MiB can have 2,800,000 elements of three bytes; decoded
// as causes, they took 555 MiB.
const listedMax = 4096

// Fields are the members of an object that are decoded. A member with nil Fields is decoded
// completely, so it must not be a list or a map.
type Fields map[string]Fields

// Listed are the Fields of a list, or of a map with keys that the server chooses.
var Listed = Fields{}

// Status are the Fields of a metav1.Status.
func Status() Fields {
	return Fields{
		"kind": nil, "apiVersion": nil, "metadata": nil, "status": nil, "message": nil, "reason": nil, "code": nil,
		"details": {"name": nil, "group": nil, "kind": nil, "uid": nil, "causes": Listed, "retryAfterSeconds": nil},
	}
}

var errNoObject = errors.New("the answer is not a JSON object")

// Append appends the members of text, a JSON object, that f names to dst. Other members are
// dropped, as decoding would do. It returns an error if text is not JSON.
func (f Fields) Append(dst, text []byte) ([]byte, error) {
	if !json.Valid(text) {
		var syntax struct{}
		err := kjson.UnmarshalCaseSensitivePreserveInts(text, &syntax)
		return nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err) // upstream's words
	}
	o := new(codec.Object)
	o.Reset(text)
	if o.Root().Kind() != codec.KindObject {
		return nil, errNoObject
	}
	a := appender{dst: dst, left: listedMax}
	a.members(o.Root(), f)
	return a.dst, o.Err()
}

// An appender appends a part of an answer to dst.
type appender struct {
	dst  []byte
	left int // elements of lists that may still be appended
}

func (a *appender) members(v codec.Value, f Fields) {
	a.dst = append(a.dst, '{')
	first := true
	for name, member := range v.Members() {
		inner, ok := f[name]
		if !ok {
			continue
		}
		if !first {
			a.dst = append(a.dst, ',')
		}
		first = false
		a.dst = append(codec.AppendString(a.dst, name), ':')
		a.value(member, inner)
	}
	a.dst = append(a.dst, '}')
}

func (a *appender) value(v codec.Value, f Fields) {
	switch {
	case f == nil || v.Kind() != codec.KindObject && v.Kind() != codec.KindArray:
		a.dst = v.AppendJSON(a.dst)
	case len(f) > 0 && v.Kind() == codec.KindObject:
		a.members(v, f)
	case len(f) > 0: // a list instead of an object: decoding returns an error
		a.dst = append(a.dst, "[]"...)
	default:
		a.listed(v)
	}
}

func (a *appender) listed(v codec.Value) {
	brackets := "[]"
	if v.Kind() == codec.KindObject {
		brackets = "{}"
	}
	a.dst = append(a.dst, brackets[0])
	begun := len(a.dst)
	for it := v.Iterator(); a.left > 0 && it.Next(); a.left-- {
		if len(a.dst) > begun {
			a.dst = append(a.dst, ',')
		}
		if v.Kind() == codec.KindObject {
			a.dst = append(codec.AppendString(a.dst, it.Name()), ':')
		}
		a.dst = it.Value().AppendJSON(a.dst)
	}
	a.dst = append(a.dst, brackets[1])
}

// NewSerializer returns a serializer for the types of scheme. Of an answer that is a JSON object, it
// decodes only the Fields. Client-go also accepts other formats, such as YAML: these are decoded
// completely if they are short and have no anchors, and are errors otherwise.
func NewSerializer(scheme *runtime.Scheme, f Fields, versions ...schema.GroupVersion) runtime.NegotiatedSerializer {
	codecs := serializer.NewCodecFactory(scheme).LegacyCodec(versions...)
	return serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: bounded{codecs, f}})
}

// bounded is a serializer that decodes the Fields of an answer.
type bounded struct {
	runtime.Codec
	fields Fields
}

// Decode implements runtime.Decoder.
func (b bounded) Decode(text []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	part, err := b.fields.Append(nil, text)
	switch {
	case err == nil:
	case len(text) <= otherBytesMax && !bytes.Contains(text, anchor):
		part = text
	default:
		return nil, nil, err
	}
	return b.Codec.Decode(part, defaults, into)
}
