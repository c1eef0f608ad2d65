package protobuf

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrTooLong is the error of AppendSelected if the selected fields are too long.
var ErrTooLong = errors.New("the selected fields of the message are too long")

// A Selection names fields of a message, each with the selected fields of the message in
// it: nil for all.
type Selection map[Number]Selection

// AppendSelected appends the fields of message that the selection names or, if drop is
// true, all others. When dst has more than most bytes, it stops and returns ErrTooLong. It returns
// another error if what it has read of the message is invalid or incomplete.
func AppendSelected(dst, message []byte, selection Selection, drop bool, most int) ([]byte, error) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return dst, protowire.ParseError(tag)
		}
		n := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if n < 0 {
			return dst, protowire.ParseError(n)
		}
		field := message[:tag+n]
		message = message[tag+n:]
		below, named := selection[number]
		switch {
		case below != nil && kind == protowire.BytesType:
			var err error
			if dst, err = appendInside(dst, field, tag, below, drop, most); err != nil {
				return dst, err
			}
		case named != drop && below == nil:
			if len(field) > most-len(dst) {
				return dst, ErrTooLong
			}
			dst = append(dst, field...)
		}
		if len(dst) > most {
			return dst, ErrTooLong
		}
	}
	return dst, nil
}

// appendInside appends a field with the selected fields of the message in it. The tag of the field has so
// many bytes.
func appendInside(dst, field []byte, tag int, selection Selection, drop bool, most int) ([]byte, error) {
	value, _ := protowire.ConsumeBytes(field[tag:])
	dst = append(dst, field[:tag]...)
	length := len(dst)
	dst = protowire.AppendVarint(dst, uint64(len(value))) // at least as long as that of the selected fields
	from := len(dst)
	dst, err := AppendSelected(dst, value, selection, drop, most)
	if err != nil {
		return dst, err
	}
	inside := dst[from:]
	dst = protowire.AppendVarint(dst[:length], uint64(len(inside)))
	return append(dst, inside...), nil // which moves them to the front
}
