package defaults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
)

// defined returns the defaults with a CustomResourceDefinition of Gadgets. spec is the schema of their spec.
func defined(t *testing.T, spec string) *Defaults {
	t.Helper()
	d := New(admission.Newest())
	definition := gadgets(t, "{spec: "+spec+"}")
	if err := d.Define(definition); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestUnknownOfCustom(t *testing.T) {
	f := func(spec, text string, want ...string) {
		t.Helper()
		object, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		unknown, path, err := defined(t, spec).Check(parse("example.com/v1 Gadget"), object)
		var got []string
		for _, u := range unknown {
			got = append(got, u.Path+u.Hint())
		}
		if err != nil {
			got = append(got, path+": "+err.Error())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s %s: got %q, want %q", spec, text, got, want)
		}
	}
	const size = "{properties: {size: {type: integer}, metadata: {type: object}}}"
	f(size, "{apiVersion: a, kind: b, metadata: {name: a}, spec: {size: 1, metadata: {}}}")
	f(size, "{spec: {sise: 1, owner: me}}", "spec.owner", "spec.sise, did you mean size?")
	f(size, "{size: 1, name: a, sepc: {}, x: {}}", "name, did you mean metadata.name?", "sepc, did you mean spec?",
		"size, did you mean spec.size?", "x")
	f(size, "{metadata: {lables: {}}}", "metadata.lables, did you mean labels?")
	f(size, "{metadata: {labels: {a: 1}}}", "metadata.labels: metadata.labels: got a number, want a string: write it in quotation marks")
	f(size, "{spec: {kind: a, metadata: {x: 1}}}", "spec.kind", "spec.metadata.x")
	f("{x-kubernetes-preserve-unknown-fields: true, properties: {a: {properties: {b: {}}}}}", "{spec: {x: {z: 1}, a: {x: 1}}}",
		"spec.a.x, did you mean b?")
	f("{additionalProperties: {properties: {a: {}}}}", "{spec: {x: {a: 1, b: 1}}}", "spec.x.b, did you mean a?")
	f("{additionalProperties: true}", "{spec: {x: 1}}")
	f("{items: {properties: {a: {}}}}", "{spec: [{}, {bb: 1}]}", "spec[1].bb")
	f("{x-kubernetes-embedded-resource: true}", "{spec: {apiVersion: v1, kind: Pod, metadata: {nam: a}, spec: {}}}",
		"spec.metadata.nam", "spec.spec")
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "x%d: 1, ", i)
	}
	object, _ := yaml.YAMLToJSON([]byte("{spec: {" + many.String() + "}}"))
	if unknown, _, _ := defined(t, size).Check(parse("example.com/v1 Gadget"), object); len(unknown) != 100 {
		t.Errorf("got %d of 1000 unknown fields, want 100", len(unknown))
	}
	// A definition that lets unknown fields be.
	d := New(admission.Newest())
	text := strings.Replace(string(gadgets(t, "{spec: {}}")), `"spec":{"group"`, `"spec":{"preserveUnknownFields":true,"group"`, 1)
	if err := d.Define([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if unknown, _, _ := d.Check(parse("example.com/v1 Gadget"), []byte(`{"x":1}`)); len(unknown) > 0 {
		t.Errorf("got %v, want no unknown fields with preserveUnknownFields", unknown)
	}
}

func TestValidate(t *testing.T) {
	f := func(spec, value string, want string) {
		t.Helper()
		object, err := yaml.YAMLToJSON([]byte("{spec: " + value + "}"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if refusal := defined(t, spec).Validate(parse("example.com/v1 Gadget"), object, nil); refusal != nil {
			got = refusal.Path + " | " + refusal.Message
		}
		if got != want {
			t.Errorf("%s %s: got %q, want %q", spec, value, got, want)
		}
	}
	f("{type: integer}", "1", "")
	f("{type: integer}", "1.0", "")
	f("{type: integer}", "x", `spec | spec: Invalid value: "string": spec in body must be of type integer: "string"`)
	f("{type: integer}", "null", "") // it is dropped
	f("{type: integer, nullable: true}", "null", "")
	f("{type: array, items: {type: integer}}", "[null]",
		`spec[0] | spec[0]: Invalid value: "null": spec[0] in body must be of type integer: "null"`)
	f("{x-kubernetes-int-or-string: true, pattern: '^[0-9]+$'}", "5", "")
	f("{x-kubernetes-int-or-string: true, pattern: '^[0-9]+$'}", "'5'", "")
	f("{x-kubernetes-int-or-string: true}", "1.5",
		`spec | spec: Invalid value: "number": spec in body must be of type integer,string: "number"`)
	f("{required: [a]}", "{}", "spec | spec.a: Required value")
	f("{required: [a], properties: {a: {type: string, default: x}}}", "{}", "")
	f("{type: string, enum: [a, b]}", "c", `spec | spec: Unsupported value: "c": supported values: "a", "b"`)
	f("{type: string, pattern: '^a'}", "ba", `spec | spec: Invalid value: "ba": spec in body should match '^a'`)
	f("{type: string, maxLength: 1}", "ab", "spec | spec: Too long: may not be more than 1 byte")
	f("{type: array, maxItems: 1}", "[1, 2]", "spec | spec: Too many: 2: must have at most 1 item")
	f("{type: string, format: date}", "x", `spec | spec: Invalid value: "x": spec in body must be of type date: "x"`)
	f("{type: string, format: nothing}", "x", "")
	f("{type: array, x-kubernetes-list-type: set}", "[a, b, a, a]", `spec[2] | spec[2]: Duplicate value: "a"`)
	f("{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a], items: {properties: {a: {}}}}",
		"[{a: 1}, {a: 1, b: 1}]", `spec[1] | spec[1]: Duplicate value: {"a":1}`)
	f("{x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}", "{apiVersion: v1, metadata: {name: a/b}}",
		`spec | spec.kind: Required value; spec.metadata.name: Invalid value: "a/b": may not contain '/'`)
	f("{anyOf: [{required: [a]}, {required: [b]}]}", "{}",
		`spec | spec: Invalid value: "": "spec" must validate at least one schema (anyOf)`)
	f("{type: object}", "{x: 1}", "") // it is dropped
	long := strings.Repeat("x", 100_000)
	d := defined(t, "{type: string, enum: [a]}")
	if refusal := d.Validate(parse("example.com/v1 Gadget"), []byte(`{"spec":"`+long+`"}`), nil); len(refusal.Message) > 500 {
		t.Errorf("got a message of %d bytes, want a short one", len(refusal.Message))
	}
	// Before an UPDATE it had one of the faults.
	d = defined(t, "{properties: {a: {type: integer}, b: {type: integer}}}")
	const was = `{"spec":{"a":"x","b":1}}`
	if refusal := d.Validate(parse("example.com/v1 Gadget"), []byte(was), []byte(was)); refusal != nil {
		t.Errorf("got %v for an object that does not change", refusal)
	}
	refusal := d.Validate(parse("example.com/v1 Gadget"), []byte(`{"spec":{"a":"x","b":"x"}}`), []byte(was))
	if refusal == nil || refusal.Path != "spec.b" || strings.Contains(refusal.Message, "spec.a") {
		t.Errorf("got %v, want the fault of spec.b only", refusal)
	}
}

// TestValidateIgnoresStatus has a status that kube-apiserver drops when it creates the object.
func TestValidateIgnoresStatus(t *testing.T) {
	f := func(subresources string, want bool) {
		t.Helper()
		d := New(admission.Newest())
		definition := string(gadgets(t, "{status: {type: integer}}"))
		if err := d.Define([]byte(strings.Replace(definition, `"name":"v1",`, `"name":"v1",`+subresources, 1))); err != nil {
			t.Fatal(err)
		}
		if got := d.Validate(parse("example.com/v1 Gadget"), []byte(`{"status":"x"}`), nil) != nil; got != want {
			t.Errorf("%q: got refused %t, want %t", subresources, got, want)
		}
	}
	f("", true)
	f(`"subresources":{"status":{}},`, false)
}

// TestValidateHostile has definitions and objects of somebody who wants the review to take long. Without bounds, they take hours, or
// all memory.
func TestValidateHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	repeat := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			if strings.Contains(format, "%") {
				fmt.Fprintf(&b, format, i)
			} else {
				b.WriteString(format)
			}
		}
		return b.String()
	}
	nested := func(n int, before, inner, after string) string {
		return strings.Repeat(before, n) + inner + strings.Repeat(after, n)
	}
	f := func(name, spec, value, want string) {
		t.Helper()
		d := New(admission.Newest())
		err := d.Define([]byte(`{"spec":{"group":"example.com","names":{"kind":"Gadget"},"versions":[{"name":"v1",` +
			`"schema":{"openAPIV3Schema":{"properties":{"spec":` + spec + `}}}}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		object := []byte(`{"spec":` + value + `}`)
		gadget := parse("example.com/v1 Gadget")
		unknown, _, _ := d.Check(gadget, object)
		for i := range unknown {
			unknown[i].Hint()
		}
		got := "<nil>"
		if refusal := d.Validate(gadget, object, nil); refusal != nil {
			got = refusal.Message
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %.200s, want %s", name, got, want)
		}
	}
	const tooMuch = "cannot be checked within seconds"
	list := func(n int, element string) string { return "[" + repeat(n, element) + "]" }
	f("properties", `{"items":{"properties":{`+repeat(10_000, `"p%d":{"type":"integer"}`)+`}}}`, list(100_000, `{}`), "<nil>")
	f("unknown", `{"properties":{`+repeat(10_000, `"property%d":{}`)+`}}`, `{`+repeat(10_000, `"propertie%d":1`)+`}`, "<nil>")
	f("required", `{"items":{"required":[`+repeat(10_000, `"p%d"`)+`]}}`, list(10_000, `{}`), "and 90 more")
	f("deep", nested(1000, `{"type":"object","properties":{"a":`, `{"type":"integer"}`, `}}`), nested(1000, `{"a":`, `"x"`,
		`}`), "spec.a.a.a")
	f("deep list", nested(1000, `{"x-kubernetes-list-type":"set","items":`, `{"x-kubernetes-list-type":"set"}`, `}`),
		nested(1000, `[`, list(10_000, "1"), `]`), tooMuch)
	f("enum", `{"items":{"enum":[`+repeat(100_000, `"p%d"`)+`]}}`, list(100_000, `"x"`), tooMuch)
	f("nested enum", `{"items":{"not":{"enum":[`+repeat(100_000, `{"a":"p%d"}`)+`]}}}`, list(100_000, `{"a":"x"}`), tooMuch)
	f("anyOf", `{"items":{"anyOf":[`+repeat(10_000, `{"type":"integer"}`)+`]}}`, list(100_000, `"x"`), tooMuch)
	f("small object", `{"items":{"anyOf":[`+repeat(100_000, `{"type":"integer"}`)+`]}}`, list(1000, `"x"`), tooMuch)
	f("oneOf", nested(301, `{"oneOf":[{},`, `{}`, `]}`), list(100, `{}`), "oneOf")
	f("pattern", `{"items":{"not":{"pattern":"^(`+strings.Repeat("a?", 30)+`){30}$"}}}`,
		list(1000, `"`+strings.Repeat("a", 10_000)+`"`), tooMuch)
	f("large pattern", `{"anyOf":[`+repeat(1000, `{"pattern":"%d(`+strings.Repeat("abcdefghij", 300)+`){900}"}`)+`]}`, `"a"`, "patterns")
	f("many patterns", `{"anyOf":[`+repeat(100_000, `{"pattern":"a%d"}`)+`]}`, `"a"`, tooMuch)
	f("faults", `{"items":{"allOf":[{"type":"integer"},{"type":"boolean"}]}}`, list(100_000, `"x"`), "and 90 more")
	f("default", `{"items":{"properties":{"a":{"default":"`+strings.Repeat("x", 10_000)+`"}}}}`, list(10_000, `{}`), "8 MiB of defaults")
}

// TestValidateManyHostile has many small objects, each of which needs much work. What they need beyond their size is bounded together.
func TestValidateManyHostile(t *testing.T) {
	d := New(admission.Newest())
	properties := `"a":{"anyOf":[` + strings.Repeat(`{"type":"integer"},`, 1000) + `{"type":"string"}]}`
	err := d.Define([]byte(`{"spec":{"group":"example.com","names":{"kind":"Gadget"},"versions":[{"name":"v1",` +
		`"schema":{"openAPIV3Schema":{"properties":{` + properties + `}}}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	f := func(object, want string) {
		t.Helper()
		got := "<nil>"
		if refusal := d.Validate(parse("example.com/v1 Gadget"), []byte(object), nil); refusal != nil {
			got = refusal.Message
		}
		if !strings.Contains(got, want) {
			t.Errorf("%.100s: got %s, want %s", object, got, want)
		}
	}
	const small = `{"a":"x"}`
	f(small, "<nil>")
	d.workShared.Store(1_500_000)
	f(small, "<nil>")
	f(small, "cannot be checked within seconds")
	f(small, "cannot be checked within seconds")
	f(`{"a":"x","metadata":{"name":"`+strings.Repeat("x", 5000)+`"}}`, "<nil>") // its size is enough
}
