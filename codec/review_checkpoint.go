package codec

import "errors"

// Checkpoint saves the state of r for Rollback.
func (r *Review) Checkpoint() {
	r.Object.checkpoint()
	r.Response.checkpoint()
}

// Rollback restores the edits of Object, the warnings and the audit annotations of
// the last Checkpoint, and clears an *EditError or *ContextError. Values of Object
// that were read since the Checkpoint must not be used any more.
func (r *Review) Rollback() {
	r.Object.rollback()
	for _, o := range [...]*Object{&r.Object, &r.OldObject, &r.Options, &r.envelope} {
		if _, ok := errors.AsType[*ContextError](o.err); ok {
			o.err = nil
		}
	}
	r.Response.rollback()
}

// checkpoint copies the nodes, with the edits in them, for rollback.
func (o *Object) checkpoint() {
	if len(o.nodes) > cap(o.saved) && !o.mayGrow(cap(o.saved)*nodeBytes, (len(o.nodes)-cap(o.saved))*nodeBytes) {
		return
	}
	o.saved, o.savedChanges = append(o.saved[:0], o.nodes...), o.changes
}

// rollback restores the nodes of the checkpoint, which undoes later edits, and clears an
// *EditError.
func (o *Object) rollback() {
	o.nodes, o.changes = append(o.nodes[:0], o.saved...), o.savedChanges
	o.forgetIndex()
	if _, ok := errors.AsType[*EditError](o.err); ok {
		o.err = nil
	}
}

func (r *Response) checkpoint() {
	r.saved = saved{len(r.warnings), r.warningRunes, len(r.annotations), r.annotationBytes}
}

func (r *Response) rollback() {
	r.warnings, r.warningRunes = r.warnings[:r.saved.warnings], r.saved.warningRunes
	r.annotations, r.annotationBytes = r.annotations[:r.saved.annotations], r.saved.annotationBytes
}
