package codec

import "strings"

// lastObjectTail is how many bytes before the end of a review its options begin at
// most for lastObject. Those of kube-apiserver take some hundred.
const lastObjectTail = 1024

// lastObject notes the field that rest, the text from its value on, begins with, and
// all fields behind it, if it is the last object of a request as kube-apiserver
// writes it. Where it ends follows from the end of the text, so nobody goes over the
// object, which may be long. If it is not, ok is false.
//
// Behind it are oldObject, if that is another field and null, dryRun, options, and
// the three brackets that end the review. In JSON, their text is not in a string,
// because a quote in a string is escaped. And options is a member of the request,
// because no bracket is between the one that opens it and the last three.
func (r *Review) lastObject(f field, rest string) (ok bool) {
	const ends = "}}}"
	if !strings.HasPrefix(rest, "{") || !strings.HasSuffix(rest, ends) || !r.hasLeading() {
		return false
	}
	tail := max(0, len(rest)-lastObjectTail)
	options := tail + strings.LastIndexByte(rest[tail:], '{')
	if options < tail || options+strings.IndexByte(rest[options:], '}') != len(rest)-len(ends) {
		return false
	}
	object, ok := strings.CutSuffix(rest[:options], `,"dryRun":false,"options":`)
	if !ok {
		object, ok = strings.CutSuffix(rest[:options], `,"dryRun":true,"options":`)
	}
	if !ok {
		return false
	}
	dryRun := rest[len(object)+len(fieldBegins[fieldDryRun]) : options-len(fieldBegins[fieldOptions])]
	if f == fieldObject {
		object, ok = strings.CutSuffix(object, `,"oldObject":null`)
	}
	if !ok || !strings.HasSuffix(object, "}") {
		return false
	}
	r.fields[f], r.fields[fieldDryRun], r.fields[fieldOptions] = object, dryRun, rest[options:len(rest)-len("}}")] // views: their offsets count
	return true
}

// leadingFields are those that kube-apiserver writes into every request, before the
// objects.
var leadingFields = [...]field{fieldUID, fieldKind, fieldResource, fieldRequestKind, fieldRequestResource, fieldOperation, fieldUserInfo}

// hasLeading reports whether they have been read: none of them is behind the objects.
func (r *Review) hasLeading() bool {
	for _, f := range leadingFields {
		if r.fields[f] == "" {
			return false
		}
	}
	return true
}
