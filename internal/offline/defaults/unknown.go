package defaults

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

// An UnknownField is a field that an object has and that the type of its kind does not have.
type UnknownField struct {
	Path string // such as spec.template.spec.containers[0].imagePullPolcy

	of reflect.Type // the object's

	// Of a field of a custom resource, name is its last step, and in is where it is.
	name string
	in   *structure
}

// Hint suggests what may be meant, such as ", did you mean replicas?", or "spec.containers[].image?" for spec.image. It
// returns "" if nothing is alike.
func (u *UnknownField) Hint() string {
	if u.of == nil {
		return u.inDefinition()
	}
	places, name := placesOf(u.of, u.Path)
	if len(places) == 0 {
		return ""
	}
	if path := elsewhere(places, name); path != "" {
		return fmt.Sprintf(", did you mean %s?", path)
	}
	return alike.Hint(name, fieldsOf(places[len(places)-1].t, make(map[string]reflect.Type), nil))
}

// Unknown returns the unknown fields of Check.
func Unknown(gvk schema.GroupVersionKind, text []byte) []UnknownField {
	unknown, _, _ := Check(gvk, text)
	return unknown
}

// Check returns the fields of an object that kube-apiserver drops, because its kind does not have them. Kinds have the fields
// of the newest release. It returns none for kinds without a type.
//
// The error is why kube-apiserver cannot decode the object. path is the field then, without the indices of lists; it is empty
// if it is not known.
func Check(gvk schema.GroupVersionKind, text []byte) (unknown []UnknownField, path string, err error) {
	k := kinds()[gvk]
	if k.recode == nil {
		return nil, "", nil
	}
	_, unknown, err = k.recode(text)
	if wrong, ok := mismatch(err); ok {
		return nil, wrong.Field, fmt.Errorf("%s: %s", wrong.Field, strictyaml.Mismatch(wrong))
	}
	return unknown, "", err
}

func mismatch(err error) (*json.UnmarshalTypeError, bool) {
	return errors.AsType[*json.UnmarshalTypeError](err)
}

// typed is the recode of a kind. It returns at most 100 unknown fields (sigs.k8s.io/json), as many as kube-apiserver warns of.
func typed[T any](text []byte) (recoded []byte, unknown []UnknownField, err error) {
	var object T
	faults, err := kjson.UnmarshalStrict(text, &object, kjson.DisallowUnknownFields)
	if err != nil {
		return nil, nil, err
	}
	for _, fault := range faults {
		if at, ok := fault.(kjson.FieldError); ok { //nolint:errorlint // UnmarshalStrict returns it as it is
			unknown = append(unknown, UnknownField{Path: at.FieldPath(), of: reflect.TypeFor[T]()})
		}
	}
	recoded, err = json.Marshal(&object)
	return recoded, unknown, err
}

// fieldsOf adds the fields of a struct by their names in JSON, and appends these to names.
func fieldsOf(t reflect.Type, into map[string]reflect.Type, names []string) []string {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct:
			names = fieldsOf(field.Type, into, names)
		case name != "" && name != "-":
			into[name], names = field.Type, append(names, name)
		}
	}
	return names
}
