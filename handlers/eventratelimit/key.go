package eventratelimit

import (
	"crypto/sha256"
	"strings"

	"github.com/fastadmit/fastadmit/codec"
)

// key identifies the bucket of a limit. The fields are separate, so that concatenated fields
// of different keys cannot be confused. The fields are those of upstream (limitenforcer.go);
// Server has none.
type key [7]string

// keyOf returns the key of the review, as a view of it.
func keyOf(t limitType, review *codec.Review) key {
	switch t {
	case namespaceLimit:
		return key{review.Namespace()}
	case userLimit:
		return key{review.Username()}
	case sourceAndObjectLimit:
		source, object := review.Object.Get("source"), review.Object.Get("involvedObject")
		return key{
			source.Get("component").String(),
			source.Get("host").String(),
			object.Get("kind").String(),
			object.Get("namespace").String(),
			object.Get("name").String(),
			object.Get("uid").String(),
			object.Get("apiVersion").String(),
		}
	}
	return key{}
}

// String returns the key in the format of upstream's messages.
func (k key) String() string { return strings.Join(k[:], "") }

// fieldBytesMax is the maximum length of a field of a cached key: that of the longest user
// name of a service account, with a namespace of 63 bytes (DNS label) and a name of 253
// bytes (DNS subdomain). Kubernetes' own values of other fields are shorter, but the source
// of an Event can be as long as a request.
const fieldBytesMax = len("system:serviceaccount:") + 63 + len(":") + 253

// bounded returns the key with a digest in place of each field that is too long.
func (k key) bounded() key {
	for i, field := range k {
		if len(field) > fieldBytesMax {
			digest := sha256.Sum256([]byte(field))
			// One byte longer than any other field, so never equal to one.
			k[i] = field[:fieldBytesMax+1-len(digest)] + string(digest[:])
		}
	}
	return k
}

// clone returns a copy of the key that is not a view.
func (k key) clone() key {
	for i, field := range k {
		k[i] = strings.Clone(field)
	}
	return k
}
