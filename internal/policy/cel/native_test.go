package cel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// decodedDepthMax is the maximum depth of a decoded value.
const decodedDepthMax = 10_000

// TestDepth tests objects that nest as deep as Kubernetes decodes, deeper, and so deep that
// recursion would end the process: the review is refused.
func TestDepth(t *testing.T) {
	const most = view.DepthMax + decodedDepthMax
	nested := map[string]func(n int, inner string) string{
		"arrays":  func(n int, inner string) string { return strings.Repeat("[", n) + inner + strings.Repeat("]", n) },
		"objects": func(n int, inner string) string { return strings.Repeat(`{"a":`, n) + inner + strings.Repeat("}", n) },
	}
	for _, expression := range []string{
		"object.d == oldObject.d", "[object.d] == [oldObject.d]", "oldObject.d in object.l || object.l == oldObject.l",
		"'%s'.format([object.d]) != ''",
	} {
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		for name, nest := range nested {
			for _, n := range []int{1, view.DepthMax, most - 2, most + 1, 400_000} {
				d := nest(n, "")
				if name == "objects" {
					d = nest(n, "1")
				}
				review := reviewOf(t, fmt.Appendf(nil, `{"kind":"X","d":%s,"l":[%[1]s]}`, d))
				value, err, fatal := new(Compiler).Begin(NewInput(t.Context(), review), celconfig.RuntimeCELCostBudget).Evaluate(x)
				view.ValueOf(review.OldObject.Get("d")).Value()
				var size *codec.SizeError
				refused := errors.As(review.Err(), &size)
				if refused != (n > most) || fatal != nil || n <= most && (err != nil || fmt.Sprint(value) != "true") {
					t.Errorf("%s of %d %s: got %v, %v, %v, the review's error %v", expression, n, name, value, err, fatal, review.Err())
				}
			}
		}
	}
}

// TestDepthNoJSON puts invalid JSON at a great depth, before and behind a value that nests
// too deep. The review has the error of the first one.
func TestDepthNoJSON(t *testing.T) {
	x := new(Compiler).Compile("object.d == oldObject.d", Declarations{}, Bool)
	deep := strings.Repeat("[", decodedDepthMax+1) + strings.Repeat("]", decodedDepthMax+1)
	const noJSON, tooDeep = false, true
	for inner, want := range map[string]bool{
		`["\q"]`: noJSON, `["\q",` + deep + `]`: noJSON, `[1.2.3,` + deep + `]`: noJSON, `{"a":"\x","b":` + deep + `}`: noJSON,
		deep: tooDeep, `[` + deep + `,"\q"]`: tooDeep,
	} {
		d := strings.Repeat("[", view.DepthMax) + inner + strings.Repeat("]", view.DepthMax)
		review := reviewOf(t, fmt.Appendf(nil, `{"kind":"X","d":%s}`, d))
		value, err, fatal := new(Compiler).Begin(NewInput(t.Context(), review), celconfig.RuntimeCELCostBudget).Evaluate(x)
		var syntax *codec.SyntaxError
		var size *codec.SizeError
		if errors.As(review.Err(), &syntax) == want || errors.As(review.Err(), &size) != want {
			t.Errorf("%.100s: got %v, %v, %v, the review's error %v, want it too deep: %v", inner, value, err, fatal, review.Err(), want)
		}
	}
}
