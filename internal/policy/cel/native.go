package cel

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

// depthMax is how deep values are compared and converted by way of codec, which reads
// the text of a value once for each object and array that it is in. What is deeper is
// decoded. Kubernetes' own types have some 25 levels, what kube-apiserver decodes has
// 10,000 at most.
const depthMax = 64

// decodedDepthMax is how deep values nest below that at most: what Kubernetes' decoders
// take (encoding/json). What is deeper is refused: going down without a bound would end
// the process.
const decodedDepthMax = 10_000

// native returns what decoding v would give.
func native(v codec.Value) any {
	if v.FitsDecoded() {
		return nativeTo(v, depthMax)
	}
	if v.Kind() == codec.KindObject { // the document has a fault: nobody decides on it
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

// decode decodes v as Kubernetes decodes unstructured objects, in linear time. It
// returns nil, and the document has a fault, for what is not JSON or nests too deep.
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

// decodedVal is v for a comparison with another value on the same level, nil for what
// has no value or takes too much memory.
func decodedVal(v codec.Value) ref.Val {
	if !v.FitsDecoded() {
		return nil
	}
	if content := decode(v); content != nil {
		return types.DefaultTypeAdapter.NativeToValue(content)
	}
	return nil
}

// equal compares two values of documents as types.Equal does with what decoding them
// gives, whatever the order of members. levels is how deep to go before they are
// decoded.
func (p *places) equal(a, b codec.Value, levels int) bool {
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
		a, b := decodedVal(a), decodedVal(b)
		return a != nil && b != nil && types.Equal(a, b) == types.True
	}
	if kind == codec.KindArray {
		return p.equalArrays(a, b, levels-1)
	}
	return p.equalObjects(a, b, levels-1)
}

func (p *places) equalArrays(a, b codec.Value, levels int) bool {
	first, second := a.Iterator(), b.Iterator()
	for first.Next() {
		if !second.Next() || !p.equal(first.Value(), second.Value(), levels) {
			return false
		}
	}
	return !second.Next()
}

func (p *places) equalObjects(a, b codec.Value, levels int) bool {
	n := a.Len()
	if n != b.Len() {
		return false
	}
	find := b.Get
	if n > lookupsMax {
		find = func(path ...string) codec.Value { return p.member(b, path[0]) }
	}
	for it := a.Iterator(); it.Next(); {
		if v := find(it.Name()); !v.Exists() || !p.equal(it.Value(), v, levels) {
			return false
		}
	}
	return true
}
