package view

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

// DepthMax is how many levels of a value are compared and converted by reading its text.
// Each level reads the text of the levels below it once more. Deeper levels are decoded
// instead. Kubernetes' own types have some 25 levels; kube-apiserver decodes at most
// 10,000.
const DepthMax = 64

// decodedDepthMax is how many levels a decoded value may have: the limit of Kubernetes'
// decoders (encoding/json). The review is refused if there are more, because recursion
// without a limit would end the process.
const decodedDepthMax = 10_000

// native returns the value that decoding v would give.
func native(v codec.Value) any {
	if v.FitsDecoded() {
		return nativeTo(v, DepthMax)
	}
	if v.Kind() == codec.KindObject { // the review has an error now, so the value decides nothing
		return map[string]any{}
	}
	return []any{}
}

func nativeTo(v codec.Value, levels int) any {
	kind := v.Kind()
	if levels == 0 && (kind == codec.KindObject || kind == codec.KindArray) {
		return decode(v)
	}
	switch kind {
	case codec.KindObject:
		m := make(map[string]any)
		for name, member := range v.Members() {
			m[name] = nativeTo(member, levels-1)
		}
		return m
	case codec.KindArray:
		l := []any{}
		for _, element := range v.Elements() {
			l = append(l, nativeTo(element, levels-1))
		}
		return l
	case codec.KindMissing, codec.KindNull:
		return nil
	default:
		return ValueOf(v).Value()
	}
}

// decode decodes v as Kubernetes decodes unstructured objects, in linear time. If v is not
// JSON or nests too deep, it refuses the review and returns nil.
func decode(v codec.Value) (content any) {
	err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(v.JSON()), &content)
	switch {
	case err == nil:
		return content
	case strings.Contains(err.Error(), "exceeded max depth"):
		v.Refuse(&codec.SizeError{What: "levels of nesting", Max: decodedDepthMax})
	default:
		v.Refuse(&codec.SyntaxError{Want: "JSON", Got: err.Error()})
	}
	return nil
}

// Decoded returns a decoded copy of v as a CEL value. It returns nil if v is null or cannot
// be decoded, or if there is no memory for the copy; the review has the error then.
func Decoded(v codec.Value) ref.Val {
	if !v.FitsDecoded() {
		return nil
	}
	if content := decode(v); content != nil {
		return types.DefaultTypeAdapter.NativeToValue(content)
	}
	return nil
}

// Equal reports whether types.Equal is true for the decoded values. The order of members
// does not matter.
func (x *Index) Equal(a, b codec.Value) bool { return x.equal(a, b, DepthMax) }

// equal implements Equal. It compares the text of that many levels, and decodes deeper
// values.
func (x *Index) equal(a, b codec.Value, levels int) bool {
	kind := a.Kind()
	switch {
	case kind != b.Kind():
		return false
	case kind == codec.KindNull:
		return true
	case kind == codec.KindBool:
		return a.Bool() == b.Bool()
	case kind == codec.KindString:
		return a.String() == b.String()
	case kind == codec.KindNumber:
		return types.Equal(number(a), number(b)) == types.True
	}
	if levels == 0 {
		a, b := Decoded(a), Decoded(b)
		return a != nil && b != nil && types.Equal(a, b) == types.True
	}
	if kind == codec.KindArray {
		return x.equalArrays(a, b, levels-1)
	}
	return x.equalObjects(a, b, levels-1)
}

func (x *Index) equalArrays(a, b codec.Value, levels int) bool {
	first, second := a.Iterator(), b.Iterator()
	for first.Next() {
		if !second.Next() || !x.equal(first.Value(), second.Value(), levels) {
			return false
		}
	}
	return !second.Next()
}

func (x *Index) equalObjects(a, b codec.Value, levels int) bool {
	n := a.Len()
	if n != b.Len() {
		return false
	}
	find := b.Get
	if n > lookupsMax {
		find = func(path ...string) codec.Value { return x.Member(b, path[0]) }
	}
	for it := a.Iterator(); it.Next(); {
		if v := find(it.Name()); !v.Exists() || !x.equal(it.Value(), v, levels) {
			return false
		}
	}
	return true
}
