package cel

import (
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

const (
	// regexpBytes is what compiling a regular expression takes for a character or an
	// instruction: nodes of the syntax tree have 160 bytes with their slices,
	// instructions 40, and the machine that runs them about as much.
	regexpBytes = 256
	// regexpWork is how many steps matching may take without looking at the context.
	// That is some tens of milliseconds.
	regexpWork = 1 << 20
)

// matches, find and findAll are those with a regular expression that is not a literal.
// One of few characters, such as (a{99}){9}, has many instructions, each of which may
// look at each character of the text.
func matches(e *Evaluation, args []ref.Val) ref.Val { return e.matchCharged(args, matched) }

func find(e *Evaluation, args []ref.Val) ref.Val { return e.matchCharged(args, foundText) }

// findAll is interrupted before it begins only.
func findAll(e *Evaluation, args []ref.Val) ref.Val {
	return e.matchCharged(args, func(*matcher) ref.Val { return nil })
}

// matchesUncharged is matches(text, pattern), for which cel-go charges 1.
func matchesUncharged(e *Evaluation, args []ref.Val) ref.Val { return e.match(args, matched) }

func matched(m *matcher) ref.Val { return types.Bool(m.re.MatchReader(m)) }

func foundText(m *matcher) ref.Val {
	at := m.re.FindReaderIndex(m)
	if at == nil {
		return types.String("")
	}
	return types.String(m.text[at[0]:at[1]])
}

func (e *Evaluation) matchCharged(args []ref.Val, does func(*matcher) ref.Val) ref.Val {
	if costOfMatches(actualSize(args[0]), actualSize(args[1])) > celconfig.PerCallLimit {
		return refused(1)
	}
	return e.match(args, does)
}

// match matches what takes much time or memory, and returns nil for other things.
func (e *Evaluation) match(args []ref.Val, does func(*matcher) ref.Val) ref.Val {
	text, ok := args[0].(types.String)
	pattern, ok2 := args[1].(types.String)
	if !ok || !ok2 {
		return nil
	}
	if bytes := regexpBytes * len(pattern); bytes > resultFree && !e.fits(bytes) {
		return errNoMemory
	}
	tree, err := syntax.Parse(string(pattern), syntax.Perl)
	if err != nil {
		return nil // has the same error
	}
	size := instructions(tree)
	if bytes := regexpBytes * size; bytes > resultFree && !e.fits(bytes) {
		return errNoMemory
	}
	if size*len(text) <= regexpWork {
		return nil
	}
	m := &matcher{of: e, text: string(text)}
	if m.re, err = regexp.Compile(string(pattern)); err != nil {
		return nil
	}
	v := does(m)
	if m.isOver || e.isOver() {
		return errInterrupted
	}
	return v
}

// instructions returns about how many instructions an expression is compiled to, as
// calcSize does in Go's regexp/syntax.
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
	of     *Evaluation
	re     *regexp.Regexp
	text   string
	pos    int
	isOver bool
}

// ReadRune implements io.RuneReader.
func (m *matcher) ReadRune() (r rune, size int, err error) {
	if m.isOver = m.isOver || m.of.isOver(); m.isOver || m.pos == len(m.text) {
		return 0, 0, io.EOF
	}
	r, size = utf8.DecodeRuneInString(m.text[m.pos:])
	m.pos += size
	return r, size, nil
}
