package view

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
func ValueOf(v codec.Value) ref.Val { return (*Index)(nil).ValueOf(v) }

// ValueOf returns what the function ValueOf returns. The objects and arrays in the value use
// the index.
func (x *Index) ValueOf(v codec.Value) ref.Val {
	switch v.Kind() {
	case codec.KindObject:
		return &Object{v, x}
	case codec.KindArray:
		return &List{v, x}
	case codec.KindString:
		return types.String(v.String())
	case codec.KindBool:
		return types.Bool(v.Bool())
	case codec.KindNumber:
		return number(v)
	}
	return types.NullValue
}

// number returns a number as sigs.k8s.io/json decodes it: an int64 if it is written as an
// integer that fits, else a float64.
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

// An Object is a JSON object as a CEL value. It behaves like a map that
// types.NewStringInterfaceMap returns.
type Object struct {
	v  codec.Value
	in *Index
}

// JSON returns the JSON value that the object is a view of.
func (m *Object) JSON() codec.Value { return m.v }

// ValueOf returns a member, or a value in one, as a CEL value.
func (m *Object) ValueOf(v codec.Value) ref.Val { return m.in.ValueOf(v) }

// OrNull returns the object, or null if the request has no object there.
func (m *Object) OrNull() ref.Val {
	if m.v.Kind() != codec.KindObject {
		return types.NullValue
	}
	return m
}

// Find implements traits.Mapper.
func (m *Object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v := m.in.Member(m.v, string(name))
	if !v.Exists() {
		return nil, false
	}
	return m.in.ValueOf(v), true
}

// Contains implements traits.Container.
func (m *Object) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	return types.Bool(ok && m.in.Member(m.v, string(name)).Exists())
}

// Get implements traits.Indexer.
func (m *Object) Get(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if !found {
		return types.ValOrErr(v, "no such key: %v", key)
	}
	return v
}

// Size implements traits.Sizer.
func (m *Object) Size() ref.Val { return types.Int(m.in.Len(m.v)) }

// IsZeroValue implements traits.Zeroer.
func (m *Object) IsZeroValue() bool { return m.v.Len() == 0 }

// Iterator implements traits.Iterable: over the names.
func (m *Object) Iterator() traits.Iterator {
	return &iterator{Iterator: m.v.Iterator(), in: m.in, ofNames: true}
}

// Fold implements traits.Foldable.
func (m *Object) Fold(folder traits.Folder) {
	for it := m.v.Iterator(); it.Next(); {
		if !folder.FoldEntry(it.Name(), m.in.ValueOf(it.Value())) {
			return
		}
	}
}

// Equal implements ref.Val, whatever the order of the members.
func (m *Object) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*Object); ok {
		return types.Bool(m.in.Equal(m.v, o.v))
	}
	otherMap, ok := other.(traits.Mapper)
	if !ok || m.Size() != otherMap.Size() {
		return types.False
	}
	for it := m.v.Iterator(); it.Next(); {
		found, ok := otherMap.Find(types.String(it.Name()))
		if !ok || types.Equal(m.in.ValueOf(it.Value()), found) == types.False {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (m *Object) ConvertToNative(typeDesc reflect.Type) (any, error) {
	if reflect.TypeOf(m).AssignableTo(typeDesc) && typeDesc.NumMethod() > 0 {
		return m, nil
	}
	return m.decoded().ConvertToNative(typeDesc)
}

// decoded returns the object as a map of cel-go.
func (m *Object) decoded() traits.Mapper {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, native(m.v).(map[string]any))
}

// ConvertToType implements ref.Val.
func (m *Object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return m
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", types.MapType, t)
}

// Type implements ref.Val.
func (m *Object) Type() ref.Type { return types.MapType }

// Value implements ref.Val: the object, decoded.
func (m *Object) Value() any { return native(m.v) }

// String returns the text that cel-go shows for a map.
func (m *Object) String() string { return fmt.Sprint(m.decoded()) }

// A List is a JSON array as a CEL value. It behaves like a list that types.NewDynamicList
// returns for an []any.
type List struct {
	v  codec.Value
	in *Index
}

// JSON returns the JSON value that the list is a view of.
func (l *List) JSON() codec.Value { return l.v }

// Get implements traits.Indexer.
func (l *List) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil {
		return types.ValOrErr(index, "%v", err)
	}
	if i >= 0 {
		if v := l.in.Element(l.v, i); v.Exists() {
			return l.in.ValueOf(v)
		}
	}
	return types.NewErr("index '%d' out of range in list size '%d'", i, l.Size())
}

// Contains implements traits.Container.
func (l *List) Contains(elem ref.Val) ref.Val {
	for it := l.v.Iterator(); it.Next(); {
		if l.isElement(elem, it.Value()) {
			return types.True
		}
	}
	return types.False
}

func (l *List) isElement(elem ref.Val, v codec.Value) bool {
	switch elem := elem.(type) {
	case types.String:
		return v.EqualString(string(elem))
	case *Object:
		return l.in.Equal(elem.v, v)
	case *List:
		return l.in.Equal(elem.v, v)
	}
	return elem.Equal(l.in.ValueOf(v)) == types.True
}

// Size implements traits.Sizer.
func (l *List) Size() ref.Val { return types.Int(l.in.Len(l.v)) }

// IsZeroValue implements traits.Zeroer.
func (l *List) IsZeroValue() bool { return l.v.Len() == 0 }

// Iterator implements traits.Iterable.
func (l *List) Iterator() traits.Iterator { return &iterator{Iterator: l.v.Iterator(), in: l.in} }

// Fold implements traits.Foldable.
func (l *List) Fold(folder traits.Folder) {
	it := l.v.Iterator()
	for i := 0; it.Next() && folder.FoldEntry(i, l.in.ValueOf(it.Value())); i++ {
	}
}

// Add implements traits.Adder.
func (l *List) Add(other ref.Val) ref.Val {
	otherList, ok := other.(traits.Lister)
	switch {
	case !ok:
		return types.MaybeNoSuchOverloadErr(other)
	case l.v.Len() == 0:
		return other
	case otherList.Size() == types.IntZero:
		return l
	}
	elements := make([]ref.Val, 0, l.in.Len(l.v))
	for it := l.v.Iterator(); it.Next(); {
		elements = append(elements, l.in.ValueOf(it.Value()))
	}
	return types.NewRefValList(types.DefaultTypeAdapter, elements).Add(other)
}

// Equal implements ref.Val.
func (l *List) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*List); ok {
		return types.Bool(l.in.Equal(l.v, o.v))
	}
	otherList, ok := other.(traits.Lister)
	if !ok || l.Size() != otherList.Size() {
		return types.False
	}
	it := l.v.Iterator()
	for i := types.IntZero; it.Next(); i++ {
		if types.Equal(l.in.ValueOf(it.Value()), otherList.Get(i)) == types.False {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (l *List) ConvertToNative(typeDesc reflect.Type) (any, error) {
	if reflect.TypeOf(l).AssignableTo(typeDesc) && typeDesc.NumMethod() > 0 {
		return l, nil
	}
	return l.decoded().ConvertToNative(typeDesc)
}

// decoded returns the array as a list of cel-go.
func (l *List) decoded() traits.Lister {
	return types.NewDynamicList(types.DefaultTypeAdapter, native(l.v))
}

// ConvertToType implements ref.Val.
func (l *List) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", types.ListType, t)
}

// Type implements ref.Val.
func (l *List) Type() ref.Type { return types.ListType }

// Value implements ref.Val: the array, decoded.
func (l *List) Value() any { return native(l.v) }

// String returns the text that cel-go shows for a list.
func (l *List) String() string { return fmt.Sprint(l.decoded()) }
