package codec

// RequestField returns the field of the AdmissionRequest of that name, as JSON
// has it; a missing value if it is null, not there, or there is no such field. It is
// for callers that have names, such as expressions. Of object, oldObject and options
// it returns the document, edits included.
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
