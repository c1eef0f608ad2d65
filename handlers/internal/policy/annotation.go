package policy

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/fastadmit/fastadmit/codec"
)

// AnnotationKey returns the key of an audit annotation of a policy or a webhook:
// in-tree that is its name, a slash and the key. Behind the name of a webhook, which
// kube-apiserver puts before all keys of fastadmit, there may be no second slash, and no
// more than 63 characters. A key that is too long ends with a digest of all of it.
func AnnotationKey(name, key string) string {
	name += "." + key
	if codec.IsAnnotationKey(name) {
		return name
	}
	const shown, digest = 52, 5 // 63 characters with a dash
	sum := sha256.Sum256([]byte(name))
	return name[:min(len(name), shown)] + "-" + hex.EncodeToString(sum[:digest])
}
