package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// JSONSyntaxError returns an error of encoding/json about a text in the words of the other messages, and the offset of what is wrong.
// at is the offset behind the character that the decoder refused, or the length of the text.
func JSONSyntaxError(err error, text []byte, at int) (offset int, said error) {
	at = min(max(at, 1), max(len(text), 1))
	if marker := ofConflict.FindIndex(text); marker != nil {
		return marker[0], errConflict
	}
	before := bytes.TrimRight(text[:at-1], " \t\r\n")
	last, refused := byte(0), byte(0)
	if len(before) > 0 {
		last = before[len(before)-1]
	}
	if at <= len(text) {
		refused = text[at-1]
	}
	isEnd := refused == '}' || refused == ']'
	message := err.Error()
	switch {
	case strings.HasPrefix(message, "unexpected "): // EOF, or end of JSON input
		return len(text), errors.New("the text ends within an object or a list: want a } or ]")
	case isEnd && last == ',':
		return len(before) - 1, fmt.Errorf("got a comma before %c: remove it, as JSON has none behind the last one", refused)
	case strings.HasSuffix(message, "after object key:value pair"), strings.HasSuffix(message, "after array element"):
		if refused == '"' || refused == '{' || refused == '[' {
			return len(before) - 1, errors.New("want a comma here, before the next value")
		}
	case strings.HasSuffix(message, "in string literal") && refused < ' ':
		return at - 1, errors.New("got a line break or another control character in a text: close it with another \" in its line")
	case refused == '/' || refused == '#':
		return at - 1, errors.New("got a comment: JSON has none")
	case isEnd && strings.HasSuffix(message, "looking for beginning of value") && (last == '}' || last == ']' || last == 0):
		return at - 1, fmt.Errorf("got %c, which closes nothing", refused)
	}
	return at - 1, err
}
