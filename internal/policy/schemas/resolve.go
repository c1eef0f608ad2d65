package schemas

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// refPrefix is the prefix of all references to other schemas of a document.
const refPrefix = "#/components/schemas/"

// DeclType returns the CEL type for objects of a kind. name is the name of the type in
// error messages. The result is nil if the API server has no schema for the kind.
func (s *Schemas) DeclType(ctx context.Context, gvk schema.GroupVersionKind, name string) (*apiservercel.DeclType, error) {
	path, err := s.Path(ctx, gvk.GroupVersion())
	if _, unserved := errors.AsType[NoVersionError](err); unserved || errors.Is(err, ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	definitions, err := s.Definitions(ctx, path)
	if err != nil {
		return nil, err
	}
	for definitionName, definition := range definitions {
		for _, of := range KindsOf(definition) {
			if of != gvk {
				continue
			}
			resolved, err := (&resolver{definitions, map[string]bool{refPrefix + definitionName: true}}).resolve(definition)
			if err != nil {
				return nil, fmt.Errorf("the schema of %s cannot be read: %w", gvk, err)
			}
			if t := common.SchemaDeclType(&openapi.Schema{Schema: resolved}, true); t != nil {
				return t.MaybeAssignTypeName(name), nil
			}
			return nil, nil
		}
	}
	return nil, nil
}

// A resolver replaces references by the schemas that they refer to. It restates k8s.io/apiserver
// pkg/cel/openapi/resolver/refs.go, because that package links all types of Kubernetes.
type resolver struct {
	definitions map[string]*spec.Schema
	within      map[string]bool // references that are being resolved
}

func (r *resolver) resolve(s *spec.Schema) (*spec.Schema, error) {
	result := *s
	if ref := refOf(s); ref != "" {
		if r.within[ref] { // it contains itself
			return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}, nil
		}
		r.within[ref] = true
		defer delete(r.within, ref)
		referred := r.definitions[strings.TrimPrefix(ref, refPrefix)]
		if referred == nil {
			return nil, fmt.Errorf("there is no %s", ref)
		}
		result = *referred
	}
	properties := make(map[string]spec.Schema, len(result.Properties))
	for name, property := range result.Properties {
		resolved, err := r.resolve(&property)
		if err != nil {
			return nil, err
		}
		properties[name] = *resolved
	}
	result.Properties = properties
	if more := result.AdditionalProperties; more != nil && more.Schema != nil {
		resolved, err := r.resolve(more.Schema)
		if err != nil {
			return nil, err
		}
		result.AdditionalProperties = &spec.SchemaOrBool{Allows: more.Allows, Schema: resolved}
	}
	if items := result.Items; items != nil && items.Schema != nil {
		resolved, err := r.resolve(items.Schema)
		if err != nil {
			return nil, err
		}
		result.Items = &spec.SchemaOrArray{Schema: resolved, Schemas: items.Schemas}
	}
	return &result, nil
}

// refOf returns the reference of a schema, an empty string if it is none. A reference with a
// description or a default is wrapped in allOf.
func refOf(s *spec.Schema) string {
	if s.Ref.GetURL() != nil {
		return s.Ref.String()
	}
	for i := range s.AllOf {
		if ref := refOf(&s.AllOf[i]); ref != "" {
			return ref
		}
	}
	return ""
}
