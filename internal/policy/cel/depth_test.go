package cel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
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

// TestDeep compares objects as deep as kube-apiserver decodes.
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

// TestEqualLevels compares values around the depth from which they are decoded.
func TestEqualLevels(t *testing.T) {
	for depth := view.DepthMax - 2; depth <= view.DepthMax+2; depth++ {
		for bottom, than := range map[string]struct{ same, other string }{
			`{"a":1,"b":[2.5,"x",null,true]}`: {`{"b":[2.5,"x",null,true],"a":1.0}`, `[0]`}, `[]`: {`[]`, `[0]`}, `{}`: {`{}`, `[]`},
			`[true]`: {`[true]`, `[false]`}, `[1]`: {`[1.0]`, `[2]`}, `["a"]`: {`["a"]`, `["b"]`}, `[null]`: {`[null]`, `[0]`},
			`[1,1]`: {`[1,1.0]`, `[1]`}, `[2]`: {`[2]`, `[2,2]`},
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
