package defaults

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
)

// gadgets returns a CustomResourceDefinition with properties.
func gadgets(t *testing.T, properties string) []byte {
	t.Helper()
	text, err := yaml.YAMLToJSON(fmt.Appendf(nil, "{spec: {group: example.com, names: {kind: Gadget}, versions: [{name: v1, schema: "+
		"{openAPIV3Schema: {properties: %s}}}, {name: v2}]}}", properties))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDefine(t *testing.T) {
	f := func(properties, text, want string) {
		t.Helper()
		d := New(admission.Newest())
		if err := d.Define(gadgets(t, properties)); err != nil {
			t.Fatal(err)
		}
		before, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Apply(parse("example.com/v1 Gadget"), before)
		if err != nil || string(got) != want {
			t.Errorf("%s %s: got %s, %v, want %s", properties, text, got, err, want)
		}
		if got, err := d.Apply(parse("example.com/v2 Gadget"), before); err != nil || string(got) != string(before) {
			t.Errorf("v2 of %s: got %s, %v, want it unchanged", text, got, err)
		}
	}
	f("{a: {default: 1}}", "{}", `{"a":1}`)
	f("{a: {default: 1}}", "{a: 2}", `{"a":2}`)
	f("{a: {default: 1}}", "{a: null}", `{"a":1}`)
	f("{a: {default: 1, nullable: true}}", "{a: null}", `{"a":null}`)
	f("{spec: {properties: {a: {default: 1}}}}", "{}", `{}`)
	f("{spec: {default: {}, properties: {a: {default: 1}}}}", "{}", `{"spec":{"a":1}}`)
	f("{l: {items: {properties: {a: {default: x}}}}}", "{l: [{}, {a: z}, 1]}", `{"l":[{"a":"x"},{"a":"z"},1]}`)
	f("{m: {additionalProperties: {properties: {a: {default: [1]}}}}}", "{m: {k: {}}}", `{"m":{"k":{"a":[1]}}}`)
	f("{m: {additionalProperties: true}, r: {default: 0.5}}", "{m: {k: {}}}", `{"m":{"k":{}},"r":0.5}`)
	f("{a: {type: string}}", "{b: 1}", `{"b":1}`)
	f("{spec: {properties: {a: {default: 1}}}}", "{spec: []}", `{"spec":[]}`)
}

func TestDefineFails(t *testing.T) {
	if err := New(admission.Newest()).Define([]byte(`{"spec":1}`)); err == nil {
		t.Error("got no error for a CustomResourceDefinition that is none")
	}
	// A long list of objects in each of which a large default is set.
	d := New(admission.Newest())
	if err := d.Define(gadgets(t, "{l: {items: {properties: {a: {default: '"+strings.Repeat("x", 1000)+"'}}}}}")); err != nil {
		t.Fatal(err)
	}
	list := func(n int) []byte { return []byte(`{"l":[` + strings.Repeat("{},", n) + `{}]}`) }
	gadget := parse("example.com/v1 Gadget")
	if got, err := d.Apply(gadget, list(100)); err != nil || len(got) < 100_000 {
		t.Errorf("got %d bytes, %v, want the defaults of all elements", len(got), err)
	}
	if got, err := d.Apply(gadget, list(10_000)); err == nil || !strings.Contains(err.Error(), "more than 8 MiB of defaults") {
		t.Errorf("got %d bytes, %v, want an error", len(got), err)
	}
}
