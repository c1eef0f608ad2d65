package patching

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/fastadmit/fastadmit/codec"
)

// Schema returns the schema of a built-in kind, without references and with what types of CEL are made of; nil for
// other kinds. It differs from kube-apiserver's in one way: a quantity, and any JSON, can have any type. kube-apiserver's
// schemas have no type of CEL for a quantity, so its type check knows no resources.limits. Parts of the schema are
// shared, so do not change it.
func Schema(gvk schema.GroupVersionKind) *spec.Schema {
	t := typeOf(codec.GroupVersionKind(gvk))
	if t == nil {
		return nil
	}
	s := schemaMaker{}.schema(t)
	return &s
}

// AnyType is the schema of a value that can have any type in CEL.
func AnyType() spec.Schema {
	return spec.Schema{SchemaProps: spec.SchemaProps{Format: "int-or-string"}}
}

// schemaMaker has the schemas of structs.
type schemaMaker map[*goType]spec.Schema

func (m schemaMaker) schema(t *goType) spec.Schema {
	switch t.form {
	case isPointer:
		return m.schema(t.of)
	case isList:
		return *spec.ArrayProperty(new(m.schema(t.of)))
	case isMap:
		return *spec.MapProperty(new(m.schema(t.of)))
	case isStruct:
		return m.object(t)
	case isBool:
		return *spec.BooleanProperty()
	case isNumber:
		return *spec.Int64Property()
	case isString, isDuration:
		return *spec.StringProperty()
	case isBytes:
		return *spec.StrFmtProperty("byte")
	case isTime:
		return *spec.DateTimeProperty()
	}
	return AnyType()
}

// object returns the schema of a struct. Within itself a struct is an object without fields, as upstream
// (k8s.io/apiserver pkg/cel/openapi/resolver/refs.go).
func (m schemaMaker) object(t *goType) spec.Schema {
	if known, ok := m[t]; ok {
		return known
	}
	s := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	m[t] = s
	s.Properties = make(map[string]spec.Schema, len(t.fields))
	for name, field := range t.fields {
		s.Properties[name] = m.schema(field.of)
	}
	m[t] = s
	return s
}
