// Package protobuf reads the fields of a message that somebody needs, and skips the
// others.
package protobuf

import "google.golang.org/protobuf/encoding/protowire"

// Number is the number of a field.
type Number = protowire.Number

// Fields calls field with the bytes of each field of a message that is a string, bytes,
// a message or an entry of a map. Numbers are skipped. The bytes are a view of the
// message. The error is that of field, or says that the message is cut off or no message.
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
