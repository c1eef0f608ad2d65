package codec

import "errors"

// Checkpoint remembers what was made of r so far, for Rollback.
func (r *Review) Checkpoint() {
	r.Object.checkpoint()
	r.Response.checkpoint()
}

// Rollback undoes, back to the last Checkpoint, the edits of Object, of which
// one may have failed, and the warnings and audit annotations. Values of Object
// that were read since must not be used any more.
func (r *Review) Rollback() {
	r.Object.rollback()
	r.Response.rollback()
}

// checkpoint remembers the edits for rollback. It costs a copy of their nodes,
// not of what they changed.
func (o *Object) checkpoint() {
	clear(o.saved)
	o.saved, o.savedChanges = append(o.saved[:0], o.edits...), o.changes
}

// rollback undoes the edits since the checkpoint, and forgets that one of them
// could not be made. Values that were read in between must not be used any
// more.
func (o *Object) rollback() {
	clear(o.edits)
	o.edits, o.changes = append(o.edits[:0], o.saved...), o.savedChanges
	if _, ok := errors.AsType[*EditError](o.err); ok {
		o.err = nil
	}
}

func (r *Response) checkpoint() {
	r.saved = saved{len(r.warnings), r.warningRunes, len(r.annotations)}
}

func (r *Response) rollback() {
	r.warnings, r.warningRunes = r.warnings[:r.saved.warnings], r.saved.warningRunes
	r.annotations = r.annotations[:r.saved.annotations]
}
