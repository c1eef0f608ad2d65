package quantity

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/codec"
)

// CheckDecoded calls Check for all values that are decoded as a resource.Quantity if v is
// decoded as a T, and returns the first error.
func CheckDecoded[T any](v codec.Value) error { return check(v, reflect.TypeFor[T]()) }

var quantityType = reflect.TypeFor[resource.Quantity]()

func check(v codec.Value, t reflect.Type) (err error) {
	if t = element(t, reflect.Pointer); t == quantityType {
		return Check(v)
	}
	switch t.Kind() {
	case reflect.Struct:
		err = checkFields(v, fieldsOf(t))
	case reflect.Slice, reflect.Array:
		for _, e := range v.Elements() {
			if err = check(e, t.Elem()); err != nil {
				break
			}
		}
	case reflect.Map:
		for _, m := range v.Members() {
			if err = check(m, t.Elem()); err != nil {
				break
			}
		}
	}
	return err
}

// checkFields calls check for the given fields. Like encoding/json, it ignores the case
// of their names.
func checkFields(v codec.Value, fields []field) error {
	if len(fields) == 0 {
		return nil
	}
	for name, m := range v.Members() {
		for _, f := range fields {
			if !strings.EqualFold(f.name, name) {
				continue
			}
			if err := check(m, f.of); err != nil {
				return err
			}
		}
	}
	return nil
}

// A field is a field of a struct whose value may contain quantities.
type field struct {
	name string
	of   reflect.Type
}

var fieldsByType sync.Map // of []field by reflect.Type

func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldsByType.Load(t); ok {
		return known.([]field)
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() && !f.Anonymous || name == "-" || !hasQuantities(f.Type, nil):
		case f.Anonymous && name == "":
			fields = append(fields, fieldsOf(element(f.Type, reflect.Pointer))...)
		default:
			if name == "" {
				name = f.Name
			}
			fields = append(fields, field{name, f.Type})
		}
	}
	fieldsByType.Store(t, fields)
	return fields
}

// hasQuantities reports whether a value of type t can contain quantities. within are the
// types around t, so that recursive types end.
func hasQuantities(t reflect.Type, within []reflect.Type) bool {
	t = element(t, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map)
	switch {
	case t == quantityType:
		return true
	case t.Kind() != reflect.Struct || slices.Contains(within, t):
		return false
	}
	within = append(within, t)
	for i := range t.NumField() {
		if hasQuantities(t.Field(i).Type, within) {
			return true
		}
	}
	return false
}

// element returns the element type of a type of one of these kinds, at any depth.
func element(t reflect.Type, kinds ...reflect.Kind) reflect.Type {
	for slices.Contains(kinds, t.Kind()) {
		t = t.Elem()
	}
	return t
}
