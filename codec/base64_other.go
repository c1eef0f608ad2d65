//go:build !amd64

package codec

import "encoding/base64"

// appendBase64 uses the standard library: base64x compiles for amd64 only.
func appendBase64(dst, src []byte) []byte { return base64.StdEncoding.AppendEncode(dst, src) }
