package calls

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// TestRegexpGo compares the matches of regular expressions with many instructions with those of package
// regexp.
func TestRegexpGo(t *testing.T) {
	text := strings.Repeat("a aé-\naab\n\n", 50)
	l := limitsOf(t.Context(), t, "null")
	for _, pattern := range [...]string{
		"a", "[a-z]+", "^", "^a", "$", "(?m)^.", "(?m)$", `\b`, `\B`, `\ba`, `a\b`, "a*", "a*?", "(?U)a+", "(a.*b|a)", "é|(a)(é)",
		"(?i)A", "x*", "(?:)", ".", "(?s).", `\A.`, `.\z`, "y", "^y", `\Qa)\E`,
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
		f("matches", matches(l, args), re.MatchString(text))
		f("find", find(l, args), re.FindString(text))
		f("findAll", findAllLiteral(l, args), append([]string{}, re.FindAllString(text, -1)...))
		for _, n := range []int{-2, -1, 0, 1, 3} {
			f("findAll", findAll(l, append(slices.Clone(args), types.Int(n))), append([]string{}, re.FindAllString(text, n)...))
		}
	}
}

// TestRegexpLevels tests regular expressions with the maximum number of levels. An expression that depends
// on the character before it needs further levels, and cannot be matched. A quotation that begins with \Q
// ends with the pattern.
func TestRegexpLevels(t *testing.T) {
	l := limitsOf(t.Context(), t, "null")
	text := types.String(strings.Repeat("a ", 400))
	nested := func(levels int, inner string) types.String {
		return types.String(strings.Repeat("(", levels) + inner + strings.Repeat(")", levels))
	}
	for pattern, want := range map[types.String]int{
		nested(999, "a"): 400, nested(998, "[ac]"): 400, nested(997, `\ba`): -1, nested(900, `\ba`): 400, "(?:x{900})?" + `\b\Qa`: 400,
		"(?:x{900})?" + `\b\Qa)\E`: 0,
	} {
		got := findAll(l, []ref.Val{text, pattern})
		if want < 0 && types.IsError(got) && strings.Contains(fmt.Sprint(got), "too large for a text that long") {
			continue
		}
		if list, ok := got.(traits.Lister); !ok || list.Size() != types.Int(want) {
			t.Errorf("%.30s: got %.100v, want %d matches", pattern, got, want)
		}
	}
}

// TestRegexpMemory checks that more than bytesFree bytes need memory of the review: for a pattern before it
// is parsed, for its instructions, and for its matches.
func TestRegexpMemory(t *testing.T) {
	l := limitsOf(t.Context(), t, "{}")
	l.Review.Object.Root().Refuse(codec.ErrNoMemory)
	const most = bytesFree / regexpBytes
	for pattern, want := range map[string]ref.Val{
		strings.Repeat("(", most): nil, strings.Repeat("(", most+1): errNoMemory, // not regular expressions
		"a{85}": nil, "a{86}": errNoMemory, "a{0}" + strings.Repeat("b", most-8): nil, "a{0}" + strings.Repeat("b", most-7): errNoMemory,
		"a": nil,
	} {
		if got := matches(l, []ref.Val{types.String("a"), types.String(pattern)}); got != want {
			t.Errorf("%.20s: got %v, want %v", pattern, got, want)
		}
	}
	found := (bytesFree/(3*textBytes)/findAllFree + 1) * findAllFree // the number of matches from which memory is needed
	for n, want := range map[int]bool{found - 1: false, found: true} {
		if got := findAll(l, []ref.Val{types.String(strings.Repeat("a", n)), types.String("a")}); (got == errNoMemory) != want {
			t.Errorf("%d matches: got %.100v, want it refused: %v", n, got, want)
		}
	}
}

// TestRegexpWork checks that this package matches what takes more than regexpWork steps, and cel-go
// everything else. Matching ends with the context.
func TestRegexpWork(t *testing.T) {
	l := limitsOf(t.Context(), t, "null")
	f := func(does Func, bytes int, pattern string, want bool) {
		t.Helper()
		if got := does(l, []ref.Val{types.String(strings.Repeat("a", bytes)), types.String(pattern)}); (got != nil) != want {
			t.Errorf("%s in %d bytes: got it matched here: %v", pattern, bytes, got != nil)
		}
	}
	f(matches, regexpWork/256, "a{85}", false) // has 256 instructions
	f(matches, (regexpWork+1)/17, strings.Repeat("b", 16), true)
	f(matches, 10_000, "a", false)
	f(findAll, 724, "a", false) // 724 * 724 is half of regexpWork
	f(findAll, 725, "a", true)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	m := &matcher{limits: limitsOf(canceled, t, "null"), text: "a"}
	if _, _, err := m.ReadRune(); !errors.Is(err, io.EOF) || !m.isOver || m.pos != 0 {
		t.Errorf("got %v, and %d bytes read, want the end", err, m.pos)
	}
}

// TestReplaceMemory checks that a result with more than bytesFree bytes needs memory of the review.
func TestReplaceMemory(t *testing.T) {
	for n, want := range map[int]ref.Val{0: nil, 1: nil, bytesFree - 1: nil, bytesFree: errNoMemory} {
		l := limitsOf(t.Context(), t, "{}")
		l.Review.Object.Root().Refuse(codec.ErrNoMemory)
		args := []ref.Val{types.String("ba"), types.String("a"), types.String(strings.Repeat("a", n))}
		if got := Bounded("replace", "string_replace_string_string", admission.Newest())(l, args); got != want {
			t.Errorf("%d bytes: got %v, want %v", n, got, want)
		}
	}
}

// TestRegexpInvalid checks that invalid regular expressions are left to cel-go.
func TestRegexpInvalid(t *testing.T) {
	l := limitsOf(t.Context(), t, "null")
	args := []ref.Val{types.String(strings.Repeat("a", 10_000)), types.String("(a{500}")}
	for name, does := range map[string]Func{"matches": matches, "find": find, "findAll": findAll} {
		if got := does(l, args); got != nil {
			t.Errorf("%s: got %v, want nil", name, got)
		}
	}
}

// TestMatchLimit tests patterns that cost as much as an expression may cost, and longer ones, which are
// refused.
func TestMatchLimit(t *testing.T) {
	l := limitsOf(t.Context(), t, "null")
	text := strings.Repeat("b", 19_999) // the cost is a tenth of the length plus one
	const most = celconfig.PerCallLimit / 2000 * 4
	for name, does := range map[string]Func{"matches": matches, "find": find, "findAll": findAll, "findAllLiteral": findAllLiteral} {
		for n, want := range map[int]bool{most: false, most + 1: true} {
			got := does(l, []ref.Val{types.String(text), types.String(strings.Repeat("a", n))})
			if refused := IsRefused(got); refused != want {
				t.Errorf("%s with a pattern of %d characters: got %v, want it refused: %v", name, n, got, want)
			}
		}
	}
}

// TestInstructions compares the estimate with what package syntax compiles.
func TestInstructions(t *testing.T) {
	for _, pattern := range [...]string{
		"a", "^$", "[a-z]+|[0-9]*", strings.Repeat("a", 1000), "(a{99}){9}", "(?:x{900})?", "a{2,50}", "a{500,}", "(?:ab|c|de?){100}",
		strings.Repeat("(a?){20}", 10),
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
