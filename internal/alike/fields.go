package alike

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Fields returns the names that the fields of a struct have in JSON, in their order, and the types of these fields.
func Fields(t reflect.Type) (names []string, types map[string]reflect.Type) {
	types = make(map[string]reflect.Type)
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct:
			inner, innerTypes := Fields(field.Type)
			for _, name := range inner {
				names, types[name] = append(names, name), innerTypes[name]
			}
		case name != "" && name != "-":
			names, types[name] = append(names, name), field.Type
		}
	}
	return names, types
}

// FieldHint suggests what may be meant by an unknown field of a type, such as ", did you mean replicas?" for spec.replica, or
// "spec.containers[].image?" for spec.image. It returns "" if nothing is alike, and for a field that the type has.
func FieldHint(t reflect.Type, path string) string { return fieldHint(t, path, Hint) }

func fieldHint(t reflect.Type, path string, hint func(name string, known []string) string) string {
	places, name := placesOf(t, path)
	if len(places) == 0 {
		return ""
	}
	if path := elsewhere(places, name); path != "" {
		return fmt.Sprintf(", did you mean %s?", path)
	}
	names, _ := Fields(places[len(places)-1].t)
	return hint(name, names)
}

// UnmarshalStrict is that of sigs.k8s.io/json. Its errors about unknown fields also say what may be meant, or what is allowed.
func UnmarshalStrict(text []byte, into any) (faults []error, err error) {
	faults, err = kjson.UnmarshalStrict(text, into)
	for i, fault := range faults {
		if at, ok := fault.(kjson.FieldError); ok { //nolint:errorlint // UnmarshalStrict returns it as it is
			if hint := fieldHint(reflect.TypeOf(into), at.FieldPath(), Want); hint != "" {
				faults[i] = errors.New(fault.Error() + hint)
			}
		}
	}
	return faults, err
}
