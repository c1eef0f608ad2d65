package view

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/codec"
)

// Request is the variable request: the AdmissionRequest without uid, object and oldObject
// (k8s.io/apiserver pkg/admission/plugin/cel/condition.go CreateAdmissionRequest). A field
// is read when an expression uses it. What needs all fields makes a map of them.
type Request struct{ review *codec.Review }

// emptyFields are the values of fields that are empty but not left out.
var emptyFields = func() map[string]ref.Val {
	values := map[string]ref.Val{
		`""`: types.String(""), "null": types.NullValue, "false": types.False,
		"{}": types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{}),
	}
	empty := make(map[string]ref.Val)
	for _, f := range codec.RequestFields {
		if f.Empty != "" {
			empty[f.Name] = values[f.Empty]
		}
	}
	return empty
}()

// Find implements traits.Mapper.
func (r *Request) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	switch name {
	case "uid", "object", "oldObject":
		return emptyFields[string(name)], true
	}
	v, empty := r.Field(string(name))
	if v.Exists() {
		return ValueOf(v), true
	}
	return empty, empty != nil
}

// Field returns a field that is declared (uid, object and oldObject are not). If it is not
// set, v does not exist, and empty is its value; nil if the field is left out.
func (r *Request) Field(name string) (v codec.Value, empty ref.Val) {
	if v = r.review.RequestField(name); v.IsSet() && !v.EqualString("") {
		return v, nil
	}
	return codec.Value{}, emptyFields[name]
}

// Contains implements traits.Container.
func (r *Request) Contains(key ref.Val) ref.Val {
	_, found := r.Find(key)
	return types.Bool(found)
}

// Get implements traits.Indexer.
func (r *Request) Get(key ref.Val) ref.Val {
	v, found := r.Find(key)
	if !found {
		return types.ValOrErr(v, "no such key: %v", key)
	}
	return v
}

// Type implements ref.Val.
func (r *Request) Type() ref.Type { return types.MapType }

// all returns the request as a map of cel-go.
func (r *Request) all() traits.Mapper {
	fields := make(map[string]any)
	for _, f := range codec.RequestFields {
		if v, ok := r.Find(types.String(f.Name)); ok {
			fields[f.Name] = v
		}
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, fields)
}

// Iterator implements traits.Iterable.
func (r *Request) Iterator() traits.Iterator { return r.all().Iterator() }

// Size implements traits.Sizer.
func (r *Request) Size() ref.Val { return r.all().Size() }

// Equal implements ref.Val.
func (r *Request) Equal(other ref.Val) ref.Val { return r.all().Equal(other) }

// ConvertToNative implements ref.Val.
func (r *Request) ConvertToNative(typeDesc reflect.Type) (any, error) {
	return r.all().ConvertToNative(typeDesc)
}

// ConvertToType implements ref.Val.
func (r *Request) ConvertToType(t ref.Type) ref.Val { return r.all().ConvertToType(t) }

// Value implements ref.Val.
func (r *Request) Value() any { return r.all().Value() }
