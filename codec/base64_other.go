//go:build !amd64

package codec

import "encoding/base64"

// appendBase64 does without native code: base64x has it for amd64 only, and does
// not compile elsewhere.
func appendBase64(dst, src []byte) []byte { return base64.StdEncoding.AppendEncode(dst, src) }
