package cel

import (
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/codec"
)

// request is the variable of that name: what kube-apiserver makes of an
// AdmissionRequest with neither uid nor objects in it (k8s.io/apiserver
// pkg/admission/plugin/cel/condition.go CreateAdmissionRequest). Fields are read
// when they are asked for; whoever asks for all of it gets a map.
type request struct{ review *codec.Review }

// The fields that are there although they say nothing.
var requestHas = map[string]ref.Val{
	"uid": types.String(""), "object": types.NullValue, "oldObject": types.NullValue,
	"dryRun": types.False, "options": types.NullValue,
	"kind": emptyMap, "resource": emptyMap, "requestKind": emptyMap, "requestResource": emptyMap, "userInfo": emptyMap,
	"operation": types.String(""),
}

var emptyMap ref.Val = types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{})

// The fields that are left out if they are empty.
var requestMayHave = [...]string{"subResource", "requestSubResource", "name", "namespace"}

// Find implements traits.Mapper.
func (r *request) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	switch name {
	case "uid", "object", "oldObject":
		return requestHas[string(name)], true
	}
	if v := r.review.RequestField(string(name)); v.IsSet() && !v.EqualString("") {
		return ValueOf(v), true
	}
	known, ok := requestHas[string(name)]
	return known, ok
}

// Contains implements traits.Container.
func (r *request) Contains(key ref.Val) ref.Val {
	_, found := r.Find(key)
	return types.Bool(found)
}

// Get implements traits.Indexer.
func (r *request) Get(key ref.Val) ref.Val {
	v, found := r.Find(key)
	if !found {
		return types.ValOrErr(v, "no such key: %v", key)
	}
	return v
}

// Type implements ref.Val.
func (r *request) Type() ref.Type { return types.MapType }

// all returns the request as a map of cel-go.
func (r *request) all() traits.Mapper {
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
func (r *request) Iterator() traits.Iterator { return r.all().Iterator() }

// Size implements traits.Sizer.
func (r *request) Size() ref.Val { return r.all().Size() }

// Equal implements ref.Val.
func (r *request) Equal(other ref.Val) ref.Val { return r.all().Equal(other) }

// ConvertToNative implements ref.Val.
func (r *request) ConvertToNative(typeDesc reflect.Type) (any, error) {
	return r.all().ConvertToNative(typeDesc)
}

// ConvertToType implements ref.Val.
func (r *request) ConvertToType(t ref.Type) ref.Val { return r.all().ConvertToType(t) }

// Value implements ref.Val.
func (r *request) Value() any { return r.all().Value() }
