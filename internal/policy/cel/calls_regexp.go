package cel

import (
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
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
	regexpWork = 1_048_576
)

// matches, find and findAll are those with a regular expression that is not a literal.
// One of few characters, such as (a{99}){9}, has many instructions, each of which may
// look at each character of the text.
func matches(e *Evaluation, args []ref.Val) ref.Val { return e.matchCharged(args, matched) }

func find(e *Evaluation, args []ref.Val) ref.Val { return e.matchCharged(args, foundText) }

// findAll looks for each match behind the one before, and may come to the end of the
// text each time: its time is quadratic, also with a regular expression that is a
// literal, such as (a.*b|a). What takes no long time without that is left to cel-go.
func findAll(e *Evaluation, args []ref.Val) ref.Val {
	most := -1
	if len(args) > 2 {
		n, ok := args[2].(types.Int)
		if !ok {
			return nil
		}
		most = int(n)
	}
	if costOfMatches(actualSize(args[0]), actualSize(args[1])) > celconfig.PerCallLimit {
		return oversized{}
	}
	return e.match(args, true, func(m *matcher) ref.Val { return m.all(most) })
}

// findAllLiteral is findAll with a regular expression that is a literal. cel-go has
// compiled it, which is left to it as long as the text is short.
func findAllLiteral(e *Evaluation, args []ref.Val) ref.Val {
	if text, _ := args[0].(types.String); len(text) <= findAllFree { // "" for what cel-go refuses
		return nil
	}
	return findAll(e, args)
}

// textBytes is what a text takes beside its characters.
const textBytes = 16

// findAllFree is the length of a text of which findAll takes less than a millisecond
// for each instruction of a regular expression, whatever it is.
const findAllFree = 256

// matchesUncharged is matches(text, pattern), for which cel-go charges 1.
func matchesUncharged(e *Evaluation, args []ref.Val) ref.Val { return e.match(args, false, matched) }

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
		return oversized{}
	}
	return e.match(args, false, does)
}

// match matches what takes much time or memory, and returns nil for other things. Its
// time is quadratic where the text may be read to its end for each of its characters.
func (e *Evaluation) match(args []ref.Val, quadratic bool, does func(*matcher) ref.Val) ref.Val {
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
	work := size * len(text)
	if quadratic {
		work *= len(text)
	}
	if work <= regexpWork {
		return nil
	}
	m := &matcher{of: e, text: string(text), pattern: string(pattern), tree: tree}
	if m.re, err = regexp.Compile(m.pattern); err != nil {
		return nil
	}
	v := does(m)
	if e.isOver() {
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
	of      *Evaluation
	pattern string
	tree    *syntax.Regexp
	re      *regexp.Regexp
	behind  *regexp.Regexp // re behind a character, as its group 1
	text    string
	pos     int
	isOver  bool
}

// all returns the matches, as FindAllString of package regexp finds them, at most so
// many, or all if most is negative.
func (m *matcher) all(most int) ref.Val {
	if looksBehind(m.tree) {
		var err error
		for _, end := range [...]string{`)`, `\E)`} { // what \Q begins ends with the pattern
			if m.behind, err = regexp.Compile(`\A(?s:.)(?s:.*?)(` + m.pattern + end); err == nil {
				break
			}
		}
		if err != nil { // it has as many levels as there may be
			return types.NewErr("the regular expression is too large for a text that long")
		}
	}
	found := []string{}
	for pos, before := 0, -1; pos <= len(m.text) && (most < 0 || len(found) < most); {
		start, end := m.next(pos)
		if m.isOver || start < 0 {
			break
		}
		if end > pos || start != before { // an empty match behind another one is none
			found = append(found, m.text[start:end])
			if bytes := textBytes * len(found); bytes > resultFree && len(found)%findAllFree == 0 && !m.of.fits(2*bytes) {
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
	return types.NewStringList(types.DefaultTypeAdapter, found)
}

// looksBehind reports whether an expression has something that depends on what is in
// front of it.
func looksBehind(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(re.Sub, looksBehind)
}

// next returns where the first match from pos on begins and ends, -1 for none. A
// search in a reader takes its beginning for that of the text. So for an expression
// that looks behind it begins one character before, with one that passes that.
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
	if m.isOver = m.of.isOver(); m.isOver || m.pos == len(m.text) {
		return 0, 0, io.EOF
	}
	r, size = utf8.DecodeRuneInString(m.text[m.pos:])
	m.pos += size
	return r, size, nil
}
