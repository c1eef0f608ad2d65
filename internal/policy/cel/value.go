package cel

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/codec"
)

// ValueOf returns a JSON value as a CEL value. It behaves like the value that Kubernetes
// creates from an unstructured object, but objects and arrays are parsed only when an
// expression uses them. A missing value is null.
//
// The value and the strings in it are views of the review to which v belongs.
func ValueOf(v codec.Value) ref.Val { return valueOf(v, nil) }

func valueOf(v codec.Value, in *places) ref.Val {
	switch v.Kind() {
	case codec.KindObject:
		return &object{v, in}
	case codec.KindArray:
		return &list{v, in}
	case codec.KindString:
		return types.String(v.String())
	case codec.KindBool:
		return types.Bool(v.Bool())
	case codec.KindNumber:
		return number(v)
	}
	return types.NullValue
}

// number returns what sigs.k8s.io/json makes of a number: an int64 if it is
// written as one that fits, else a float64.
func number(v codec.Value) ref.Val {
	if n, ok := v.Int64(); ok {
		return types.Int(n)
	}
	f, err := strconv.ParseFloat(v.Scalar(), 64)
	if err != nil {
		return types.NewErr("cannot read number %q", v.Scalar())
	}
	return types.Double(f)
}

// object is a JSON object. It does what a map does that
// types.NewStringInterfaceMap makes.
type object struct {
	v  codec.Value
	in *places
}

// Find implements traits.Mapper.
func (m *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v := m.in.member(m.v, string(name))
	if !v.Exists() {
		return nil, false
	}
	return valueOf(v, m.in), true
}

// Contains implements traits.Container.
func (m *object) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	return types.Bool(ok && m.in.member(m.v, string(name)).Exists())
}

// Get implements traits.Indexer.
func (m *object) Get(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if !found {
		return types.ValOrErr(v, "no such key: %v", key)
	}
	return v
}

// Size implements traits.Sizer.
func (m *object) Size() ref.Val { return types.Int(m.in.len(m.v)) }

// IsZeroValue implements traits.Zeroer.
func (m *object) IsZeroValue() bool { return m.v.Len() == 0 }

// Iterator implements traits.Iterable: over the names.
func (m *object) Iterator() traits.Iterator {
	return &iterator{Iterator: m.v.Iterator(), in: m.in, ofNames: true}
}

// Fold implements traits.Foldable.
func (m *object) Fold(folder traits.Folder) {
	for it := m.v.Iterator(); it.Next(); {
		if !folder.FoldEntry(it.Name(), valueOf(it.Value(), m.in)) {
			return
		}
	}
}

// Equal implements ref.Val, whatever the order of the members.
func (m *object) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*object); ok {
		return types.Bool(m.in.equal(m.v, o.v, depthMax))
	}
	otherMap, ok := other.(traits.Mapper)
	if !ok || m.Size() != otherMap.Size() {
		return types.False
	}
	for it := m.v.Iterator(); it.Next(); {
		found, ok := otherMap.Find(types.String(it.Name()))
		if !ok || types.Equal(valueOf(it.Value(), m.in), found) == types.False {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (m *object) ConvertToNative(typeDesc reflect.Type) (any, error) {
	if reflect.TypeOf(m).AssignableTo(typeDesc) && typeDesc.NumMethod() > 0 {
		return m, nil
	}
	return m.decoded().ConvertToNative(typeDesc)
}

// decoded returns the object as a map of cel-go.
func (m *object) decoded() traits.Mapper {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, native(m.v).(map[string]any))
}

// ConvertToType implements ref.Val.
func (m *object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return m
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", types.MapType, t)
}

// Type implements ref.Val.
func (m *object) Type() ref.Type { return types.MapType }

// Value implements ref.Val: the object, decoded.
func (m *object) Value() any { return native(m.v) }

// String returns the text that cel-go shows for a map.
func (m *object) String() string { return fmt.Sprint(m.decoded()) }

// list is a JSON array. It does what a list does that types.NewDynamicList makes of
// an []any.
type list struct {
	v  codec.Value
	in *places
}

// Get implements traits.Indexer.
func (l *list) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil {
		return types.ValOrErr(index, "%v", err)
	}
	if i >= 0 {
		if v := l.in.element(l.v, i); v.Exists() {
			return valueOf(v, l.in)
		}
	}
	return types.NewErr("index '%d' out of range in list size '%d'", i, l.Size())
}

// Contains implements traits.Container.
func (l *list) Contains(elem ref.Val) ref.Val {
	for it := l.v.Iterator(); it.Next(); {
		if l.isElement(elem, it.Value()) {
			return types.True
		}
	}
	return types.False
}

func (l *list) isElement(elem ref.Val, v codec.Value) bool {
	switch elem := elem.(type) {
	case types.String:
		return v.EqualString(string(elem))
	case *object:
		return l.in.equal(elem.v, v, depthMax)
	case *list:
		return l.in.equal(elem.v, v, depthMax)
	}
	return elem.Equal(valueOf(v, l.in)) == types.True
}

// Size implements traits.Sizer.
func (l *list) Size() ref.Val { return types.Int(l.in.len(l.v)) }

// IsZeroValue implements traits.Zeroer.
func (l *list) IsZeroValue() bool { return l.v.Len() == 0 }

// Iterator implements traits.Iterable.
func (l *list) Iterator() traits.Iterator { return &iterator{Iterator: l.v.Iterator(), in: l.in} }

// Fold implements traits.Foldable.
func (l *list) Fold(folder traits.Folder) {
	it := l.v.Iterator()
	for i := 0; it.Next() && folder.FoldEntry(i, valueOf(it.Value(), l.in)); i++ {
	}
}

// Add implements traits.Adder.
func (l *list) Add(other ref.Val) ref.Val {
	otherList, ok := other.(traits.Lister)
	switch {
	case !ok:
		return types.MaybeNoSuchOverloadErr(other)
	case l.v.Len() == 0:
		return other
	case otherList.Size() == types.IntZero:
		return l
	}
	elements := make([]ref.Val, 0, l.in.len(l.v))
	for it := l.v.Iterator(); it.Next(); {
		elements = append(elements, valueOf(it.Value(), l.in))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elements).Add(other)
}

// Equal implements ref.Val.
func (l *list) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*list); ok {
		return types.Bool(l.in.equal(l.v, o.v, depthMax))
	}
	otherList, ok := other.(traits.Lister)
	if !ok || l.Size() != otherList.Size() {
		return types.False
	}
	it := l.v.Iterator()
	for i := types.IntZero; it.Next(); i++ {
		if types.Equal(valueOf(it.Value(), l.in), otherList.Get(i)) == types.False {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (l *list) ConvertToNative(typeDesc reflect.Type) (any, error) {
	if reflect.TypeOf(l).AssignableTo(typeDesc) && typeDesc.NumMethod() > 0 {
		return l, nil
	}
	return l.decoded().ConvertToNative(typeDesc)
}

// decoded returns the array as a list of cel-go.
func (l *list) decoded() traits.Lister {
	return types.NewDynamicList(types.DefaultTypeAdapter, native(l.v))
}

// ConvertToType implements ref.Val.
func (l *list) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", types.ListType, t)
}

// Type implements ref.Val.
func (l *list) Type() ref.Type { return types.ListType }

// Value implements ref.Val: the array, decoded.
func (l *list) Value() any { return native(l.v) }

// String returns the text that cel-go shows for a list.
func (l *list) String() string { return fmt.Sprint(l.decoded()) }
