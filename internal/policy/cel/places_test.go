package cel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// manyOf returns an object that has n labels, a list of n objects, and n texts.
func manyOf(n int) []byte {
	var labels, list, texts strings.Builder
	for i := range n {
		fmt.Fprintf(&labels, `,"label-%d":"v"`, i)
		fmt.Fprintf(&list, `,{"name":"n%d","b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1}`, i) // lookupsMax members
		fmt.Fprintf(&texts, `,"t%d"`, i)
	}
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"X","metadata":{"name":"x","labels":{%s}},"list":[%s],"texts":[%s]}`,
		labels.String()[1:], list.String()[1:], texts.String()[1:])
}

// TestLookups has objects with many members and elements, and with four times as
// many: what is looked up in them for each member or element is looked up in an
// index, which is made once.
func TestLookups(t *testing.T) {
	const n = 1500 // more than there are nodes
	for _, expression := range []string{
		"object == oldObject",
		"object.metadata.labels == oldObject.metadata.labels",
		"object.metadata.labels.all(k, k in oldObject.metadata.labels)",
		"object.metadata.labels.all(k, object.metadata.labels[k] == 'v')",
		"object.texts.all(x, size(object.metadata.labels) > 0)",
		"lists.range(size(object.texts)).all(i, object.texts[i] != null)",
		"lists.range(size(object.texts)).all(i, object.texts[size(object.texts) - 1 - i] == 't' + string(size(object.texts) - 1 - i))",
		"lists.range(size(object.texts)).all(i, object.texts[i] == oldObject.texts[i])",
	} {
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		var reads [2]int
		for i, many := range [...]int{n, 4 * n} {
			in := NewInput(t.Context(), reviewOf(t, manyOf(many)))
			value, err, fatal := new(Compiler).Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x)
			if value != types.True || err != nil || fatal != nil {
				t.Errorf("%s with %d: got %v, %v, %v, want true", expression, many, value, err, fatal)
			}
			reads[i] = in.places.reads
			compares := expression == "object == oldObject" || expression == "object.metadata.labels == oldObject.metadata.labels"
			if labels := in.places.known[in.oldObject.v.Get("metadata", "labels")]; compares && (labels == nil || labels.members == nil) {
				t.Errorf("%s: got no index of the labels, want one", expression)
			}
		}
		if reads[1] > reads[0] || reads[0] == 0 || reads[0] > 8*lookupsMax {
			t.Errorf("%s: got %d counted reads of whole objects and arrays, with four times as many %d, want as many, and few", expression, reads[0], reads[1])
		}
	}
}

// TestDeep compares objects that are as deep as kube-apiserver decodes them.
func TestDeep(t *testing.T) {
	const depth = 9_000
	deep := []byte(strings.Repeat(`{"a":`, depth) + `[[1]]` + strings.Repeat("}", depth))
	for expression, want := range map[string]types.Bool{
		"object == oldObject": types.True, "object.a == oldObject": types.False, "[object] == [oldObject]": types.True,
	} {
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		value, err, fatal := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, deep)), celconfig.RuntimeCELCostBudget).Evaluate(x)
		if value != want || err != nil || fatal != nil {
			t.Errorf("%s: got %v, %v, %v, want %v", expression, value, err, fatal, want)
		}
	}
}

// TestEqualLevels compares values around the depth behind which they are decoded.
func TestEqualLevels(t *testing.T) {
	for depth := depthMax - 2; depth <= depthMax+2; depth++ {
		for bottom, than := range map[string]struct{ same, other string }{
			`{"a":1,"b":[2.5,"x",null,true]}`: {`{"b":[2.5,"x",null,true],"a":1.0}`, `[0]`}, `[]`: {`[]`, `[0]`}, `{}`: {`{}`, `[]`},
			`[true]`: {`[true]`, `[false]`}, `[1]`: {`[1.0]`, `[2]`}, `["a"]`: {`["a"]`, `["b"]`}, `[null]`: {`[null]`, `[0]`}, `[1,1]`: {`[1,1.0]`, `[1]`}, `[2]`: {`[2]`, `[2,2]`},
		} {
			nested := func(bottom string) string {
				return strings.Repeat(`{"a":[`, depth/2) + bottom + strings.Repeat(`]}`, depth/2)
			}
			text := fmt.Appendf(nil, `{"kind":"X","x":%s,"same":%s,"other":%s}`, nested(bottom), nested(than.same), nested(than.other))
			compareValues(t, text, "object.x == object.same")
			compareValues(t, text, "object.x == object.other")
			compareValues(t, text, "type(object.x) == map ? size([object.x].map(x, x)) : 0")
		}
	}
}
