package defaults

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

const (
	// unknownMax is how many unknown fields kube-apiserver warns of.
	unknownMax = 100
	// hintNamesMax and hintNameMax bound what a hint costs: names are compared letter by letter.
	hintNamesMax, hintNameMax = 1000, 100
)

// A trail is the path to a value. The path is made if it is needed: that of a deep value is long.
type trail []string

func (t trail) String() string { return strings.TrimPrefix(strings.Join(t, ""), ".") }

func (t trail) index(i int) trail { return append(t, "["+strconv.Itoa(i)+"]") }

func (t trail) member(name string) trail { return append(t, "."+name) }

// A pruner removes the fields that a structure does not have, as k8s.io/apiextensions-apiserver
// pkg/apiserver/schema/pruning does. It notes the first of them in unknown.
type pruner struct {
	at      trail
	unknown []UnknownField
}

// prune prunes a value. keep means that unknown fields stay.
func (p *pruner) prune(value any, s *structure, keep bool) {
	if s == nil && keep {
		return
	}
	at := p.at
	defer func() { p.at = at }()
	switch value := value.(type) {
	case object:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if p.at = at; s != nil && s.hasMeta && isMeta(name) {
				p.noteMeta(value, name, len(at) == 0)
				continue
			}
			property := s.of(name)
			if p.at = at.member(name); property == nil && (s == nil || !s.hasOthers) {
				if !keep {
					p.note(s, name)
					delete(value, name)
				}
				continue
			}
			p.prune(value[name], property, property != nil && property.preserve)
		}
	case []any:
		var items *structure
		if s != nil {
			items = s.items
		}
		for i, inner := range value {
			p.at = at.index(i)
			p.prune(inner, items, keep || items != nil && items.preserve)
		}
	}
}

func (p *pruner) note(in *structure, name string) {
	if len(p.unknown) < unknownMax {
		p.unknown = append(p.unknown, UnknownField{Path: p.at.String(), name: name, in: in})
	}
}

func isMeta(name string) bool { return name == "apiVersion" || name == "kind" || name == "metadata" }

// noteMeta notes the unknown fields of metadata of an embedded resource. Those of the object itself have a place in a type.
func (p *pruner) noteMeta(of object, name string, isRoot bool) {
	if name != "metadata" || isRoot {
		return
	}
	fields, err := unknownMeta(of[name])
	if err != nil {
		return // Validate says so
	}
	for _, field := range fields {
		if len(p.unknown) < unknownMax {
			p.unknown = append(p.unknown, UnknownField{Path: p.at.member("metadata").String() + "." + field})
		}
	}
}

// unknownMeta returns the fields that an ObjectMeta does not have. The error means that the value is none.
func unknownMeta(value any) (fields []string, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	faults, err := kjson.UnmarshalStrict(text, new(metav1.ObjectMeta), kjson.DisallowUnknownFields)
	for _, fault := range faults {
		if at, ok := fault.(kjson.FieldError); ok { //nolint:errorlint // UnmarshalStrict returns it as it is
			fields = append(fields, at.FieldPath())
		}
	}
	return fields, err
}

// inDefinition suggests what may be meant instead of an unknown field of a custom resource.
func (u *UnknownField) inDefinition() string {
	if u.in == nil || len(u.name) > hintNameMax {
		return ""
	}
	if u.Path == u.name { // a field of the object, which may belong into its metadata or its spec
		if _, metadata := alike.Fields(reflect.TypeFor[metav1.ObjectMeta]()); metadata[u.name] != nil {
			return fmt.Sprintf(", did you mean metadata.%s?", u.name)
		}
		if spec := u.in.properties["spec"]; spec != nil && spec.properties[u.name] != nil {
			return fmt.Sprintf(", did you mean spec.%s?", u.name)
		}
	}
	names := make([]string, 0, len(u.in.properties))
	for name := range u.in.properties {
		if len(name) <= hintNameMax {
			names = append(names, name)
		}
	}
	if len(names) > hintNamesMax {
		return ""
	}
	if u.in.hasMeta {
		names = append(names, "apiVersion", "kind", "metadata")
	}
	slices.Sort(names)
	return alike.Hint(u.name, slices.Compact(names))
}

// Check is the function Check, for custom resources too. Of these, the fields are those that their CustomResourceDefinition
// does not have.
func (d *Defaults) Check(gvk schema.GroupVersionKind, text []byte) (unknown []UnknownField, path string, err error) {
	if !d.Defines(gvk) {
		return Check(gvk, text)
	}
	definition := d.custom[gvk]
	var custom object
	if err := decode(text, &custom); err != nil {
		return nil, "", err
	}
	fields, err := unknownMeta(custom["metadata"])
	if wrong, ok := mismatch(err); ok {
		path, text := strictyaml.Mismatch(wrong)
		path = strings.TrimSuffix("metadata."+path, ".")
		return nil, path, fmt.Errorf("%s: %s", path, text)
	}
	if err != nil {
		return nil, "metadata", fmt.Errorf("metadata: %w", err)
	}
	for _, field := range fields {
		unknown = append(unknown, UnknownField{Path: "metadata." + field, of: reflect.TypeFor[metav1.PartialObjectMetadata]()})
	}
	p := pruner{unknown: unknown}
	p.prune(custom, definition.root, definition.root.preserve)
	return p.unknown, "", nil
}

// dropNulls removes nulls where a structure allows none and has no default, as kube-apiserver does.
func (s *structure) dropNulls(value any) {
	switch value := value.(type) {
	case object:
		for name, inner := range value {
			if p := s.of(name); p != nil && inner == nil && !p.nullable && p.value == nil {
				delete(value, name)
			} else {
				p.dropNulls(inner)
			}
		}
	case []any:
		for _, inner := range value {
			if s != nil {
				s.items.dropNulls(inner)
			}
		}
	}
}
