package cluster

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/protobuf"
)

// A mask names the fields of an object that are decoded. The others are dropped from the
// bytes, because a decoded field can take fifty times as much memory: an empty message
// has two bytes in protobuf.
type mask struct {
	names fields             // of JSON
	wire  protobuf.Selection // of protobuf; nil if the type reads its fields itself
	drop  bool               // the fields are those that are dropped
}

// identityMask selects what identifies an object, bookmarkMask what a bookmark has. The
// numbers are those of k8s.io/apimachinery pkg/apis/meta/v1/generated.proto; every object
// has its metadata in field 1.
var (
	identityMask = &mask{
		names: fields{"metadata": {"name": nil, "namespace": nil, "uid": nil, "resourceVersion": nil}},
		wire:  protobuf.Selection{1: {1: nil, 3: nil, 5: nil, 6: nil}},
	}
	labelsMask = &mask{
		names: fields{"metadata": {"name": nil, "namespace": nil, "uid": nil, "resourceVersion": nil, "labels": nil}},
		wire:  protobuf.Selection{1: {1: nil, 3: nil, 5: nil, 6: nil, 11: nil}},
	}
	bookmarkMask = &mask{
		names: fields{"metadata": {"resourceVersion": nil, "annotations": nil}},
		wire:  protobuf.Selection{1: {6: nil, 12: nil}},
	}
	// originMask drops managedFields and, of JSON, kubectl's copy of the object.
	originMask = &mask{names: originFields, wire: protobuf.Selection{1: {17: nil}}, drop: true}
)

// newMask returns the mask of the fields with the given paths, as JSON names them, and
// of identityFields. Without paths it drops what nobody reads. It panics if the type has
// no such field.
func newMask(kind string, object runtime.Object, paths []string) *mask {
	_, isJSON := object.(*JSON)
	numbered := !isJSON && hasNumbers(reflect.TypeOf(object).Elem())
	if len(paths) == 0 {
		m := *originMask
		if !numbered {
			m.wire = nil
		}
		return &m
	}
	m := &mask{names: namedFields(kind, paths)}
	if numbered {
		m.wire = numbersOf(kind, reflect.TypeOf(object).Elem(), m.names)
	}
	return m
}

// hasNumbers reports whether the fields of a struct have the tags of Kubernetes' types.
func hasNumbers(t reflect.Type) bool {
	field, ok := t.FieldByName("ObjectMeta")
	return ok && field.Tag.Get("protobuf") != ""
}

// numbersOf returns the numbers of the named fields of a struct.
func numbersOf(kind string, t reflect.Type, names fields) protobuf.Selection {
	numbers := make(protobuf.Selection, len(names))
	for name, below := range names {
		if name == "apiVersion" || name == "kind" { // which are around the message
			continue
		}
		field, ok := fieldOf(t, name)
		number, err := strconv.Atoi(numberIn(field.Tag.Get("protobuf")))
		if !ok || err != nil {
			panic(fmt.Sprintf("cluster: kind %s: the type %s has no field %q with a number of protobuf", kind, t, name))
		}
		of := field.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		var inside protobuf.Selection // all of a map
		if below != nil && of.Kind() == reflect.Struct {
			inside = numbersOf(kind, of, below)
		}
		numbers[protobuf.Number(number)] = inside
	}
	return numbers
}

func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if got, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); got == name {
			return t.Field(i), true
		}
	}
	return reflect.StructField{}, false
}

// numberIn returns the number in a tag such as "bytes,2,rep,name=secrets".
func numberIn(tag string) string {
	_, after, _ := strings.Cut(tag, ",")
	number, _, _ := strings.Cut(after, ",")
	return number
}

// apply returns the object in text, or in a message, with the fields of the mask. The error is
// protobuf.ErrTooLong if those of a message have more than most bytes.
func (m *mask) apply(object []byte, isMessage bool, most int) ([]byte, error) {
	if isMessage {
		if m.wire == nil {
			return object, nil
		}
		return protobuf.AppendSelected(make([]byte, 0, min(len(object), smallBytesMax)), object, m.wire, m.drop, most)
	}
	var o codec.Object
	o.Reset(object)
	masked := appendFields(make([]byte, 0, min(len(object), smallBytesMax)), o.Root(), m.names, m.drop)
	return masked, o.Err()
}
