package oracle_test

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
)

// odd returns an impossible name or value. A user may write it anywhere, because admission comes
// before validation. All are UTF-8, because API servers write only that.
func (g *generator) odd() string {
	return pick(g, "", ".", "..", "a/b", "/", "../../b", "%2F", "%", "a%b", "..%2f..", "UPPER", " ", "a b", "-a-", "\x00", "a\nb", "a\x7f",
		"é", "\u202e", "\ufffd", "?x=y#z", `\"`, "null", "0", "-1", "1e400", "=", "a in (", "a=b,a!=b", "[", "{}", "system:node:", "{{.}}",
		strings.Repeat("x", 254), strings.Repeat("é", 64), strings.Repeat("a.", 500))
}

// spoil puts odd values into a request: in place of any strings of the objects, of the name or of
// the namespace. The kind of the object stays, because without it there is no request.
func (g *generator) spoil(c *oracle.Case) {
	switch g.IntN(12) {
	case 0:
		if name := g.odd(); name != "" || c.Operation != admission.Connect { // in a connection, the name is part of the URL
			c.Name = name
		}
		return
	case 1:
		if c.Namespace != "" {
			c.Namespace = g.odd()
		}
		return
	}
	for _, object := range []runtime.Object{c.Object, c.OldObject} {
		if object == nil || c.OldObject != nil && g.in(3) {
			continue
		}
		var places []func(string)
		stringsIn(reflect.ValueOf(object), &places)
		for i := 0; len(places) > 0 && (i == 0 || g.in(2)); i++ {
			places[g.IntN(len(places))](g.odd())
		}
	}
}

// stringsIn returns functions that set the strings in a value given by pointer. It skips types that
// are only written as strings, such as quantities and times.
func stringsIn(v reflect.Value, places *[]func(string)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			stringsIn(v.Elem(), places)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Field(i).Type() != reflect.TypeFor[metav1.TypeMeta]() {
				stringsIn(v.Field(i), places)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			stringsIn(v.Index(i), places)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			value := v.MapIndex(key)
			if value.Kind() == reflect.Interface { // a custom resource
				stringsIn(value, places)
				continue
			}
			if value.Kind() == reflect.String {
				*places = append(*places, func(s string) { v.SetMapIndex(key, reflect.ValueOf(s).Convert(value.Type())) })
			}
			*places = append(*places, func(s string) {
				v.SetMapIndex(key, reflect.Value{})
				v.SetMapIndex(reflect.ValueOf(s).Convert(key.Type()), value)
			})
		}
	case reflect.String:
		if v.CanSet() {
			*places = append(*places, v.SetString)
		}
	}
}
