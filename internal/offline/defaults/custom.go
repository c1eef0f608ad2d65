package defaults

import (
	"fmt"
	"slices"

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

// structure is a part of a schema that has defaults (k8s.io/apiextensions-apiserver
// pkg/apiserver/schema Structural).
type structure struct {
	// value is the default, nil if there is none, and size roughly the bytes of its JSON.
	value    any
	size     int
	nullable bool

	defaulted  []string              // the properties with a default, sorted
	properties map[string]*structure // those with defaults in them
	others     *structure            // additionalProperties
	items      *structure
}

// Define adds the defaults of a CustomResourceDefinition of apiextensions.k8s.io/v1 in JSON. They replace those of an
// earlier definition of the kinds.
func (d *Defaults) Define(text []byte) error {
	var crd struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Kind string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema object `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := decode(text, &crd); err != nil {
		return fmt.Errorf("cannot read the CustomResourceDefinition: %w", err)
	}
	for _, version := range crd.Spec.Versions {
		gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		delete(d.custom, gvk)
		if s := newStructure(version.Schema.OpenAPIV3Schema); s != nil {
			d.custom[gvk] = s
		}
	}
	return nil
}

// newStructure returns the structure of a JSONSchemaProps, nil if nothing in it has a default.
func newStructure(of any) *structure {
	props, ok := of.(object)
	if !ok {
		return nil // additionalProperties can be a bool
	}
	nullable, _ := props["nullable"].(bool)
	s := &structure{
		value: props["default"], size: sizeOf(props["default"]), nullable: nullable,
		properties: make(map[string]*structure), others: newStructure(props["additionalProperties"]), items: newStructure(props["items"]),
	}
	properties, _ := props["properties"].(object)
	for name, property := range properties {
		if p := newStructure(property); p != nil {
			s.properties[name] = p
			if p.value != nil {
				s.defaulted = append(s.defaulted, name)
			}
		}
	}
	slices.Sort(s.defaulted)
	if s.value == nil && s.others == nil && s.items == nil && len(s.properties) == 0 {
		return nil
	}
	return s
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
			if *room -= p.size; *room < 0 {
				*room = full
				return
			}
			value[name] = runtime.DeepCopyJSONValue(p.value)
		}
		for name, inner := range value {
			if p := s.properties[name]; p != nil {
				p.set(inner, room)
			} else {
				s.others.set(inner, room)
			}
		}
	case []any:
		for _, inner := range value {
			s.items.set(inner, room)
		}
	}
}
