package cel

import (
	"fmt"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestMatchesCharged expects the function matches and the method of that name to cost as much as the lengths of the text
// and the regular expression require, as in cel-go.
func TestMatchesCharged(t *testing.T) {
	text := fmt.Appendf(nil, `{"kind":"X","long":%q,"pattern":%q}`, strings.Repeat("b", 500_000), "^"+strings.Repeat("b?", 60)+"a")
	for _, expression := range []string{"matches(object.long, object.pattern)", "object.long.matches(object.pattern)"} {
		want := "<nil> expression '" + expression + "' resulted in error: operation cancelled: actual cost limit exceeded"
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		e := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, text)), celconfig.RuntimeCELCostBudget)
		value, err, fatal := e.Evaluate(x)
		if got := fmt.Sprint(value, " ", err); got != want || fatal != nil {
			t.Errorf("%s: got %s, %v, want %s", expression, got, fatal, want)
		}
	}
}
