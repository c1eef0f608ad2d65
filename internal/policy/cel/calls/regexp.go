package calls

import (
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"unicode/utf8"

	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// regexpBytes is the memory that a compiled regular expression takes for each character
	// or instruction: a node of the syntax tree has 160 bytes with its slices, an
	// instruction 40, and the machine that runs it about as much.
	regexpBytes = 256
	// regexpWork is how many steps a match may take without a check of the context: some
	// tens of milliseconds.
	regexpWork = 1_048_576
)

// matches, find and findAll bound calls whose regular expression is not a literal. A short
// one, such as (a{99}){9}, can have many instructions, and each of them may look at each
// character of the text.
func matches(l *Limits, args []ref.Val) ref.Val { return l.matchCharged(args, matched) }

// matchesAtAnyCost bounds calls that cost nothing for the length of the text, so that only their
// time can end them.
func matchesAtAnyCost(l *Limits, args []ref.Val) ref.Val { return l.match(args, false, matched) }

func find(l *Limits, args []ref.Val) ref.Val { return l.matchCharged(args, foundText) }

// findAll searches for each match after the previous one, and may read the text to its end
// each time. So it takes quadratic time, even with a literal such as (a.*b|a). It leaves calls
// that take little time to cel-go.
func findAll(l *Limits, args []ref.Val) ref.Val {
	most := -1
	if len(args) > 2 {
		n, ok := args[2].(types.Int)
		if !ok {
			return nil
		}
		most = int(n)
	}
	if MatchesCost(Size(args[0]), Size(args[1])) > celconfig.PerCallLimit {
		return refused(0)
	}
	return l.match(args, true, func(m *matcher) ref.Val { return m.all(most) })
}

// findAllLiteral bounds findAll with a literal. cel-go has compiled the literal and does the
// call as long as the text is short.
func findAllLiteral(l *Limits, args []ref.Val) ref.Val {
	if text, _ := args[0].(types.String); len(text) <= findAllFree { // "" for what cel-go refuses
		return nil
	}
	return findAll(l, args)
}

// findAllFree is the length of a text for which findAll takes less than a millisecond for
// each instruction of any regular expression.
const findAllFree = 256

func matched(m *matcher) ref.Val { return types.Bool(m.re.MatchReader(m)) }

func foundText(m *matcher) ref.Val {
	at := m.re.FindReaderIndex(m)
	if at == nil {
		return types.String("")
	}
	return types.String(m.text[at[0]:at[1]])
}

func (l *Limits) matchCharged(args []ref.Val, does func(*matcher) ref.Val) ref.Val {
	if MatchesCost(Size(args[0]), Size(args[1])) > celconfig.PerCallLimit {
		return refused(0)
	}
	return l.match(args, false, does)
}

// match calls does if the call may take much time or memory, and returns nil otherwise.
// quadratic says that does may read the text to its end for each of its characters.
func (l *Limits) match(args []ref.Val, quadratic bool, does func(*matcher) ref.Val) ref.Val {
	text, ok := args[0].(types.String)
	pattern, ok2 := args[1].(types.String)
	if !ok || !ok2 {
		return nil
	}
	if bytes := regexpBytes * len(pattern); !l.Passing(bytes) {
		return errNoMemory
	}
	tree, err := syntax.Parse(string(pattern), syntax.Perl)
	if err != nil {
		return nil // cel-go returns the same error
	}
	size := instructions(tree)
	if bytes := regexpBytes * size; !l.Passing(bytes) {
		return errNoMemory
	}
	work := size * len(text)
	if quadratic {
		work *= len(text)
	}
	if work <= regexpWork {
		return nil
	}
	m := &matcher{limits: l, text: string(text), pattern: string(pattern), tree: tree}
	if m.re, err = regexp.Compile(m.pattern); err != nil {
		return nil
	}
	v := does(m)
	if l.isOver() {
		return errInterrupted
	}
	return v
}

// instructions estimates how many instructions an expression is compiled to, as calcSize
// does in Go's regexp/syntax.
func instructions(re *syntax.Regexp) (n int) {
	for _, sub := range re.Sub {
		n += 1 + instructions(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpRepeat:
		n *= max(re.Min, re.Max, 1) // Max is -1 for any number
	}
	return n + 1
}

// A matcher reads the text that is matched until the context ends.
type matcher struct {
	limits  *Limits
	pattern string
	tree    *syntax.Regexp
	re      *regexp.Regexp
	behind  *regexp.Regexp // finds re after one character, as group 1
	text    string
	pos     int
	isOver  bool
}

// all returns the matches that FindAllString of package regexp finds. most is the most to
// return; all if it is negative.
func (m *matcher) all(most int) ref.Val {
	if looksBehind(m.tree) {
		var err error
		for _, end := range [...]string{`)`, `\E)`} { // \E ends a \Q in the pattern
			if m.behind, err = regexp.Compile(`\A(?s:.)(?s:.*?)(` + m.pattern + end); err == nil {
				break
			}
		}
		if err != nil { // the pattern is nested as deeply as package regexp allows
			return types.NewErr("the regular expression is too large for a text that long")
		}
	}
	found := []string{}
	for pos, before := 0, -1; pos <= len(m.text) && (most < 0 || len(found) < most); {
		start, end := m.next(pos)
		if m.isOver || start < 0 {
			break
		}
		if end > pos || start != before { // an empty match right after another one does not count
			found = append(found, m.text[start:end])
			if len(found)%findAllFree == 0 && !m.limits.Passing(3*textBytes*len(found)) {
				return errNoMemory
			}
		}
		before = end
		if end > pos {
			pos = end
			continue
		}
		_, size := utf8.DecodeRuneInString(m.text[pos:])
		pos += max(size, 1)
	}
	if !m.limits.Take(textBytes * len(found)) {
		return errNoMemory
	}
	return types.NewStringList(types.DefaultTypeAdapter, found)
}

// looksBehind reports whether a match depends on the text before it.
func looksBehind(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(re.Sub, looksBehind)
}

// next returns where the first match from pos on begins and ends, -1 if there is none. A
// search in a reader takes the beginning of the reader for that of the text. So if the
// expression looks behind, the search begins one character earlier, with m.behind.
func (m *matcher) next(pos int) (start, end int) {
	re, from, group := m.re, pos, 0
	if pos > 0 && m.behind != nil {
		_, size := utf8.DecodeLastRuneInString(m.text[:pos])
		re, from, group = m.behind, pos-size, 1
	}
	m.pos = from
	at := re.FindReaderSubmatchIndex(m)
	if at == nil {
		return -1, -1
	}
	return from + at[2*group], from + at[2*group+1]
}

// ReadRune implements io.RuneReader.
func (m *matcher) ReadRune() (r rune, size int, err error) {
	if m.isOver = m.limits.isOver(); m.isOver || m.pos == len(m.text) {
		return 0, 0, io.EOF
	}
	r, size = utf8.DecodeRuneInString(m.text[m.pos:])
	m.pos += size
	return r, size, nil
}

// regexFunctions are the functions of Kubernetes' library that compile a literal regular
// expression once.
var regexFunctions = map[string]*interpreter.RegexOptimization{
	"find": library.FindRegexOptimization, "findAll": library.FindAllRegexOptimization,
}

// TakesRegex reports whether Literal knows the function.
func TakesRegex(name string) bool { return regexFunctions[name] != nil }

// Literal returns the implementation of a function with n arguments, of which the second is
// the literal regular expression pattern, and the Func that bounds it, which may be nil.
func Literal(name, overload string, n int, pattern string) (does functions.FunctionOp, bounds Func, err error) {
	args := make([]interpreter.InterpretableV2, n)
	for i := range args {
		args[i] = argument(i)
	}
	call, err := regexFunctions[name].Factory(interpreter.NewCall(0, name, overload, args, nil), pattern)
	if err != nil {
		return nil, nil, err
	}
	if name == "findAll" {
		bounds = charged(findAllLiteral, foundAll)
	}
	return func(args ...ref.Val) ref.Val { return call.Eval(arguments(args)) }, bounds, nil
}

// An argument is the argument with that index of a call of Literal.
type argument int

// ID implements interpreter.Interpretable.
func (i argument) ID() int64 { return 0 }

// Eval implements interpreter.Interpretable.
func (i argument) Eval(all interpreter.Activation) ref.Val { return i.Exec(interpreter.AsFrame(all)) }

// Exec implements interpreter.InterpretableV2.
func (i argument) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	return frame.Unwrap().(arguments)[i]
}

// arguments is the activation of a call of Literal.
type arguments []ref.Val

// ResolveName implements interpreter.Activation.
func (arguments) ResolveName(string) (any, bool) { return nil, false }

// Parent implements interpreter.Activation.
func (arguments) Parent() interpreter.Activation { return nil }
