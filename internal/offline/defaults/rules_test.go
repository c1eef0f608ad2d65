package defaults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
)

// TestRules evaluates the CEL rules of a definition for objects that are created and updated.
func TestRules(t *testing.T) {
	f := func(spec, object, old, want string) {
		t.Helper()
		text := func(spec string) []byte {
			if spec == "" {
				return nil
			}
			text, err := yaml.YAMLToJSON([]byte("metadata: {name: a}\nspec: " + spec))
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		d, got := New(admission.Newest()), ""
		definition := strings.Replace(string(gadgets(t, "{spec: "+spec+"}")), `"properties"`, `"type":"object","properties"`, 1)
		if err := d.Define([]byte(definition)); err != nil {
			t.Fatal(err)
		}
		if refusal := d.Validate(parse("example.com/v1 Gadget"), text(object), text(old)); refusal != nil {
			got = refusal.Path + " | " + refusal.Message
		}
		if got != want {
			t.Errorf("%s %s, before %s:\ngot  %s\nwant %s", spec, object, old, got, want)
		}
	}
	const sizes = `{type: object, properties: {size: {type: integer, maximum: 9}, mode: {type: string, enum: [a, b]}},
x-kubernetes-validations: [{rule: 'self.size < 5', message: too large, fieldPath: .size}, {rule: 'self.size >= oldSelf.size'}]}`
	f(sizes, "{size: 4}", "", "")
	f(sizes, "{size: 7}", "", `spec.size | spec.size: Invalid value: too large`)
	f(sizes, "{size: 10}", "", `spec.size | spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9; `+
		`spec.size: Invalid value: too large`)
	f(sizes, "{size: 7, mode: c}", "", `spec.mode | spec.mode: Unsupported value: "c": supported values: "a", "b"; `+
		unchecked)
	f(sizes, "{size: 3}", "{size: 2}", "")
	f(sizes, "{size: 1}", "{size: 2}", `spec | spec: Invalid value: failed rule: self.size >= oldSelf.size`)
	f(sizes, "{size: 7, mode: a}", "{size: 7, mode: a}", "") // it does not change
	f(sizes, "{size: 7, mode: a}", "{size: 7, mode: b}", `spec.size | spec.size: Invalid value: too large`)
	const wrong = `spec: Invalid value: "object": invalid data, expected int, got string evaluating rule: `
	f(sizes, "{size: x}", "{size: x, mode: a}", "spec | "+wrong+"too large; "+wrong+"self.size >= oldSelf.size")
	f(sizes, "{size: 4, mode: c}", "{size: 3, mode: c}", "")

	const keyed = `{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name],
properties: {name: {type: string}, size: {type: integer, x-kubernetes-validations: [{rule: 'self >= oldSelf'}]}}}}`
	f(keyed, "[{name: b, size: 2}, {name: a, size: 2}]", "[{name: a, size: 1}, {name: b, size: 3}]",
		`spec[0].size | spec[0].size: Invalid value: 2: failed rule: self >= oldSelf`)
	f(keyed, "[{name: b}, {name: b}]", "[{name: a}, {name: a}]", "") // there were duplicates before
	f(keyed, "[{name: b, size: 5}]", "[{name: a}, {name: b, size: 5}]", "")
	f(keyed, "[{name: b, size: x}]", "[{name: a}, {name: b, size: y}]", `spec[0].size | spec[0].size: Invalid value: "string": `+
		`spec[0].size in body must be of type integer: "string"; `+unchecked)

	f("{type: object, x-kubernetes-validations: [{rule: 'self.nothing'}]}", "{}", "", `spec | spec: Invalid value: "object": `+
		"rule compile error: compilation failed: ERROR: <input>:1:5: undefined field 'nothing'\n | self.nothing\n | ....^")
	f("{x-kubernetes-validations: [{rule: 'false'}]}", "{}", "", "") // kube-apiserver refuses a schema without a type
}

// TestRulesHostile has rules of somebody who wants the review to take long.
func TestRulesHostile(t *testing.T) {
	f := func(rule string, count int, want string, before func(d *Defaults)) {
		t.Helper()
		d := New(admission.Newest())
		rules := strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"rule":%q},`, rule), count), ",")
		err := d.Define([]byte(`{"spec":{"group":"example.com","names":{"kind":"Gadget"},"versions":[{"name":"v1","schema":` +
			`{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[` + rules + `]}}}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		before(d)
		got := "<nil>"
		if refusal := d.Validate(parse("example.com/v1 Gadget"), []byte(`{"a":"x"}`), nil); refusal != nil {
			got = refusal.Message
		}
		if !strings.Contains(got, want) {
			t.Errorf("%.200s: got %.300s, want %s", rule, got, want)
		}
	}
	nothing := func(*Defaults) {}
	f("self.a == 'x'", 3, "<nil>", nothing)
	f("self.a == 'x'", rulesMax+1, "more than 3000 rules", nothing)
	f("self.a == 'x'", 1, "take longer than 20s", func(d *Defaults) { d.spent.time = rulesTimeMax })
	f("['"+strings.Repeat("x", 100)+"']"+strings.Repeat(".map(x, x+x)", 40)+".all(x, x.size() > 0)", 1, "cost limit exceeded", nothing)
	// Each step doubles what a comparison visits, and no cost is counted for it. It goes on for some seconds, beside other tests.
	doubled := "[self.a]" + strings.Repeat(".map(x, dyn([x, x]))", 24) + ".all(x, x == x)"
	f(doubled, 1, "take longer than 20s", func(d *Defaults) { d.spent.time = rulesTimeMax - 10*time.Millisecond })
}

// TestRulesPanic requires that a panic of an evaluation is an error of the object.
func TestRulesPanic(t *testing.T) {
	err := New(admission.Newest()).spent.inTime(func(context.Context) error { panic("no") })
	if err == nil || !strings.Contains(err.Error(), "cannot be evaluated: no") {
		t.Errorf("got %v", err)
	}
}
