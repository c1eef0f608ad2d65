package patching

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

var update = flag.Bool("update", false, "write types.txt.gz")

// TestTypes compares types.txt.gz with the Go types of k8s.io/api that the module requires. With
// -update it writes the file.
func TestTypes(t *testing.T) {
	w := &typesWriter{t: t, numbers: make(map[reflect.Type]int)}
	all := scheme.Scheme.AllKnownTypes()
	var kinds []schema.GroupVersionKind
	for gvk, of := range all {
		if !strings.Contains(of.PkgPath(), "apimachinery") && !strings.HasSuffix(gvk.Kind, "List") && gvk.Version != "__internal" {
			kinds = append(kinds, gvk)
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	var lines []string
	for _, gvk := range kinds {
		lines = append(lines, fmt.Sprintf("kind %s/%s/%s %d\n", gvk.Group, gvk.Version, gvk.Kind, w.number(all[gvk])))
	}
	text := strings.Join(append(w.structs, lines...), "")
	if *update {
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if _, err := io.WriteString(z, text); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("types.txt.gz", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	r, err := gzip.NewReader(bytes.NewReader(typesText))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != text {
		t.Errorf("types.txt.gz is not that of k8s.io/api (%v); go test -run TestTypes -update writes it", err)
	}
	if got := len(types()); got != len(kinds) || got < 100 {
		t.Errorf("got %d kinds, want the %d of Kubernetes", got, len(kinds))
	}
}

// typesWriter collects the lines of structs.
type typesWriter struct {
	t       *testing.T
	numbers map[reflect.Type]int
	structs []string
}

func (w *typesWriter) number(of reflect.Type) int {
	n, known := w.numbers[of]
	if !known {
		n = len(w.structs)
		w.numbers[of] = n
		w.structs = append(w.structs, "")
		w.structs[n] = "struct" + w.fields(of) + "\n"
	}
	return n
}

func (w *typesWriter) fields(of reflect.Type) (text string) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.Anonymous {
			if f.Type.Kind() != reflect.Struct {
				w.t.Fatalf("%s has the embedded field %s, want a struct", of, f.Name)
			}
			text += w.fields(f.Type)
			continue
		}
		if name == "" || name == "-" || !f.IsExported() {
			if name != "-" {
				w.t.Fatalf("%s.%s has no name in JSON", of, f.Name)
			}
			continue
		}
		encoded, omit := w.form(f.Type), ""
		canBeEmpty := strings.ContainsRune("*[{bnsy", rune(encoded[0])) || f.Type.Kind() == reflect.Slice
		switch all := strings.Split(options, ","); {
		case slices.Contains(all, "omitzero") && encoded != "t":
			w.t.Fatalf("%s.%s has the option omitzero, which only times have", of, f.Name)
		case slices.Contains(all, "omitzero"):
			omit = "z"
		case slices.Contains(all, "omitempty") && canBeEmpty:
			omit = "e"
		}
		text += " " + name + ":" + omit + ":" + encoded
	}
	return text
}

func (w *typesWriter) form(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return string(isTime)
	case reflect.TypeFor[resource.Quantity]():
		return string(isQuantity)
	case reflect.TypeFor[intstr.IntOrString]():
		return string(isIntOrString)
	case reflect.TypeFor[metav1.Duration]():
		return string(isDuration)
	}
	if of.Kind() == reflect.Pointer {
		return string(isPointer) + w.form(of.Elem())
	}
	if of.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(of).Implements(reflect.TypeFor[json.Marshaler]()) {
		return string(isRaw)
	}
	switch of.Kind() {
	case reflect.Struct:
		return fmt.Sprint(string(isStruct), w.number(of))
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return string(isBytes)
		}
		return string(isList) + w.form(of.Elem())
	case reflect.Map:
		return string(isMap) + w.form(of.Elem())
	case reflect.Bool:
		return string(isBool)
	case reflect.String:
		return string(isString)
	case reflect.Int32, reflect.Int64: // Schema relies on it that there is no float
		return string(isNumber)
	}
	w.t.Fatalf("got a field of type %s, want one that has a form", of)
	return ""
}
