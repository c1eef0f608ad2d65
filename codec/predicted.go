package codec

import "strings"

// This file reads text in the form in which kube-apiserver writes it: fields in
// the order of its encoder, no white space, no escapes in names. Each function is
// a shortcut for general code with the same result, and says so if the text has
// another form; its caller then runs the general code.
//
//	predictedEnvelope      kind and apiVersion at the start of a review
//	predictedField         the next field of a request
//	predictedValue         the value of a field, such as the object
//	predictedLastObject    the end of the last object, from the end of the review
//	predictedGroupVersion  a GroupVersionKind or GroupVersionResource
//	predictedMember        the next members of an object
//	predictedElement       the next element of an array

// predictedEnvelope moves behind kind and apiVersion if the review begins with them, and
// returns their texts, or "" if not.
func (c *cursor) predictedEnvelope() (kind, apiVersion string) {
	for _, version := range [...]string{APIVersionV1, APIVersionV1beta1} {
		rest, ok := strings.CutPrefix(c.text, envelopeBegins)
		if !ok || !strings.HasPrefix(rest, version) || !strings.HasPrefix(rest[len(version):], `",`) {
			continue
		}
		c.pos = len(envelopeBegins) + len(version) + 1
		c.first = false
		return `"` + kindAdmissionReview + `"`, c.text[len(envelopeBegins)-1 : c.pos]
	}
	return "", ""
}

const envelopeBegins = `{"kind":"` + kindAdmissionReview + `","apiVersion":"`

// predictedField moves to the value of the next field. It tries next and the three fields
// behind it, because a field may be absent. One comparison checks the comma, the name and
// the colon.
func (c *cursor) predictedField(next field) (f field, ok bool) {
	rest := c.text[c.pos:]
	if c.first || len(rest) == 0 {
		return 0, false
	}
	for f = next; f < min(next+4, fieldCount); f++ {
		if begin := fieldBegins[f]; strings.HasPrefix(rest, begin) && len(rest) > len(begin) && rest[len(begin)] > ' ' {
			c.pos += len(begin)
			return f, true
		}
	}
	return 0, false
}

// fieldBegins are the texts between the value of the previous field and that of a field.
var fieldBegins = func() (begins [fieldCount]string) {
	for f, name := range fieldNames {
		begins[f] = `,"` + name + `":`
	}
	return begins
}()

// predictedValue returns the value at the start of rest. It opens objects, whose nodes
// later reads use, and compares requestKind and requestResource with kind and resource,
// which are nearly always equal.
func (r *Review) predictedValue(f field, rest string) (value string, ok bool) {
	switch f {
	case fieldObject:
		return r.Object.open(rest)
	case fieldOldObject:
		return r.OldObject.open(rest)
	case fieldRequestKind:
		value = r.fields[fieldKind]
	case fieldRequestResource:
		value = r.fields[fieldResource]
	}
	return value, value != "" && strings.HasPrefix(rest, value) // value ends with a bracket, so the field ends there, too
}

// lastObjectTailMax is how far from the end of a review predictedLastObject looks for the
// options, in bytes. kube-apiserver's options take some hundred.
const lastObjectTailMax = 1024

// predictedLastObject records field f, whose value begins rest, and all fields behind
// it, if f is the last object of the request. It finds the end of f from the end of the
// review, without going over the object, which may be long.
//
// Behind f are oldObject (if f is object; it must be null), dryRun, options, and the
// three brackets that end the review. This text cannot be a part of a string, because
// its quotes would be escaped. And options is a member of the request, because there is
// no bracket between the one that opens it and the last three.
func (r *Review) predictedLastObject(f field, rest string) (ok bool) {
	const ends = "}}}"
	if !strings.HasPrefix(rest, "{") || !strings.HasSuffix(rest, ends) || !r.hasLeading() {
		return false
	}
	tail := max(0, len(rest)-lastObjectTailMax)
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

// leadingFields are the fields that kube-apiserver writes before the objects in every
// request.
var leadingFields = [...]field{fieldUID, fieldKind, fieldResource, fieldRequestKind, fieldRequestResource, fieldOperation, fieldUserInfo}

// hasLeading reports whether all leadingFields have been read, so that none of them is
// behind the objects.
func (r *Review) hasLeading() bool {
	for _, f := range leadingFields {
		if r.fields[f] == "" {
			return false
		}
	}
	return true
}

// predictedGroupVersion is groupVersion for {"group":...,"version":...,LAST:...}.
func predictedGroupVersion(text, last string) (group, version, name string, ok bool) {
	if group, text, ok = predictedString(text, `{"group":"`); !ok {
		return "", "", "", false
	}
	if version, text, ok = predictedString(text, `,"version":"`); !ok {
		return "", "", "", false
	}
	if text, ok = strings.CutPrefix(text, `,"`); !ok {
		return "", "", "", false
	}
	if text, ok = strings.CutPrefix(text, last); !ok {
		return "", "", "", false
	}
	name, text, ok = predictedString(text, `":"`)
	return group, version, name, ok && strings.HasPrefix(text, "}")
}

// predictedString returns the plain string that follows before at the start of text, and
// the text behind it.
func predictedString(text, before string) (plain, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, before); !ok {
		return "", "", false
	}
	end := strings.IndexByte(rest, '"')
	if end < 0 || !isPlain(rest[:end]) {
		return "", "", false
	}
	return rest[:end], rest[end+1:], true
}

// predictedMember makes nodes for the next members of the object at n, up to the member
// with that name. It returns the last node that it made, 0 if it made none, and whether
// the node has the name.
func (o *Object) predictedMember(n nodeID, name string) (m nodeID, found bool) {
	at, last := o.nodes[n].at, o.nodes[n].lastChild
	text, base := o.textAt(at)
	pos := int(at-base) + 1
	if last != 0 {
		end := o.endOf(last)
		if pos = int(end-base) + 1; end == 0 || pos > len(text) || text[pos-1] != ',' {
			return 0, false
		}
	}
	for pos < len(text) && text[pos] == '"' && !o.isFull() {
		end := quoteAt(text, pos+1)
		if end+2 >= len(text) || text[end] != '"' || text[end+1] != ':' || text[end+2] <= ' ' {
			break
		}
		at := end + 2
		m = o.link(n, base+offset(pos+1), int32(end-pos-1), base+offset(at))
		if found = end-pos-1 == len(name) && text[pos+1:end] == name; found {
			break
		}
		if pos = o.skipValue(text, at); pos < 0 {
			break
		}
		o.nodes[m].end = base + offset(pos)
		if pos >= len(text) || text[pos] != ',' {
			o.close(n, text, pos, base)
			break
		}
		pos++
	}
	return m, found
}

// predictedElement returns where the next element of an array begins. pos is the end of
// the element before it or, for the first one, the offset behind the bracket. It returns
// 0 if there is white space or no element.
func predictedElement(text string, pos int, first bool) (at int) {
	if !first {
		if pos >= len(text) || text[pos] != ',' {
			return 0
		}
		pos++
	}
	if pos >= len(text) || text[pos] <= ' ' || text[pos] == ']' || text[pos] == ',' {
		return 0
	}
	return pos
}
