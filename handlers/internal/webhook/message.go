package webhook

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/fastadmit/fastadmit/codec"
)

// A body is an AdmissionReview as kube-apiserver would send it, without its beginning with version
// and uid. It is a copy, because package net/http may read a request after the call has ended. It is
// immutable, so webhooks share it.
type body []byte

// instead maps a field to the field whose value is sent if the first one is not set.
var instead = map[string]string{"requestKind": "kind", "requestResource": "resource", "requestSubResource": "subResource"}

// newBody copies the review with its edits. ok is false if there is no memory for the copy; Err
// of the review has the error.
func newBody(review *codec.Review) (b body, ok bool) {
	const others = 4 << 10 // an estimate of the size of the other fields
	size := review.Object.TextLen() + review.OldObject.TextLen() + review.Options.TextLen() + others
	if !review.Object.Fits(size) {
		return nil, false
	}
	b = make(body, 0, size)
	for _, f := range codec.RequestFields {
		if f.Name == "uid" {
			continue // the beginning of the message contains another uid
		}
		value := review.RequestField(f.Name)
		if !value.IsSet() {
			value = review.RequestField(instead[f.Name])
		}
		if !value.IsSet() && f.Empty == "" || value.EqualString("") {
			continue // upstream omits it
		}
		b = append(append(append(b, ',', '"'), f.Name...), '"', ':')
		if value.IsSet() {
			b = value.AppendJSON(b)
		} else {
			b = append(b, f.Empty...)
		}
	}
	return append(b, '}', '}'), review.Err() == nil
}

// A message is a body with its beginning.
type message struct {
	front string
	body  body
}

func newMessage(version, uid string, b body) *message {
	return &message{`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/` + version + `","request":{"uid":"` + uid + `"`, b}
}

func (m *message) length() int64 { return int64(len(m.front) + len(m.body)) }

func (m *message) open() io.ReadCloser {
	return io.NopCloser(io.MultiReader(strings.NewReader(m.front), bytes.NewReader(m.body)))
}

// newUID returns a random UUID. Its second half is a digest of the first, by which isOwnUID
// recognizes it. It is no secret.
func newUID() string {
	var first [8]byte
	_, _ = rand.Read(first[:]) // never fails
	first[6] = first[6]&0x0f | 0x40
	return marked(first)
}

func marked(first [8]byte) string {
	sum := sha256.Sum256(append([]byte("fastadmit webhook call "), first[:]...))
	sum[0] = sum[0]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", first[:4], first[4:6], first[6:], sum[:2], sum[2:8])
}

// isOwnUID reports whether newUID made the uid of a review, in this process or in another. If so,
// a webhook configuration points to fastadmit itself, which would call itself endlessly.
func isOwnUID(uid string) bool {
	var first [8]byte
	const begins = len("01234567-0123-0123-")
	if len(uid) < begins {
		return false
	}
	if _, err := hex.Decode(first[:], []byte(uid[:8]+uid[9:13]+uid[14:18])); err != nil {
		return false
	}
	return marked(first) == uid
}
