package review

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/fastadmit/fastadmit/internal/seed"
)

// typeNumber is the random part of a name of a type in errors of compilation.
var typeNumber = regexp.MustCompile(`selfType\d+`)

// celRules are rules for a type. Some do not compile for all schemas of it.
var celRules = map[any][]any{
	"string":  {"self.startsWith('a')", "self != 'abc'", "self == oldSelf", "size(self) < 3", "self.matches('^[a-z]+$')", "self.nothing"},
	"integer": {"self < 3", "self >= oldSelf", "self / (self - 1) > 0", "self == 'a'"},
	"number":  {"self < 1.0", "self != oldSelf"},
	"boolean": {"self", "self || oldSelf"},
	"array":   {"self.all(x, x == 'a')", "self.size() < 2", "self == oldSelf", "self.exists_one(x, has(x.a))", "self[0] != 1"},
	"object":  {"has(self.a)", "!has(self.b) || self.b != 'abc'", "self.a == oldSelf.a", "self.size() < 2", "self == oldSelf", "true"},
}

// withRules adds rules to a schema and to what is in it.
func (r random) withRules(s map[string]any) map[string]any {
	if all := celRules[s["type"]]; all != nil && r.maybe(2) {
		rules := make([]any, 1+r.IntN(2))
		for i := range rules {
			rule := map[string]any{"rule": r.of(all...)}
			if r.maybe(2) {
				rule["message"] = fmt.Sprint("rule ", i)
			}
			if r.maybe(4) {
				rule["reason"] = r.of("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")
			}
			if r.maybe(6) {
				rule["messageExpression"] = r.of("'not allowed'", "'size ' + string(size(self))")
			}
			rules[i] = rule
		}
		s["x-kubernetes-validations"] = rules
	}
	if items, ok := s["items"].(map[string]any); ok {
		r.withRules(items)
	}
	if others, ok := s["additionalProperties"].(map[string]any); ok {
		r.withRules(others)
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		r.withRules(properties[name].(map[string]any))
	}
	return s
}

// strategy is what kube-apiserver does with objects of a kind.
type strategy interface {
	Validate(ctx context.Context, obj runtime.Object) field.ErrorList
	ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList
}

// strategyOf returns kube-apiserver's strategy for a schema of Gadget, and what prepares an object for it.
func strategyOf(t *testing.T, schemaText []byte) (strategy, func(text []byte) *unstructured.Unstructured) {
	t.Helper()
	s, validator := structuralOf(t, schemaText)
	if s == nil {
		return nil, nil
	}
	return customresource.NewStrategy(nil, true, gadget, validator, nil, s, nil, nil, nil), func(text []byte) *unstructured.Unstructured {
		object := decoded(t, text)
		pruning.Prune(object, s, true)
		defaulting.PruneNonNullableNullsWithoutDefaults(object, s)
		defaulting.Default(object, s)
		return &unstructured.Unstructured{Object: object}
	}
}

// TestCustomResourceRules creates and updates random objects whose definitions have CEL rules. The verdicts and the errors must be those
// of kube-apiserver's strategy.
func TestCustomResourceRules(t *testing.T) {
	const rounds = 3000
	ctx := request.WithNamespace(t.Context(), "default")
	compared, broken, unchecked := 0, 0, 0
	start := seed.Of(t)
	for round := range uint64(rounds) {
		r := random{rand.New(rand.NewPCG(start, round))}
		a, b := r.withRules(r.schema(2)), r.withRules(r.schema(1))
		props := map[string]any{"type": "object", "properties": map[string]any{"a": a, "b": b}}
		if r.maybe(3) {
			props["x-kubernetes-validations"] = []any{map[string]any{"rule": "self.metadata.name != 'a' || has(self.b)"}}
		}
		schemaText, _ := json.Marshal(props)
		strategy, prepare := strategyOf(t, schemaText)
		if strategy == nil {
			continue
		}
		text := func() []byte {
			text, _ := json.Marshal(map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget", "a": r.fit(a), "b": r.fit(b),
				"metadata": map[string]any{"name": "a", "namespace": "default", "resourceVersion": "1", "uid": "u"}})
			return text
		}
		now, before := text(), text()
		if r.maybe(4) {
			before = now
		}
		d := gadgets(t, schemaText)
		check := func(old []byte, errs field.ErrorList) {
			t.Helper()
			compared++
			refusal := d.Validate(gadget, now, old)
			if (refusal != nil) != (len(errs) > 0) {
				t.Errorf("round %d: schema %s\nobject %s\nold    %s\ngot %v\nwant %v", round, schemaText, now, old, refusal, errs)
				return
			}
			for _, err := range errs {
				switch {
				case strings.HasPrefix(err.ErrorBody(), "Invalid value: null: some validation rules were not checked"):
					unchecked++
				case strings.Contains(err.Detail, "rule"), strings.Contains(err.Detail, "oldSelf"), err.Detail == "not allowed":
					broken++
					got, want := typeNumber.ReplaceAllString(refusal.Message, ""), typeNumber.ReplaceAllString(err.ErrorBody(), "")
					// A comparison of maps, whose order is random, may come to a member of a wrong type or to another member first.
					isRandom := strings.Contains(got+want, "invalid data")
					if want = want[:min(len(want), 200)]; !strings.Contains(got, want) && !strings.Contains(got, " more") && !isRandom {
						t.Errorf("round %d: schema %s\nobject %s\nold    %s\ngot %s\nwant %s", round, schemaText, now, old, got, err)
					}
				}
			}
		}
		check(nil, strategy.Validate(ctx, prepare(now)))
		check(before, strategy.ValidateUpdate(ctx, prepare(now), prepare(before)))
		if t.Failed() {
			t.Fatal("and so on")
		}
	}
	t.Logf("%d requests: %d broken rules, %d whose rules were not evaluated", compared, broken, unchecked)
	if broken < rounds/20 || unchecked < rounds/20 {
		t.Errorf("got %d requests, %d broken rules, %d whose rules were not evaluated, want many of each", compared, broken, unchecked)
	}
}
