package strictyaml

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// GotTemplate is in the SyntaxError of a template of Go.
const GotTemplate = "got a template, {{"

// SyntaxError returns an error of go.yaml.in/yaml v2 or v3 about a text, with the line in which the parser found it. The
// libraries count the lines of their parsers from 0, and those of their scanners from 1 (decode.go fail).
func SyntaxError(err error, text []byte) error {
	said := strings.TrimPrefix(err.Error(), "yaml: ")
	match := inLine.FindStringSubmatch(said)
	line, _ := strconv.Atoi(match[1])
	if ofParser.MatchString(match[2]) {
		line++
	}
	if marker := ofConflict.FindIndex(text); marker != nil {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:marker[0]], []byte("\n")), errConflict)
	}
	if match[2] == "found unexpected end of stream" {
		if line, quote := lastQuote(text); line > 0 {
			return fmt.Errorf("line %d: the text that begins with %s has no end: close it with another %[2]s", line, quote)
		}
	}
	if begin := ofTemplate.FindIndex(text); begin != nil {
		if first := 1 + bytes.Count(text[:begin[1]], []byte("\n")); line == 0 || first <= line {
			return fmt.Errorf("line %d: %s: render it first with the program that it is for, such as helm template", first, GotTemplate)
		}
	}
	if line == 0 {
		return errors.New(said)
	}
	lines := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	line = min(line, len(lines)) // the error may be about the end
	if strings.HasPrefix(match[2], "found a tab character") {
		// The line is the one in which the text begins that goes on after the tab.
		for at := line; at < len(lines) && !isIndentedByTab(lines[line-1]); at++ {
			if isIndentedByTab(lines[at]) {
				line = at + 1
			}
		}
		return tabError(line)
	}
	if match[2] == "found character that cannot start any token" && isIndentedByTab(lines[line-1]) {
		return tabError(line)
	}
	hint := cmp.Or(QuotesHint(string(lines[line-1])), spaceHint(match[2], lines, line), indentHint(match[2], lines, line))
	return fmt.Errorf("line %d: %s%s", line, match[2], hint)
}

// spaceHint says what to do about an error behind a line such as name:web, which is a text for YAML.
func spaceHint(said string, lines [][]byte, line int) string {
	if said != "could not find expected ':'" && said != "mapping values are not allowed in this context" {
		return ""
	}
	for above := line - 1; above >= max(line-3, 0); above-- {
		if match := noSpace.FindSubmatch(lines[above]); match != nil {
			return fmt.Sprintf("; a space is missing behind the colon of %q", match[1])
		}
	}
	return ""
}

func isIndentedByTab(line []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(line, " -"), []byte("\t"))
}

func tabError(line int) error {
	return fmt.Errorf("line %d: got a tab; YAML is indented by spaces", line)
}

// indentHint says what to do about an error in a line that is indented as no line above it is, or below a value.
func indentHint(said string, lines [][]byte, line int) string {
	indent := func(i int) int { return len(lines[i]) - len(bytes.TrimLeft(lines[i], " -")) }
	above := line - 2
	for above >= 0 && onlyComment.Match(lines[above]) {
		above--
	}
	switch {
	case above < 0:
	case said == "did not find expected key" && indent(line-1) < indent(above):
		return "; want the indentation of a line above it"
	case indent(line-1) > indent(above) && said == "mapping values are not allowed in this context":
		return fmt.Sprintf("; it is indented below %q, which has a value already", Shortened(bytes.TrimSpace(lines[above])))
	}
	return ""
}

// Shortened returns the beginning of a text, for messages.
func Shortened(text []byte) []byte {
	const bytesMax = 64
	return text[:min(len(text), bytesMax)]
}

// lastQuote returns the line of the quote to which no other quote belongs, and the quote; 0 if it does not find it. It is
// the last of its kind, and begins a value.
func lastQuote(text []byte) (line int, quote string) {
	at := len(text)
	for _, q := range []byte{'"', '\''} {
		i := bytes.LastIndexByte(text, q)
		if i < 0 || i > at {
			continue
		}
		before := bytes.TrimRight(text[:i], " \t\n")
		if len(before) == 0 || bytes.IndexByte([]byte(":-[{,?"), before[len(before)-1]) >= 0 {
			at, line, quote = i, 1+bytes.Count(text[:i], []byte("\n")), string(q)
		}
	}
	return line, quote
}

var (
	inLine = regexp.MustCompile(`(?s)^(?:line (\d+): )?(.*)$`) // the libraries write no line 0
	// ofParser is an error of the parser (parserc.go).
	ofParser = regexp.MustCompile(`^did not find expected (?:key|node content|'-' indicator|',' or '[\]}]'|<document start>|<stream-start>)$`)
	// ofTemplate is a line of a template of Helm, or of another program, up to the action.
	ofTemplate = regexp.MustCompile(`(?m)^[^#'"\n]*\{\{`)
	// ofConflict is a line that git writes where it cannot merge.
	ofConflict  = regexp.MustCompile(`(?m)^(?:<{7}|>{7})(?: |\r?$)`)
	errConflict = errors.New("got a conflict marker of git: resolve the conflict first")
	// noSpace is a member of a mapping whose colon has no space behind it, and no address such as https://example.com.
	noSpace     = regexp.MustCompile(`^(?:\s|- )*([A-Za-z][\w.-]{0,62}:)[^\s:/]\S*\s*$`)
	onlyComment = regexp.MustCompile(`^\s*(#.*)?$`)
	// inOneLine is a member of a mapping that is in one line.
	inOneLine = regexp.MustCompile(`^(?:\s|- )*[\w.-]+: +(\S.*?)\s*$`)
)

// QuotesHint says what to do about an error in a line of YAML, if its value seems to be a text, such as a CEL expression, of
// which YAML reads a part as syntax.
func QuotesHint(line string) string {
	match := inOneLine.FindStringSubmatch(line)
	if match == nil {
		return ""
	}
	var syntax string
	value := match[1]
	first, rest := value[:1], value[1:]
	closing, isOpening := map[string]string{`"`: `"`, "'": "'", "[": "]", "{": "}"}[first]
	switch {
	case strings.ContainsAny(first, "!&*%@`"), isOpening && strings.Contains(rest, closing) && !strings.HasSuffix(rest, closing):
		syntax = first
	case !isOpening && strings.Contains(value, ": "):
		syntax = ": "
	default:
		return ""
	}
	return fmt.Sprintf("; YAML takes %#q for its own syntax here: write >-, and the text indented in the next line", syntax)
}

// Mismatch returns what the error of a JSON decoder about a wrong type says, in the words of the other messages: "got a list,
// want a string". path is that of the value, without indices. The decoder also names embedded structs of Go there, which begin with a
// capital letter.
func Mismatch(wrong *json.UnmarshalTypeError) (path, text string) {
	got, want := gotten(wrong.Value), Wanted(wrong.Type)
	if want == aString && got != "a list" && got != "an object" { // as on, which is true in YAML
		want += ": write it in quotation marks"
	}
	return strings.Trim(goNames.ReplaceAllString("."+wrong.Field, ""), "."), fmt.Sprintf("got %s, want %s", got, want)
}

var goNames = regexp.MustCompile(`\.[A-Z]\w*`)

// gotten returns a value of json.UnmarshalTypeError, such as "array" or "number 0.5", in the words of the other messages.
func gotten(value string) string {
	switch kind, number, _ := strings.Cut(value, " "); {
	case number != "":
		return number
	case kind == "bool":
		return "true or false"
	case kind == "array":
		return "a list"
	case kind == "object":
		return "an object"
	default:
		return "a " + kind
	}
}
