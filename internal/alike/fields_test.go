package alike

import (
	"reflect"
	"slices"
	"testing"
)

type embedded struct {
	Names []string `json:"names"`
}

type inner struct {
	Image   string `json:"image"`
	skipped string //nolint:unused // it has no name in JSON
}

type spec struct {
	embedded `json:",inline"`

	Inner  []inner          `json:"inner"`
	ByName map[string]inner `json:"byName,omitempty"`
	Other  *inner           `json:"other,omitempty"`
	Not    string           `json:"-"`
}

type object struct {
	Spec spec `json:"spec"`
}

func TestFields(t *testing.T) {
	names, types := Fields(reflect.TypeFor[spec]())
	if want := []string{"names", "inner", "byName", "other"}; !slices.Equal(names, want) || len(types) != len(want) {
		t.Errorf("got %q with %d types, want %q", names, len(types), want)
	}
	if types["names"] != reflect.TypeFor[[]string]() || types["other"] != reflect.TypeFor[*inner]() {
		t.Errorf("got %v", types)
	}
}

// TestUnmarshalStrict decodes what has unknown fields in each kind of a value.
func TestUnmarshalStrict(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		faults, err := UnmarshalStrict([]byte(text), new(object))
		var got []string
		for _, fault := range faults {
			got = append(got, fault.Error())
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v\nwant %q", text, got, err, want)
		}
	}
	f(`{"spec":{"names":["a"],"inner":[{"image":"a"}],"byName":{"x.y":{"image":"b"}}}}`)
	f(`{"spce":1}`, `unknown field "spce", did you mean spec?`)
	f(`{"Spec":{}}`, `unknown field "Spec", did you mean spec?`)
	f(`{"spec":{"name":[]}}`, `unknown field "spec.name", did you mean names?`)
	f(`{"spec":{"inner":[{},{"imag":"a"}]}}`, `unknown field "spec.inner[1].imag", did you mean image?`)
	f(`{"spec":{"byName":{"x":{"imag":"a"}}}}`, `unknown field "spec.byName.x.imag", did you mean image?`)
	f(`{"spec":{"image":"a"}}`, `unknown field "spec.image", did you mean spec.inner[].image?`)
	f(`{"spec":{"unlike":1}}`, `unknown field "spec.unlike", want one of names, inner, byName, other`)
	f(`{"spec":{"other":{"image":"a","image":"b"}}}`, `duplicate field "spec.other.image"`)

	if _, err := UnmarshalStrict([]byte(`{"spec":`), new(object)); err == nil {
		t.Error("got no error of a part of a document")
	}
}
