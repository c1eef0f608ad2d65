package cel

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// The types of mutations are Object, the types of its fields, and JSONPatch. Objects use
// kube-apiserver's package. JSONPatch and the provider of the types are restated
// (k8s.io/apiserver pkg/cel/mutation and pkg/cel/common), because those packages need seven
// modules for OpenAPI.

var (
	objectRoot    = types.NewObjectType("Object")
	jsonPatchType = types.NewObjectType("JSONPatch")
)

// withPatchTypes adds the types to an environment.
func withPatchTypes(e *cel.Env) (*cel.Env, error) {
	return cel.CustomTypeProvider(&patchTypes{e.CELTypeProvider()})(e)
}

// patchTypes provides the types of mutations, and those of another provider.
type patchTypes struct{ types.Provider }

// isObject reports whether a name is that of Object or of the type of one of its fields.
func isObject(name string) bool {
	return name == objectRoot.TypeName() || strings.HasPrefix(name, objectRoot.TypeName()+".")
}

// FindStructType implements types.Provider.
func (p *patchTypes) FindStructType(name string) (*types.Type, bool) {
	switch {
	case name == jsonPatchType.TypeName():
		return types.NewTypeTypeWithParam(jsonPatchType), true
	case isObject(name):
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// jsonPatchFields are the fields of a JSONPatch.
var jsonPatchFields = []string{"op", "from", "path", "value"}

// FindStructFieldNames implements types.Provider.
func (p *patchTypes) FindStructFieldNames(name string) ([]string, bool) {
	switch {
	case name == jsonPatchType.TypeName():
		return jsonPatchFields, true
	case isObject(name):
		return nil, true // an Object has any field
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p *patchTypes) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	switch {
	case name == jsonPatchType.TypeName():
		return jsonPatchField(field), true
	case isObject(name):
		return dynamic.NewObjectType(name).Field(field)
	}
	return p.Provider.FindStructFieldType(name, field)
}

// jsonPatchField returns the type of a field of JSONPatch. As upstream, the type of an unknown
// field is empty.
func jsonPatchField(name string) *types.FieldType {
	switch name {
	case "op", "from", "path":
		return &types.FieldType{Type: types.StringType}
	case "value":
		return &types.FieldType{Type: types.DynType}
	}
	return new(types.FieldType)
}

// NewValue implements types.Provider.
func (p *patchTypes) NewValue(name string, fields map[string]ref.Val) ref.Val {
	switch {
	case name == jsonPatchType.TypeName():
		return newJSONPatch(fields)
	case isObject(name):
		return dynamic.NewObjectVal(types.NewObjectType(name), fields)
	}
	return p.Provider.NewValue(name, fields)
}

// JSONPatch is a CEL value of the type JSONPatch: an operation of a JSON Patch (RFC 6902).
type JSONPatch struct {
	Op, From, Path string
	Val            ref.Val // nil for none
}

func newJSONPatch(fields map[string]ref.Val) ref.Val {
	p := new(JSONPatch)
	for name, value := range fields {
		into := map[string]*string{"op": &p.Op, "path": &p.Path, "from": &p.From}[name]
		switch {
		case into != nil:
			text, ok := value.Value().(string)
			if !ok {
				return types.NewErr("unexpected type %T for JSONPatchType '%s' field", value.Value(), name)
			}
			*into = text
		case name == "value":
			p.Val = value
		default:
			return types.NewErr("unexpected JSONPatchType field: %s", name)
		}
	}
	return p
}

// ConvertToNative implements ref.Val.
func (p *JSONPatch) ConvertToNative(typeDesc reflect.Type) (any, error) {
	return nil, fmt.Errorf("cannot convert to native type: %v", typeDesc)
}

// ConvertToType implements ref.Val.
func (p *JSONPatch) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case jsonPatchType:
		return p
	case types.TypeType:
		return types.NewTypeTypeWithParam(jsonPatchType)
	}
	return types.NewErr("unsupported type: %s", t.TypeName())
}

// Equal implements ref.Val.
func (p *JSONPatch) Equal(other ref.Val) ref.Val {
	o, ok := other.(*JSONPatch)
	if !ok || p.Op != o.Op || p.From != o.From || p.Path != o.Path || (p.Val == nil) != (o.Val == nil) {
		return types.False
	}
	if p.Val == nil {
		return types.True
	}
	return p.Val.Equal(o.Val)
}

// Get implements traits.Indexer. A value that is not set is nil, as upstream.
func (p *JSONPatch) Get(index ref.Val) ref.Val {
	switch index.Value() {
	case "op":
		return types.String(p.Op)
	case "path":
		return types.String(p.Path)
	case "from":
		return types.String(p.From)
	case "value":
		return p.Val
	}
	return types.NewErr("unsupported indexer: %s", index)
}

// IsSet implements traits.FieldTester.
func (p *JSONPatch) IsSet(field ref.Val) ref.Val {
	switch field.Value() {
	case "op":
		return types.Bool(p.Op != "")
	case "path":
		return types.Bool(p.Path != "")
	case "from":
		return types.Bool(p.From != "")
	case "value":
		return types.Bool(p.Val != nil)
	}
	return types.NewErr("unsupported field: %s", field)
}

// Type implements ref.Val.
func (p *JSONPatch) Type() ref.Type { return jsonPatchType }

// Value implements ref.Val.
func (p *JSONPatch) Value() any { return p }
