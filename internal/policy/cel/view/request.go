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

// requestHas are the values of fields that are empty but not left out.
var requestHas = map[string]ref.Val{
	"uid": types.String(""), "object": types.NullValue, "oldObject": types.NullValue,
	"dryRun": types.False, "options": types.NullValue,
	"kind": emptyMap, "resource": emptyMap, "requestKind": emptyMap, "requestResource": emptyMap, "userInfo": emptyMap,
	"operation": types.String(""),
}

var emptyMap ref.Val = types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{})

// requestMayHave are the fields that are left out if they are empty.
var requestMayHave = [...]string{"subResource", "requestSubResource", "name", "namespace"}

// Find implements traits.Mapper.
func (r *Request) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	switch name {
	case "uid", "object", "oldObject":
		return requestHas[string(name)], true
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
	return codec.Value{}, requestHas[name]
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
	add := func(name string) {
		if v, ok := r.Find(types.String(name)); ok {
			fields[name] = v
		}
	}
	for name := range requestHas {
		add(name)
	}
	for _, name := range requestMayHave {
		add(name)
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
