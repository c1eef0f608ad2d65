package cel

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestRegexpGo has regular expressions with many instructions find what package regexp finds.
func TestRegexpGo(t *testing.T) {
	text := strings.Repeat("a aé-\naab\n\n", 50)
	e := new(Compiler).Begin(newInput(t, t.Context()), celconfig.RuntimeCELCostBudget)
	for _, pattern := range [...]string{
		"a", "[a-z]+", "^", "^a", "$", "(?m)^.", "(?m)$", `\b`, `\B`, `\ba`, `a\b`, "a*", "a*?", "(?U)a+", "(a.*b|a)", "é|(a)(é)", "(?i)A", "x*", "(?:)", ".", "(?s).", `\A.`, `.\z`, "y", "^y", `\Qa)\E`,
	} {
		pattern = "(?:x{900})?(?:" + pattern + ")"
		re := regexp.MustCompile(pattern)
		args := []ref.Val{types.String(text), types.String(pattern)}
		f := func(name string, got ref.Val, want any) {
			t.Helper()
			if got == nil || got.Equal(types.DefaultTypeAdapter.NativeToValue(want)) != types.True {
				t.Errorf("%s of %s: got %v, want %v", name, pattern, got, want)
			}
		}
		f("matches", matches(e, args), re.MatchString(text))
		f("matches", matchesUncharged(e, args), re.MatchString(text))
		f("find", find(e, args), re.FindString(text))
		f("findAll", findAllLiteral(e, args), append([]string{}, re.FindAllString(text, -1)...))
		for _, n := range []int{-2, -1, 0, 1, 3} {
			f("findAll", findAll(e, append(slices.Clone(args), types.Int(n))), append([]string{}, re.FindAllString(text, n)...))
		}
	}
}
