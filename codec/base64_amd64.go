package codec

import (
	"slices"

	"github.com/cloudwego/base64x"
)

// appendBase64 uses sonic's native encoder: a patch takes a seventh of the time of
// encoding/base64.
func appendBase64(dst, src []byte) []byte {
	dst = slices.Grow(dst, base64x.StdEncoding.EncodedLen(len(src)))
	base64x.StdEncoding.EncodeUnsafe(&dst, src)
	return dst
}
