package eventratelimit

import (
	"crypto/sha256"
	"strings"

	"github.com/fastadmit/fastadmit/codec"
)

// key says which bucket of a limit an Event is charged to. The fields stand
// apart, so that no two of them run together into those of another key. Which
// fields there are is upstream's (limitenforcer.go); Server has none.
type key [7]string

// keyOf returns the key of the review. It views the review.
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

// String returns the key as upstream's messages show it.
func (k key) String() string { return strings.Join(k[:], "") }

// fieldBytesMax is the length up to which a field of a key is kept as it is:
// that of the longest name of a service account, its namespace a DNS label of
// 63 bytes and its own name a DNS subdomain of 253. What Kubernetes itself puts
// into the other fields is shorter; but nothing keeps the source of an Event
// from being as long as a request may be.
const fieldBytesMax = len("system:serviceaccount:") + 63 + len(":") + 253

// bounded returns the key with a digest in place of each field that is too
// long to keep.
func (k key) bounded() key {
	for i, field := range k {
		if len(field) > fieldBytesMax {
			digest := sha256.Sum256([]byte(field))
			// One byte longer than any field that is kept, so never equal to one.
			k[i] = field[:fieldBytesMax+1-len(digest)] + string(digest[:])
		}
	}
	return k
}

// clone returns the key with memory of its own.
func (k key) clone() key {
	for i, field := range k {
		k[i] = strings.Clone(field)
	}
	return k
}
