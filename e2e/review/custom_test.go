package review

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/offline/defaults"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// inMaps finds keys of maps as package field writes them in some paths, and as a member in others.
var inMaps = regexp.MustCompile(`\[([a-zA-Z]+)\]`)

// random makes schemas and values that fit each other now and then.
type random struct{ *rand.Rand }

func (r random) maybe(n int) bool { return r.IntN(n) == 0 }

func (r random) of(all ...any) any { return all[r.IntN(len(all))] }

func (r random) value(depth int) any {
	if depth == 0 || r.maybe(3) {
		return r.of(nil, true, int64(0), int64(3), int64(1)<<40, 1.5, 2.0, "", "a",
			"abc", "10.0.0.1", "2020-01-01", "v1", "ConfigMap", "x y")
	}
	if r.maybe(3) {
		list := make([]any, r.IntN(4))
		for i := range list {
			list[i] = r.value(depth - 1)
		}
		return list
	}
	object := make(map[string]any)
	for range r.IntN(5) {
		object[r.of("a", "b", "c", "other", "apiVersion", "kind", "metadata").(string)] = r.value(depth - 1)
	}
	if r.maybe(3) {
		object["apiVersion"], object["kind"] = r.of("v1", "a/b", "a/b/c", int64(1)), r.of("ConfigMap", "b_c")
		object["metadata"] = r.of(map[string]any{"name": "a"}, map[string]any{"name": "a/b"},
			map[string]any{"labels": map[string]any{"a": "b c"}},
			map[string]any{"lables": "a"}, "a")
	}
	return object
}

// fit makes a value of the type that a schema wants, most of the time.
func (r random) fit(s map[string]any) any {
	if r.maybe(15) {
		return r.value(2)
	}
	switch s["type"] {
	case "string":
		return r.of("", "a", "ab", "abc", "10.0.0.1", "2020-01-01")
	case "integer":
		return r.of(int64(0), int64(1), int64(2), int64(3), 2.0)
	case "number":
		return r.of(int64(1), 0.5, 1.5, int64(3))
	case "boolean":
		return r.maybe(2)
	case "array":
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = r.fit(s["items"].(map[string]any))
		}
		return list
	case "object":
		object := make(map[string]any)
		if s["x-kubernetes-embedded-resource"] != nil {
			object["apiVersion"], object["kind"], object["metadata"] = "v1", "ConfigMap", map[string]any{"name": "a"}
		}
		properties, _ := s["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			object[name] = r.fit(properties[name].(map[string]any))
		}
		if others, ok := s["additionalProperties"].(map[string]any); ok && r.maybe(2) {
			object["other"] = r.fit(others)
		}
		return object
	}
	return r.of(int64(1), "a", "abc")
}

// rules are those of a value, without its structure.
func (r random) rules(s map[string]any) map[string]any {
	for _, rule := range []struct {
		name   string
		values []any
	}{
		{"enum", []any{[]any{"a", int64(3)}, []any{1.5, nil}, []any{map[string]any{}, "abc"}}},
		{"pattern", []any{"^a", "b$", "^[a-z]{2,3}$"}},
		{"minimum", []any{int64(1), 0.5}},
		{"maximum", []any{int64(3), 1.2}},
		{"exclusiveMaximum", []any{true}},
		{"multipleOf", []any{int64(2), 0.5}},
		{"minLength", []any{int64(1)}},
		{"maxLength", []any{int64(2)}},
		{"minItems", []any{int64(1)}},
		{"maxItems", []any{int64(2)}},
		{"minProperties", []any{int64(1)}},
		{"maxProperties", []any{int64(2)}},
		{"format", []any{"int32", "int64", "ipv4", "date", "byte", "nothing", "double", "k8s-short-name", "date-time"}},
		{"required", []any{[]any{"a"}, []any{"b", "c"}}},
	} {
		if r.maybe(20) {
			s[rule.name] = r.of(rule.values...)
		}
	}
	return s
}

// inner makes the rules in allOf and so on.
func (r random) inner(depth int) map[string]any {
	s := r.rules(make(map[string]any))
	if depth > 0 && r.maybe(2) {
		s["properties"] = map[string]any{r.of("a", "b").(string): r.inner(depth - 1)}
	}
	if depth > 0 && r.maybe(4) {
		s["items"] = r.inner(depth - 1)
	}
	r.junctors(s, depth)
	return s
}

func (r random) junctors(s map[string]any, depth int) {
	if depth == 0 {
		return
	}
	for _, junctor := range []string{"allOf", "anyOf", "oneOf"} {
		if r.maybe(8) {
			s[junctor] = []any{r.inner(depth - 1), r.inner(depth - 1)}
		}
	}
	if r.maybe(12) {
		s["not"] = r.inner(depth - 1)
	}
}

func (r random) schema(depth int) map[string]any {
	s := r.rules(make(map[string]any))
	set := func(n int, name string, value any) {
		if r.maybe(n) {
			s[name] = value
		}
	}
	set(4, "nullable", true)
	switch kind := r.IntN(9); {
	case kind == 0:
		s["x-kubernetes-int-or-string"] = true
	case kind == 1:
		s["x-kubernetes-preserve-unknown-fields"] = true
		set(2, "type", "object")
	case kind < 4 || depth == 0:
		s["type"] = r.of("string", "integer", "number", "boolean")
	case kind < 6:
		s["type"], s["items"] = "array", r.schema(depth-1)
		if items := s["items"].(map[string]any); r.maybe(3) {
			s["x-kubernetes-list-type"] = "set"
		} else if items["type"] == "object" && r.maybe(2) {
			s["x-kubernetes-list-type"], s["x-kubernetes-list-map-keys"] = "map", r.of([]any{"a"}, []any{"a", "b"})
		}
	case kind == 6:
		s["type"], s["additionalProperties"] = "object", r.schema(depth-1)
		set(5, "additionalProperties", true)
	default:
		properties := make(map[string]any)
		for range 1 + r.IntN(3) {
			properties[r.of("a", "b", "c").(string)] = r.schema(depth - 1)
		}
		s["type"], s["properties"] = "object", properties
		set(6, "x-kubernetes-preserve-unknown-fields", true)
		set(3, "x-kubernetes-embedded-resource", true)
	}
	if s["type"] == "string" {
		set(6, "default", "abc")
	}
	r.junctors(s, 2)
	return s
}

// gadget is the kind that gadgets defines.
var gadget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}

// gadgets returns defaults that know a definition of Gadget with a schema.
func gadgets(t *testing.T, schemaText []byte) *defaults.Defaults {
	t.Helper()
	d := defaults.New(admission.Newest())
	err := d.Define(fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","spec":{"group":"example.com","names":{"kind":"Gadget"},
"versions":[{"name":"v1","schema":{"openAPIV3Schema":%s}}]}}`, schemaText))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// structuralOf returns what kube-apiserver makes of a schema, nil if it refuses the definition.
func structuralOf(t *testing.T, schemaText []byte) (*structural.Structural, validation.SchemaValidator) {
	t.Helper()
	var v1 apiextensionsv1.JSONSchemaProps
	var props apiextensions.JSONSchemaProps
	if err := json.Unmarshal(schemaText, &v1); err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &props, nil); err != nil {
		t.Fatal(err)
	}
	s, err := structural.NewStructural(&props)
	if err != nil || len(structural.ValidateStructural(nil, s)) > 0 {
		return nil, nil
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		t.Fatal(err)
	}
	return s, validator
}

// upstream is what kube-apiserver does with an object that is created.
func upstream(t *testing.T, schemaText, text []byte) (unknown []string, errs field.ErrorList, ok bool) {
	t.Helper()
	s, validator := structuralOf(t, schemaText)
	if s == nil {
		return nil, nil, false
	}
	object := decoded(t, text)
	unknown = pruning.PruneWithOptions(object, s, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	// A copy, because it stops at an error, which Validate reports too. How many fields it has found before is random.
	stop, inMetadata := objectmeta.CoerceWithOptions(nil, decoded(t, text), s, false,
		objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if unknown = append(unknown, inMetadata...); stop != nil {
		unknown = nil
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s)
	defaulting.Default(object, s)
	errs = validation.ValidateCustomResource(nil, object, validator)
	errs = append(errs, objectmeta.Validate(t.Context(), nil, object, s, false)...)
	return unknown, append(errs, listtype.ValidateListSetsAndMaps(nil, s, object)...), true
}

func decoded(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestCustomResources validates random objects with random schemas. The verdict, the errors and the unknown fields must be those of
// k8s.io/apiextensions-apiserver.
func TestCustomResources(t *testing.T) {
	const rounds = 20_000
	compared, refused, pruned, wrong := 0, 0, 0, 0
	start := seed.Of(t)
	for round := range uint64(rounds) {
		r := random{rand.New(rand.NewPCG(start, round))}
		a, b := r.schema(3), r.schema(2)
		props := map[string]any{"type": "object", "properties": map[string]any{"a": a, "b": b}}
		object := map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": "a"},
			"a": r.fit(a), "b": r.fit(b)}
		schemaText, _ := json.Marshal(props)
		text, _ := json.Marshal(object)
		unknown, errs, ok := upstream(t, schemaText, text)
		if !ok {
			continue
		}
		compared++
		d := gadgets(t, schemaText)
		fields, _, err := d.Check(gadget, text)
		var paths []string
		for _, f := range fields {
			paths = append(paths, f.Path)
		}
		for i := range unknown {
			unknown[i] = inMaps.ReplaceAllString(unknown[i], ".$1")
		}
		slices.Sort(paths)
		slices.Sort(unknown)
		if err != nil || unknown != nil && !slices.Equal(paths, unknown) || unknown == nil && len(errs) == 0 && len(paths) > 0 {
			t.Errorf("round %d: schema %s\nobject %s\ngot unknown %q, %v\nwant %q", round, schemaText, text, paths, err, unknown)
			wrong++
		}
		refusal := d.Validate(gadget, text, nil)
		if (refusal != nil) != (len(errs) > 0) {
			t.Errorf("round %d: schema %s\nobject %s\ngot %v\nwant %v", round, schemaText, text, refusal, errs)
			wrong++
		}
		if refusal != nil {
			refused++
			for message := range strings.SplitSeq(refusal.Message, "; ") {
				if strings.HasPrefix(message, "and ") {
					continue // it says how many more there are
				}
				// kube-apiserver says <nil> instead of some fields.
				_, said, _ := strings.Cut(message, ": ")
				start, isCut := strings.CutSuffix(said, "...")
				if !slices.ContainsFunc(errs, func(e *field.Error) bool {
					if isCut && strings.HasPrefix(e.ErrorBody(), start) {
						return true
					}
					return inMaps.ReplaceAllString(e.Field, ".$1")+": "+e.ErrorBody() == message || e.Error() == "<nil>: "+said
				}) {
					t.Errorf("round %d: schema %s\nobject %s\ngot %s\nwant one of %v", round, schemaText, text, message, errs)
					wrong++
				}
			}
		}
		if len(unknown) > 0 {
			pruned++
		}
		if wrong > 3 {
			t.Fatal("and so on")
		}
	}
	t.Logf("%d objects: %d refused, %d with unknown fields", compared, refused, pruned)
	if compared-refused < rounds/20 || refused < rounds/20 || pruned < rounds/20 {
		t.Errorf("got %d objects, %d of them refused and %d with unknown fields, want many of each", compared, refused, pruned)
	}
}
