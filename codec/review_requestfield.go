package codec

// RequestField returns the field of the AdmissionRequest with that name. It is
// missing if it is null, absent or unknown. For object, oldObject and options it
// returns the document with its edits. It is for callers that get names at run
// time, such as expressions.
func (r *Review) RequestField(name string) Value {
	switch f := r.fieldNamed(name); f {
	case fieldObject:
		return r.Object.Root()
	case fieldOldObject:
		return r.OldObject.Root()
	case fieldOptions:
		return r.Options.Root()
	case fieldCount:
		return Value{}
	default:
		return r.value(f)
	}
}
