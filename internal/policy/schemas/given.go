package schemas

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/policy/patching"
)

const (
	// definitionBytesMax is the length of a CustomResourceDefinition whose schema is read. kube-apiserver accepts
	// requests up to 3 MiB (k8s.io/apiserver pkg/server/config.go MaxRequestBodyBytes).
	definitionBytesMax = 3 << 20
	// schemaDepthMax is how deep a schema of a CustomResourceDefinition is read; a value below it can have any type. The
	// names of CEL types have the whole path, so they take the square of the depth.
	schemaDepthMax = 64
)

// Given has the schemas that are known without an API server: those of the built-in kinds, and of
// CustomResourceDefinitions. A schema is read when it is needed. Only one goroutine at a time may use it.
type Given struct {
	table       *discovery.Table
	definitions map[schema.GroupKind][]byte
}

// NewGiven returns the schemas of the kinds in a table. definitions are the CustomResourceDefinitions, in JSON, that were
// added to it.
func NewGiven(table *discovery.Table, definitions [][]byte) *Given {
	g := &Given{table, make(map[schema.GroupKind][]byte)}
	for _, text := range definitions {
		var d definition
		if json.UnmarshalCaseSensitivePreserveInts(text, &d) == nil { // otherwise it is not in the table
			if kind := d.kind(); g.definitions[kind] == nil {
				g.definitions[kind] = text
			}
		}
	}
	return g
}

// definition is the part of a CustomResourceDefinition that names its kind.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
	} `json:"spec"`
}

func (d *definition) kind() schema.GroupKind {
	return schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}
}

// Versions returns the group versions of the table, in no order.
func (g *Given) Versions(context.Context) ([]schema.GroupVersion, error) {
	return g.table.Versions(), nil
}

// Resources returns the resources of a group version, nil if the table has none.
func (g *Given) Resources(_ context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	return g.table.Resources(version), nil
}

// DeclType is Schemas.DeclType.
func (g *Given) DeclType(_ context.Context, gvk schema.GroupVersionKind, name string) (*apiservercel.DeclType, error) {
	s := patching.Schema(gvk)
	if text := g.definitions[gvk.GroupKind()]; s == nil && text != nil {
		var err error
		if s, err = customSchema(text, gvk.Version); err != nil {
			return nil, fmt.Errorf("the schema of %s cannot be read: %w", gvk, err)
		}
	}
	if s == nil {
		return nil, nil
	}
	if t := common.SchemaDeclType(&openapi.Schema{Schema: s}, true); t != nil {
		return t.MaybeAssignTypeName(name), nil
	}
	return nil, nil
}

// customSchema returns the schema of a version in a CustomResourceDefinition as kube-apiserver serves it
// (k8s.io/apiextensions-apiserver pkg/controller/openapi/builder), nil if it has none.
func customSchema(text []byte, version string) (*spec.Schema, error) {
	if len(text) > definitionBytesMax {
		return nil, fmt.Errorf("the CustomResourceDefinition has %d bytes, want at most %d", len(text), definitionBytesMax)
	}
	var d struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema *spec.Schema `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &d); err != nil {
		return nil, err
	}
	for i := range d.Spec.Versions {
		if s := d.Spec.Versions[i].Schema.OpenAPIV3Schema; s != nil && d.Spec.Versions[i].Name == version {
			c := completer{patching.Schema(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}).Properties["metadata"]}
			if c.complete(s, 0); len(s.Type) == 0 {
				return nil, nil // its objects can have any fields
			}
			c.addMeta(s)
			return s, nil
		}
	}
	return nil, nil
}

// A completer adds to a schema what a CustomResourceDefinition does not say.
type completer struct{ metadata spec.Schema }

// complete adds the fields of embedded resources. It allows any type where the schema allows unknown fields and has none.
// In kube-apiserver's type check such an object has no field at all.
func (c *completer) complete(s *spec.Schema, depth int) {
	unknown, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource")
	if depth == schemaDepthMax || unknown && !embedded && len(s.Properties) == 0 && s.AdditionalProperties == nil {
		*s = patching.AnyType()
		return
	}
	for name, property := range s.Properties {
		c.complete(&property, depth+1)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		c.complete(s.Items.Schema, depth+1)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		c.complete(s.AdditionalProperties.Schema, depth+1)
	}
	if embedded {
		c.addMeta(s)
	}
}

// addMeta adds the fields that all objects have.
func (c *completer) addMeta(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", c.metadata)
}
