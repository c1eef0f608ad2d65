package codec

// A RequestField describes a field of AdmissionRequest (k8s.io/api/admission/v1 types.go).
type RequestField struct {
	Name string
	Kind Kind // of its value, which may be null, too
	// Empty is the JSON that kube-apiserver writes for a field without a value. It leaves
	// out fields whose Empty is "".
	Empty string
}

// RequestFields are the fields of an AdmissionRequest, in the order in which kube-apiserver
// writes them. Do not change them.
var RequestFields = [fieldCount]RequestField{
	fieldUID:                {"uid", KindString, `""`},
	fieldKind:               {"kind", KindObject, "{}"},
	fieldResource:           {"resource", KindObject, "{}"},
	fieldSubResource:        {"subResource", KindString, ""},
	fieldRequestKind:        {"requestKind", KindObject, "{}"},
	fieldRequestResource:    {"requestResource", KindObject, "{}"},
	fieldRequestSubResource: {"requestSubResource", KindString, ""},
	fieldName:               {"name", KindString, ""},
	fieldNamespace:          {"namespace", KindString, ""},
	fieldOperation:          {"operation", KindString, `""`},
	fieldUserInfo:           {"userInfo", KindObject, "{}"},
	fieldObject:             {"object", KindObject, "null"},
	fieldOldObject:          {"oldObject", KindObject, "null"},
	fieldDryRun:             {"dryRun", KindBool, "false"},
	fieldOptions:            {"options", KindObject, "null"},
}

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
