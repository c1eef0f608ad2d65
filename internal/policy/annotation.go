package policy

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/fastadmit/fastadmit/codec"
)

// AnnotationKey returns the key of an audit annotation: the name of the policy or webhook,
// a dot and the key. In kube-apiserver, a slash separates them. But kube-apiserver puts
// the name of fastadmit's webhook and a slash before each key that fastadmit returns. A
// second slash is invalid, and so are more than 63 characters after the slash. An invalid
// key is cut off and ends with a digest.
func AnnotationKey(name, key string) string {
	name += "." + key
	if codec.IsAnnotationKey(name) {
		return name
	}
	const shown, digest = 52, 5 // 63 characters with a dash
	sum := sha256.Sum256([]byte(name))
	return name[:min(len(name), shown)] + "-" + hex.EncodeToString(sum[:digest])
}
