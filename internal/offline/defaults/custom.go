package defaults

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// defaultBytesMax bounds the defaults that a CustomResourceDefinition sets in one object: a default in a long
// list could fill the memory. kube-apiserver refuses objects of more than 3 MiB, and etcd those of more
// than 1.5 MiB.
const defaultBytesMax = 8 << 20

// errTooLarge is the error of defaults that are larger than defaultBytesMax.
var errTooLarge = fmt.Errorf("got more than %d MiB of defaults from its CustomResourceDefinition, want less than kube-apiserver takes",
	defaultBytesMax>>20)

// structure is a part of a schema (k8s.io/apiextensions-apiserver pkg/apiserver/schema Structural).
type structure struct {
	props    object // the JSONSchemaProps
	enumSize int    // roughly the bytes of the JSON of its enum

	// value is the default, nil if there is none, and size roughly the bytes of its JSON.
	value    any
	size     int
	nullable bool

	defaulted  []string // the properties with a default, sorted
	properties map[string]*structure
	hasOthers  bool       // whether there is additionalProperties
	others     *structure // additionalProperties, nil also if they are true
	items      *structure

	preserve bool // x-kubernetes-preserve-unknown-fields
	embedded bool // x-kubernetes-embedded-resource
	hasMeta  bool // apiVersion, kind and metadata are implied: it is embedded, or the root

	allOf, anyOf, oneOf []*structure
	not                 *structure
}

// customKind is a version of a CustomResourceDefinition.
type customKind struct {
	text     json.RawMessage // of the schema; a repository has many, and most are not needed
	hasRules bool            // the schema may have CEL rules
	preserve bool            // spec.preserveUnknownFields
	status   bool            // has the subresource

	once sync.Once
	root *structure // nil if there is no schema
	patterns
	rules rules

	onceStructural sync.Once
	forUpstream    *structuralschema.Structural
}

// structure returns the structure of the objects, nil if there is no schema.
func (k *customKind) structure() *structure {
	k.once.Do(func() {
		var props object
		if decode(k.text, &props) != nil || props == nil {
			return
		}
		k.root = newStructure(props)
		k.root.hasMeta, k.root.preserve = true, k.root.preserve || k.preserve
	})
	return k.root
}

// Define adds the schemas of a CustomResourceDefinition of apiextensions.k8s.io/v1 in JSON. They replace those of an
// earlier definition of the kinds.
func (d *Defaults) Define(text []byte) error {
	var crd struct {
		APIVersion string `json:"apiVersion"`
		Spec       struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			PreserveUnknownFields *bool `json:"preserveUnknownFields"`
			Versions              []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema"`
				} `json:"schema"`
				Subresources struct {
					Status *object `json:"status"`
				} `json:"subresources"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := decode(text, &crd); err != nil {
		return fmt.Errorf("cannot read the CustomResourceDefinition: %w", err)
	}
	// The default of v1beta1 is true. No release that fastadmit knows serves it, but some repositories still have it.
	preserve := crd.APIVersion == "apiextensions.k8s.io/v1beta1"
	if crd.Spec.PreserveUnknownFields != nil {
		preserve = *crd.Spec.PreserveUnknownFields
	}
	for i := range crd.Spec.Versions {
		version := &crd.Spec.Versions[i]
		gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		delete(d.custom, gvk)
		if text := version.Schema.OpenAPIV3Schema; text != nil {
			d.custom[gvk] = &customKind{text: text, hasRules: mayHaveRules(text), preserve: preserve, status: version.Subresources.Status != nil}
		}
	}
	return nil
}

// Defines reports whether a CustomResourceDefinition has a schema for a kind.
func (d *Defaults) Defines(gvk schema.GroupVersionKind) bool {
	definition := d.custom[gvk]
	return definition != nil && definition.structure() != nil
}

// newStructure returns the structure of a JSONSchemaProps, nil if it is none: additionalProperties can be a bool.
func newStructure(of any) *structure {
	props, ok := of.(object)
	if !ok {
		return nil
	}
	is := func(name string) bool { yes, _ := props[name].(bool); return yes }
	s := &structure{
		props: props, enumSize: sizeOf(props["enum"]), value: props["default"], size: sizeOf(props["default"]), nullable: is("nullable"),
		others: newStructure(props["additionalProperties"]), items: newStructure(props["items"]),
		preserve: is("x-kubernetes-preserve-unknown-fields"), embedded: is("x-kubernetes-embedded-resource"),
		allOf: structuresOf(props["allOf"]), anyOf: structuresOf(props["anyOf"]), oneOf: structuresOf(props["oneOf"]),
		not: newStructure(props["not"]),
	}
	s.hasMeta, s.hasOthers = s.embedded, s.others != nil || is("additionalProperties")
	properties, _ := props["properties"].(object)
	if len(properties) > 0 {
		s.properties = make(map[string]*structure, len(properties))
	}
	for name, property := range properties {
		if p := newStructure(property); p != nil {
			s.properties[name] = p
			if p.value != nil {
				s.defaulted = append(s.defaulted, name)
			}
		}
	}
	slices.Sort(s.defaulted)
	return s
}

func structuresOf(list any) (all []*structure) {
	elements, _ := list.([]any)
	for _, element := range elements {
		if s := newStructure(element); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// sizeOf returns roughly the bytes of a value's JSON.
func sizeOf(value any) int {
	n := 8 // of a number, and of punctuation
	switch value := value.(type) {
	case object:
		for name, inner := range value {
			n += len(name) + sizeOf(inner)
		}
	case []any:
		for _, inner := range value {
			n += sizeOf(inner)
		}
	case string:
		n += len(value)
	}
	return n
}

// apply sets the defaults of a custom resource.
func (s *structure) apply(text []byte) ([]byte, error) {
	if s == nil {
		return text, nil
	}
	var custom object
	if err := decode(text, &custom); err != nil || custom == nil {
		return text, nil // what is wrong with it is said where it is read
	}
	room := defaultBytesMax
	s.set(custom, &room)
	switch room {
	case defaultBytesMax:
		return text, nil
	case full:
		return nil, errTooLarge
	}
	return encode(custom)
}

// full is the room that is left if the defaults are too large.
const full = -1

// set is Default of k8s.io/apiextensions-apiserver pkg/apiserver/schema/defaulting. room is the number of
// bytes that defaults may still have.
func (s *structure) set(value any, room *int) {
	if s == nil || *room == full {
		return
	}
	switch value := value.(type) {
	case object:
		for _, name := range s.defaulted {
			p := s.properties[name]
			if is, ok := value[name]; ok && (is != nil || p.nullable) {
				continue
			}
			if !p.fits(room) {
				return
			}
			value[name] = runtime.DeepCopyJSONValue(p.value)
		}
		for name, inner := range value {
			p := s.of(name)
			if inner == nil && p.replacesNull() && p.fits(room) {
				inner = runtime.DeepCopyJSONValue(p.value)
				value[name] = inner
			}
			p.set(inner, room)
		}
	case []any:
		for i, inner := range value {
			if inner == nil && s.items.replacesNull() && s.items.fits(room) {
				inner = runtime.DeepCopyJSONValue(s.items.value)
				value[i] = inner
			}
			s.items.set(inner, room)
		}
	}
}

// fits takes the default from room.
func (s *structure) fits(room *int) bool {
	if *room == full {
		return false
	}
	if *room -= s.size; *room < 0 {
		*room = full
		return false
	}
	return true
}

// replacesNull reports whether a null gets the default.
func (s *structure) replacesNull() bool { return s != nil && s.value != nil && !s.nullable }

// of returns the structure of a member, nil if there is none.
func (s *structure) of(name string) *structure {
	if s == nil {
		return nil
	}
	if p := s.properties[name]; p != nil {
		return p
	}
	return s.others
}
