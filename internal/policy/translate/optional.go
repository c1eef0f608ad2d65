package translate

import (
	"slices"
	"strings"
)

// laxOrValue is E.orValue(D) for a value E that may be no optional. %s are E and D. Before cel-go 0.28, orValue returned such a
// value, and policies rely on that. Since then, it is an error. The type of the result is as with an E of the type dyn.
const laxOrValue = "[%s].map(orValue_, (type(orValue_) == optional_type ? dyn(orValue_) : dyn(optional.of(orValue_))).orValue(%s))[0]"

// optionalFunctions return an optional.
var optionalFunctions = []string{"of", "none", "ofNonZeroValue", "optMap", "optFlatMap", "or", "first", "last"}

// lax makes orValue take values that are no optionals, in all expressions of a policy. origin returns the path of a field in the
// document.
func (t *translator) lax(h *head, spec *celSpec, origin func(field string) string) {
	optional := make(map[string]bool) // variables
	for _, v := range spec.Variables {
		s := operands{text: v.Expression, variables: optional}
		s.find(len(s.text))
		optional[v.Name] = s.top().isWhole() && s.top().isOptional
	}
	beforeE, rest, _ := strings.Cut(laxOrValue, "%s")
	beforeD, after, _ := strings.Cut(rest, "%s")
	eachExpression(spec, func(field string, expression *string) {
		for from, calls := 0, 0; ; calls++ {
			text := *expression
			s := operands{text: text, variables: optional}
			if !s.find(from) {
				return
			}
			end := skipParentheses(text, s.open)
			if end < 0 {
				return // compiling it reports the error
			}
			if calls == callsMax || len(text) > writtenOutBytesMax {
				t.refuse(h, origin(field), "orValue of what may be no optional is written out for at most %d calls and %d bytes: divide the expression, or use "+
					"has or ?", callsMax, writtenOutBytesMax)
				return
			}
			e := s.top()
			written := text[:e.begin] + beforeE + strings.TrimSpace(text[e.begin:e.dot]) + beforeD
			from = len(written) // calls in D come next
			*expression = written + text[s.open+1:end-1] + after + text[end:]
		}
	})
}

// laxValidating is lax for the translation of a policy.
func (t *translator) laxValidating(h *head, p *Policy) {
	spec := &p.Validating.Spec
	spec.MatchConditions, spec.Variables = slices.Clone(spec.MatchConditions), slices.Clone(spec.Variables)
	spec.Validations, spec.AuditAnnotations = slices.Clone(spec.Validations), slices.Clone(spec.AuditAnnotations)
	t.lax(h, &celSpec{
		MatchConditions: spec.MatchConditions, Variables: spec.Variables, Validations: spec.Validations, AuditAnnotations: spec.AuditAnnotations,
	}, p.Origin)
}

// An operand is a value and what is selected from it, such as object.spec.?replicas: the last one in some parentheses.
type operand struct {
	first      int    // where the parentheses have their first token, -1 if they have none
	begin      int    // where the operand begins, -1 after an operator
	dot        int    // where its last dot is
	name       string // its last token, if that is an identifier
	isMember   bool   // whether its last token is a dot
	isOptional bool
	isGroup    bool // whether the parentheses are an operand of those around them
}

// isWhole reports whether the operand is all that the parentheses have.
func (o *operand) isWhole() bool { return o.begin >= 0 && o.begin == o.first }

// operands reads the operands of an expression.
type operands struct {
	text      string
	variables map[string]bool // whether they are optionals
	stack     []operand       // of the parentheses around an offset
	open      int             // where the arguments of the call that find found begin
}

func (s *operands) top() *operand { return &s.stack[len(s.stack)-1] }

// find finds the first call of orValue, with its dot at or after an offset, of an operand that may be no optional. That is top then.
// If there is none, top is the last operand of the expression.
func (s *operands) find(from int) bool {
	s.stack = []operand{{first: -1, begin: -1}}
	for at := 0; at < len(s.text); {
		end := skipText(s.text, at)
		if strings.IndexByte(" \t\r\n\f", s.text[at]) >= 0 || s.text[at] == '/' && end > at {
			at = max(end, at+1) // between tokens
			continue
		}
		if s.top().first < 0 {
			s.top().first = at
		}
		switch c := s.text[at]; {
		case end > at:
			s.value(at, "")
		case isWord(c):
			for end = at + 1; end < len(s.text) && isWord(s.text[end]); end++ {
			}
			isOrValue := s.top().isMember && s.text[at:end] == "orValue"
			if s.value(at, s.text[at:end]); isOrValue && s.top().dot >= from && !s.top().isOptional {
				if s.open = s.skip(end, '('); s.open > end {
					s.open--
					return true
				}
			}
		case c == '`':
			end = at + len("`") + strings.IndexByte(s.text[at+1:]+"`", '`') + len("`")
			s.value(at, "")
		default:
			end = s.symbol(at)
		}
		at = end
	}
	return false
}

// value reads an identifier, or a literal.
func (s *operands) value(at int, name string) {
	o := s.top()
	if name == "in" && !o.isMember { // an operator
		o.begin = -1
		return
	}
	if o.begin < 0 {
		o.begin, o.isOptional = at, false
	}
	o.name, o.isMember = name, false
	if name != "" && o.begin >= 0 && s.text[o.begin:at] == "variables." {
		o.isOptional = s.variables[name]
	}
}

// skip returns the offset after a character, if that is the next one but for spaces, otherwise at.
func (s *operands) skip(at int, c byte) (end int) {
	rest := strings.TrimLeft(s.text[at:], " \t\r\n\f")
	if rest == "" || rest[0] != c {
		return at
	}
	return len(s.text) - len(rest) + 1
}

// symbol reads a dot, a parenthesis or an operator, and returns its end.
func (s *operands) symbol(at int) (end int) {
	o := s.top()
	end = at + 1
	switch c := s.text[at]; c {
	case '.':
		if o.begin < 0 { // of an absolute name
			o.begin, o.isOptional = at, false
		}
		o.dot, o.isMember = at, true
		if optional := s.skip(end, '?'); optional > end {
			o.isOptional, end = true, optional
		}
	case '(', '[', '{':
		isGroup := o.begin < 0
		switch {
		case isGroup:
			o.begin, o.isOptional = at, false
		case c != '[':
			o.isOptional = slices.Contains(optionalFunctions, o.name)
		default:
			if optional := s.skip(end, '?'); optional > end {
				o.isOptional, end = true, optional
			}
		}
		o.name = ""
		s.stack = append(s.stack, operand{first: -1, begin: -1, isGroup: isGroup && c == '('})
	case ')', ']', '}':
		if last := len(s.stack) - 1; last > 0 {
			s.stack = s.stack[:last]
			if o.isGroup {
				s.top().isOptional = o.isWhole() && o.isOptional
			}
		}
	default:
		o.begin, o.isMember = -1, false
	}
	return end
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
