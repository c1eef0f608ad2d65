package recording

import (
	"sync"

	"github.com/fastadmit/fastadmit/codec"
)

// A Copy is an answered review. It owns its bytes, until it is released.
type Copy struct {
	Answer
	// Body is the AdmissionReview of the request, and Response the one of the answer, empty if that failed.
	Body, Response []byte // parts of text
	text           []byte
}

// copies pools copies with the memory of their texts: allocating a large text takes longer than filling it.
var copies = sync.Pool{New: func() any { return new(Copy) }}

// NewCopy copies an answered review. The strings of answer must not be views of the review.
func NewCopy(answer *Answer, review *codec.Review, body []byte) *Copy {
	c := copies.Get().(*Copy)
	c.Answer = *answer
	c.text = append(c.text[:0], body...)
	if answer.Decision != Failed {
		c.text = review.AppendResponse(c.text)
	}
	c.Body, c.Response = c.text[:len(body):len(body)], c.text[len(body):]
	return c
}

// Bytes returns the length of both texts.
func (c *Copy) Bytes() int64 { return int64(len(c.Body) + len(c.Response)) }

// Release returns the copy to the pool.
func (c *Copy) Release() {
	text := c.text
	if cap(text) > pooledBytesMax {
		text = nil
	}
	*c = Copy{text: text}
	copies.Put(c)
}
