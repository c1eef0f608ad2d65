package translate

import (
	"regexp"
	"strings"
)

// stretches calls code for each part of a CEL expression that is outside of string literals and
// comments. It returns the expression with these parts replaced by the results.
func stretches(expression string, code func(string) string) string {
	var b strings.Builder
	begin := 0
	for at := 0; at < len(expression); {
		end := skipText(expression, at)
		if end == at {
			at++
			continue
		}
		b.WriteString(code(expression[begin:at]))
		b.WriteString(expression[at:end])
		begin, at = end, end
	}
	b.WriteString(code(expression[begin:]))
	return b.String()
}

// skipText returns the end of the string literal or comment that begins at an offset. If none begins
// there, it returns the offset.
func skipText(expression string, at int) (end int) {
	rest := expression[at:]
	if strings.HasPrefix(rest, "//") {
		if line := strings.IndexByte(rest, '\n'); line >= 0 {
			return at + line
		}
		return len(expression)
	}
	if rest[0] != '\'' && rest[0] != '"' {
		return at
	}
	quote := rest[:1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(rest, triple) {
		quote = triple
	}
	before := strings.ToLower(expression[max(0, at-2):at])
	isRaw := strings.HasSuffix(before, "r") || strings.HasSuffix(before, "rb")
	for i := at + len(quote); i < len(expression); i++ {
		switch {
		case expression[i] == '\\' && !isRaw:
			i++
		case strings.HasPrefix(expression[i:], quote):
			return i + len(quote)
		}
	}
	return len(expression)
}

// skipParentheses returns the end of the parentheses that begin at an offset, -1 if they are not closed.
func skipParentheses(expression string, at int) (end int) {
	depth := 0
	for i := at; i < len(expression); {
		if end := skipText(expression, i); end != i {
			i = end
			continue
		}
		switch expression[i] {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

var requestObject = regexp.MustCompile(`\brequest\.(object|oldObject)\b`)

// plain replaces Kyverno's request.object and request.oldObject by Kubernetes' variables.
func plain(expression string) string {
	return stretches(expression, func(code string) string { return requestObject.ReplaceAllString(code, "$1") })
}

// literal returns a text as a string of CEL.
func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(text) + "'"
}

// literals returns texts as a list of CEL. An empty list has the type of a list of strings.
func literals(texts []string) string {
	if len(texts) == 0 {
		return "[''].filter(x, false)"
	}
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = literal(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// globExpression returns a regular expression for a pattern with * and ?.
func globExpression(pattern string) string {
	var b strings.Builder
	b.WriteByte('^')
	for _, r := range pattern {
		switch r {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	b.WriteByte('$')
	return b.String()
}

func isGlob(pattern string) bool { return strings.ContainsAny(pattern, "*?") }

// oneOf returns an expression that compares a text with names and patterns.
func oneOf(text string, patterns []string) string {
	var exact, all []string
	for _, pattern := range patterns {
		switch {
		case pattern == "*":
			return "true"
		case isGlob(pattern):
			all = append(all, text+".matches("+literal(globExpression(pattern))+")")
		default:
			exact = append(exact, pattern)
		}
	}
	if len(exact) > 0 {
		all = append([]string{text + " in " + literals(exact)}, all...)
	}
	return joined(all, " || ")
}

// joined joins expressions, each in parentheses if there are several.
func joined(all []string, operator string) string {
	if len(all) == 1 {
		return all[0]
	}
	parts := make([]string, len(all))
	for i, one := range all {
		parts[i] = "(" + one + ")"
	}
	return strings.Join(parts, operator)
}
