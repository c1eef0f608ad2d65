// Package view has the values that CEL expressions see of a review: object, oldObject and
// request. They are views of the text of the review; only what an expression uses is
// parsed.
//
// All values are valid until the review is released.
package view

import "github.com/fastadmit/fastadmit/codec"

// A Review has the values of the variables that come from an AdmissionReview. Only one
// goroutine at a time may use it.
type Review struct {
	Object, OldObject Object
	Request           Request
	Index             *Index // of both objects; nil if they are small

	index   Index
	changes int // of the object when it was read
}

// Read sets the values to those of a review, with all edits of the object.
func (r *Review) Read(review *codec.Review) {
	r.Request, r.Index, r.changes = Request{review}, nil, review.Object.Changes()
	if max(review.Object.TextLen(), review.OldObject.TextLen()) >= largeMin {
		r.index = Index{fits: review.Object.Fits}
		r.Index = &r.index
	}
	r.Object, r.OldObject = Object{review.Object.Root(), r.Index}, Object{review.OldObject.Root(), r.Index}
}

// Refresh reads the review again if the object was edited since. It reports whether it was.
func (r *Review) Refresh() bool {
	review := r.Request.review
	if review.Object.Changes() == r.changes {
		return false
	}
	r.Read(review)
	return true
}
