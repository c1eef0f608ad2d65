package cel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/codec"
)

// TestDepth has objects that nest as deep as Kubernetes decodes, deeper, and so deep that
// going down would end the process: the review is refused.
func TestDepth(t *testing.T) {
	const most = depthMax + decodedDepthMax
	nested := map[string]func(n int, inner string) string{
		"arrays":  func(n int, inner string) string { return strings.Repeat("[", n) + inner + strings.Repeat("]", n) },
		"objects": func(n int, inner string) string { return strings.Repeat(`{"a":`, n) + inner + strings.Repeat("}", n) },
	}
	for _, expression := range []string{"object.d == oldObject.d", "oldObject.d in object.l || object.l == oldObject.l"} {
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		for name, nest := range nested {
			for _, n := range []int{1, depthMax, most - 2, most + 1, 400_000} {
				d := nest(n, "")
				if name == "objects" {
					d = nest(n, "1")
				}
				review := reviewOf(t, fmt.Appendf(nil, `{"kind":"X","d":%s,"l":[%[1]s]}`, d))
				value, err, fatal := new(Compiler).Begin(NewInput(t.Context(), review), celconfig.RuntimeCELCostBudget).Evaluate(x)
				native(review.OldObject.Get("d"))
				var size *codec.SizeError
				refused := errors.As(review.Err(), &size)
				if refused != (n > most) || fatal != nil || n <= most && (err != nil || fmt.Sprint(value) != "true") {
					t.Errorf("%s of %d %s: got %v, %v, %v, the review's error %v", expression, n, name, value, err, fatal, review.Err())
				}
			}
		}
	}
}

// TestDepthNoJSON has what is no JSON, far down, before and behind what nests deep.
func TestDepthNoJSON(t *testing.T) {
	x := new(Compiler).Compile("object.d == oldObject.d", Declarations{}, Bool)
	deep := strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)
	for _, inner := range []string{`["\q",` + deep + `]`, `[1.2.3,` + deep + `]`, `[` + deep + `,"\q"]`, `{"a":"\x","b":` + deep + `}`} {
		d := strings.Repeat("[", depthMax) + inner + strings.Repeat("]", depthMax)
		review := reviewOf(t, fmt.Appendf(nil, `{"kind":"X","d":%s}`, d))
		if value, err, fatal := new(Compiler).Begin(NewInput(t.Context(), review), celconfig.RuntimeCELCostBudget).Evaluate(x); review.Err() == nil {
			t.Errorf("%.100s: got %v, %v, %v, want a fault of the document", inner, value, err, fatal)
		}
	}
}
