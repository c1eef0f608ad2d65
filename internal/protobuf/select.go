package protobuf

import "google.golang.org/protobuf/encoding/protowire"

// A Selection names fields of a message, each with the selected fields of the message in
// it: nil for all.
type Selection map[Number]Selection

// AppendSelected appends the fields of message that the selection names or, if drop is
// true, all others. It returns an error if the message is invalid or incomplete.
func AppendSelected(dst, message []byte, selection Selection, drop bool) ([]byte, error) {
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
			value, _ := protowire.ConsumeBytes(field[tag:])
			inside, err := AppendSelected(make([]byte, 0, len(value)), value, below, drop)
			if err != nil {
				return dst, err
			}
			dst = protowire.AppendBytes(protowire.AppendTag(dst, number, kind), inside)
		case named != drop && below == nil:
			dst = append(dst, field...)
		}
	}
	return dst, nil
}
