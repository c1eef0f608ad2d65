package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// SyntaxError returns an error of go.yaml.in/yaml v2 or v3 about a text, with the line in which the parser found it. The
// libraries count the lines of their parsers from 0, and those of their scanners from 1 (decode.go fail).
func SyntaxError(err error, text []byte) error {
	said := strings.TrimPrefix(err.Error(), "yaml: ")
	match := parserError.FindStringSubmatch(said)
	if match == nil {
		return errors.New(said)
	}
	line, _ := strconv.Atoi(match[1])
	lines := bytes.Count(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) + 1 // the error may be about the end
	return fmt.Errorf("line %d: %s", min(line+1, lines), match[2])
}

// parserError is an error of the parser (parserc.go).
var parserError = regexp.MustCompile(`^line (\d+): ` +
	`(did not find expected (?:key|node content|'-' indicator|',' or '[\]}]'|<document start>|<stream-start>))$`)

// Mismatch returns what the error of a JSON decoder about a wrong type says, in the words of the other messages: "got a list,
// want a string".
func Mismatch(wrong *json.UnmarshalTypeError) string {
	return fmt.Sprintf("got %s, want %s", gotten(wrong.Value), Wanted(wrong.Type))
}

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
