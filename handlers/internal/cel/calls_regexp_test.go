package cel

import (
	"regexp"
	"regexp/syntax"
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

// TestRegexpInvalid leaves to cel-go what is no regular expression.
func TestRegexpInvalid(t *testing.T) {
	e := new(Compiler).Begin(newInput(t, t.Context()), celconfig.RuntimeCELCostBudget)
	args := []ref.Val{types.String(strings.Repeat("a", 10_000)), types.String("(a{500}")}
	for name, does := range map[string]func(*Evaluation, []ref.Val) ref.Val{"matches": matches, "find": find, "findAll": findAll} {
		if got := does(e, args); got != nil {
			t.Errorf("%s: got %v, want nil", name, got)
		}
	}
}

// TestMatchLimit refuses the first pattern that costs more than an expression may.
func TestMatchLimit(t *testing.T) {
	e := new(Compiler).Begin(newInput(t, t.Context()), celconfig.RuntimeCELCostBudget)
	text := strings.Repeat("b", 19_999) // to which a character is added, and a tenth of that counts
	const most = celconfig.PerCallLimit / 2000 * 4
	for name, does := range map[string]func(*Evaluation, []ref.Val) ref.Val{"matches": matches, "find": find, "findAll": findAll, "findAllLiteral": findAllLiteral} {
		for n, want := range map[int]bool{most: false, most + 1: true} {
			got := does(e, []ref.Val{types.String(text), types.String(strings.Repeat("a", n))})
			if _, refused := got.(oversized); refused != want {
				t.Errorf("%s with a pattern of %d characters: got %v, want it refused: %v", name, n, got, want)
			}
		}
	}
}

// TestInstructions compares the estimate with what package syntax compiles.
func TestInstructions(t *testing.T) {
	for _, pattern := range [...]string{
		"a", "^$", "[a-z]+|[0-9]*", strings.Repeat("a", 1000), "(a{99}){9}", "(?:x{900})?", "a{2,50}", "a{500,}", "(?:ab|c|de?){100}", strings.Repeat("(a?){20}", 10),
	} {
		tree, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(tree.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := instructions(tree), len(program.Inst); 2*got < want || got > 4*want {
			t.Errorf("%.50s: got %d instructions, want about %d", pattern, got, want)
		}
	}
}
