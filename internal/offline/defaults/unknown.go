package defaults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	return alike.FieldHint(u.of, u.Path)
}

// Unknown returns the unknown fields of Check.
func Unknown(gvk schema.GroupVersionKind, text []byte) []UnknownField {
	unknown, _, _ := Check(gvk, text)
	return unknown
}

// Check returns the fields of an object that kube-apiserver drops, because its kind does not have them. Kinds have the fields
// of the newest release. It returns none for kinds without a type.
//
// The error is why kube-apiserver cannot decode the object. path is the field then; it is empty if it is not known.
func Check(gvk schema.GroupVersionKind, text []byte) (unknown []UnknownField, path string, err error) {
	k := kinds()[gvk]
	if k.recode == nil {
		return nil, "", nil
	}
	_, unknown, err = k.recode(text)
	if value, ok := errors.AsType[*valueError](err); ok {
		return nil, value.path, value
	}
	if wrong, ok := mismatch(err); ok {
		path, text := strictyaml.Mismatch(wrong)
		return nil, path, fmt.Errorf("%s: %s", path, text)
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
		var value any
		isRead := decode(text, &value) == nil
		if wrong, isType := mismatch(err); isType && wrong.Field != "" {
			field, _ := strictyaml.Mismatch(wrong)
			if path := mistyped(reflect.TypeFor[T](), value, field); path != "" {
				own := *wrong
				own.Field, err = path, &own
			}
			return nil, nil, err
		}
		if isRead { // the decoder of a quantity, and that of a time, name no field
			if fault := undecodable(reflect.TypeFor[T](), value); fault != nil {
				err = fault
			}
		}
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

// mistyped returns the path of the first value of a wrong type in a field that a decoder names without the indices of lists, with
// them; "" if there is none. value is what is decoded into a t.
func mistyped(t reflect.Type, value any, field string) (found string) {
	search(t, value, "", func(t reflect.Type, value any, path string) (isFound, descends bool) {
		_, isList := value.([]any)
		switch plain := indices.ReplaceAllString(path, ""); {
		case value == nil || !strings.HasPrefix(field, plain):
			return false, false
		case isList && t.Kind() == reflect.Slice: // an element may be of a wrong type
		case plain == field && !decodes(t, value):
			found = path
			return true, false
		}
		return false, true
	})
	return found
}

// decodes reports whether a value can be decoded into a t.
func decodes(t reflect.Type, value any) bool {
	text, err := json.Marshal(value)
	return err != nil || decode(text, reflect.New(t).Interface()) == nil
}

// pathMax is how long the path of a value may be that search visits: names of labels and properties can be long, and each path is made
// for all that is below it.
const pathMax = 10_000

// search visits a value, which is decoded into a t, and the values in it, by the order of the names, until visit finds one. descends
// is false if it need not visit what is in the value. It reports whether one is found.
func search(t reflect.Type, value any, path string, visit func(t reflect.Type, value any, path string) (isFound, descends bool)) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(path) > pathMax {
		return false
	}
	if isFound, descends := visit(t, value, path); isFound || !descends {
		return isFound
	}
	switch value := value.(type) {
	case []any:
		for i := 0; i < len(value) && t.Kind() == reflect.Slice; i++ {
			if search(t.Elem(), value[i], fmt.Sprintf("%s[%d]", path, i), visit) {
				return true
			}
		}
	case map[string]any:
		var fields map[string]reflect.Type
		if t.Kind() == reflect.Struct {
			_, fields = alike.Fields(t)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			of := fields[name]
			if t.Kind() == reflect.Map {
				of = t.Elem()
			}
			if of != nil && search(of, value[name], strings.TrimPrefix(path+"."+name, "."), visit) {
				return true
			}
		}
	}
	return false
}

// indices are those of lists in a path.
var indices = regexp.MustCompile(`\[\d+\]`)

// A valueError means that the decoder of its own type refuses a value.
type valueError struct {
	path string
	got  []byte
	of   reflect.Type
}

func (e *valueError) Error() string {
	return fmt.Sprintf("%s: got %s, want %s", e.path, e.got, wantedOf[e.of])
}

// undecodable returns an error for the first value that the decoder of its own type refuses, nil if there is none. value is what is
// decoded into a t.
func undecodable(t reflect.Type, value any) (fault *valueError) {
	search(t, value, "", func(t reflect.Type, value any, path string) (isFound, descends bool) {
		if _, isOwn := wantedOf[t]; !isOwn {
			return false, true
		}
		if value == nil || decodes(t, value) {
			return false, false
		}
		text, _ := json.Marshal(value) // it comes from JSON
		if t == reflect.TypeFor[[]byte]() {
			text = []byte("another text") // which may be secret
		}
		fault = &valueError{path, strictyaml.Shortened(text), t}
		return true, false
	})
	return fault
}

// wantedOf is what is allowed for the types of Kubernetes with a decoder of their own.
var wantedOf = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():  "a quantity such as 500m, 2 or 1Gi",
	reflect.TypeFor[metav1.Time]():        "a time such as 2006-01-02T15:04:05Z",
	reflect.TypeFor[metav1.MicroTime]():   "a time such as 2006-01-02T15:04:05.000000Z",
	reflect.TypeFor[metav1.Duration]():    "a duration such as 1m30s",
	reflect.TypeFor[intstr.IntOrString](): "a number or a string",
	reflect.TypeFor[[]byte]():             "base64; stringData of a Secret takes plain text",
}
