package admissiontest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// overwritten is the byte that CheckOwned overwrites bodies with, like the build tag
// poison. No request contains it, because it is not valid UTF-8.
const overwritten = "\xdb"

// CheckOwned fails the test if the result of keep contains strings or bytes that are
// views of the review. It releases the review and overwrites its body, and then checks
// everything that is reachable from the result, including unexported fields. With the
// build tag poison it also finds views of strings with escapes.
func CheckOwned(t testing.TB, body []byte, keep func(review *codec.Review) any) {
	t.Helper()
	review := codec.Acquire()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	result := keep(review)
	review.Release()
	for i := range body {
		body[i] = overwritten[0]
	}
	w := walk{seen: make(map[any]bool)}
	w.value("the value", reflect.ValueOf(result))
	for _, place := range w.views {
		t.Errorf("%s is a view of the review that was released, want a copy: use strings.Clone", place)
	}
}

// A walk finds slices and strings in released memory that are reachable from a value.
type walk struct {
	seen  map[any]bool // pointers and maps
	views []string     // the paths of the views found
}

func (w *walk) value(place string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if strings.Contains(v.String(), overwritten) {
			w.views = append(w.views, place)
		}
	case reflect.Pointer, reflect.Interface:
		if v.Kind() == reflect.Pointer && w.again(v) {
			return
		}
		if !v.IsNil() {
			w.value(place, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			w.value(place+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Map:
		if w.again(v) {
			return
		}
		for each := v.MapRange(); each.Next(); {
			w.value("a key of "+place, each.Key())
			w.value(fmt.Sprintf("%s[%v]", place, each.Key()), each.Value())
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if v.Kind() == reflect.Slice && strings.Contains(string(v.Bytes()), overwritten) {
				w.views = append(w.views, place)
			}
			return
		}
		for i := range v.Len() {
			w.value(fmt.Sprintf("%s[%d]", place, i), v.Index(i))
		}
	}
}

// again reports whether the walk has visited a pointer or map before.
func (w *walk) again(v reflect.Value) bool {
	at := [2]any{v.Type(), v.Pointer()}
	was := w.seen[at]
	w.seen[at] = true
	return was
}
