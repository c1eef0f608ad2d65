// Package protobuf reads single fields of a protobuf message without decoding all of it.
package protobuf

import "google.golang.org/protobuf/encoding/protowire"

// Number is the number of a field.
type Number = protowire.Number

// Fields calls field for each field of a message that is a string, bytes, a message or a
// map entry. It skips numeric fields. value is a view of message. Fields stops at the
// first error of field and returns it. It also returns an error if the message is
// invalid or incomplete.
func Fields(message []byte, field func(number Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := field(number, value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
