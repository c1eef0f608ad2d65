package codec

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// The API versions of AdmissionReview that kube-apiserver sends.
const (
	APIVersionV1      = "admission.k8s.io/v1"
	APIVersionV1beta1 = "admission.k8s.io/v1beta1"
)

const kindAdmissionReview = "AdmissionReview"

// Operation is what the API request does, as AdmissionRequest has it.
type Operation string

// The operations that reach admission (k8s.io/api/admission/v1 types.go).
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// GroupVersionKind names a kind, as metav1.GroupVersionKind.
type GroupVersionKind struct{ Group, Version, Kind string }

// GroupVersionResource names a resource, as metav1.GroupVersionResource.
type GroupVersionResource struct{ Group, Version, Resource string }

// Review is an AdmissionReview: a request, read lazily from the bytes of an
// HTTP body, and the Response being made to it. Acquire gives one, Release
// takes it back. It must not be used by two goroutines at once.
type Review struct {
	// Object, OldObject and Options are the request's fields of these names.
	// They are empty documents where the request has null or nothing. Edits to
	// Object become the patch.
	Object    Object
	OldObject Object
	Options   Object

	// Response is what will be answered. Decode empties it.
	Response Response

	envelope   Object
	apiVersion string
	fields     [fieldCount]string // the JSON text of the request's fields
	wrong      string             // what is wrong with one of them
	decoded    bool               // there may be fields to forget

	// What plugins ask for again and again, once one of them did.
	plain         [fieldCount]string // the fields that are strings, without quotes
	knowsPlain    [fieldCount]bool
	resource      GroupVersionResource
	knowsResource bool
}

// A field is one of AdmissionRequest's, in the order of kube-apiserver's
// encoding (k8s.io/api/admission/v1 types.go).
type field uint8

const (
	fieldUID field = iota
	fieldKind
	fieldResource
	fieldSubResource
	fieldRequestKind
	fieldRequestResource
	fieldRequestSubResource
	fieldName
	fieldNamespace
	fieldOperation
	fieldUserInfo
	fieldObject
	fieldOldObject
	fieldDryRun
	fieldOptions
	fieldCount
)

var fieldNames = [fieldCount]string{
	"uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource",
	"name", "namespace", "operation", "userInfo", "object", "oldObject", "dryRun", "options",
}

// fieldKinds are what the fields must be, unless they are null.
var fieldKinds = [fieldCount]Kind{
	fieldUID: KindString, fieldKind: KindObject, fieldResource: KindObject, fieldSubResource: KindString,
	fieldRequestKind: KindObject, fieldRequestResource: KindObject, fieldRequestSubResource: KindString,
	fieldName: KindString, fieldNamespace: KindString, fieldOperation: KindString, fieldUserInfo: KindObject,
	fieldObject: KindObject, fieldOldObject: KindObject, fieldDryRun: KindBool, fieldOptions: KindObject,
}

var reviews = sync.Pool{New: func() any { return new(Review) }}

// Acquire returns an empty Review. Call Release in the same function.
func Acquire() *Review { return reviews.Get().(*Review) }

// Release returns r to its pool. Nothing that was read from it may be used
// afterwards.
func (r *Review) Release() {
	r.reset()
	reviews.Put(r)
}

func (r *Review) reset() {
	r.envelope.reset("")
	r.Object.reset("")
	r.OldObject.reset("")
	r.Options.reset("")
	r.Response.reset()
	if r.decoded {
		r.apiVersion, r.wrong, r.decoded = "", "", false
		r.ClearContext()
		clear(r.plain[:])
		clear(r.knowsPlain[:])
		r.resource, r.knowsResource = GroupVersionResource{}, false
		clear(r.fields[:])
	}
}

// Decode reads the AdmissionReview in body. It scans the envelope once and skips
// the objects in it. r uses body until it is released; the caller must not change
// body until then.
//
// It returns an error if body is not an AdmissionReview that can be answered: it is
// not JSON, has another kind or API version, no request, no uid, or a field of a
// wrong type.
func (r *Review) Decode(body []byte) error {
	r.reset()
	r.decoded = true
	r.envelope.reset(stringOf(r.envelope.lent.copyOf(body)))
	if err := r.scan(); err != nil {
		return fmt.Errorf("cannot decode AdmissionReview: %w", err)
	}
	r.Object.setText(r.fields[fieldObject])
	r.OldObject.setText(r.fields[fieldOldObject])
	r.Options.setText(r.fields[fieldOptions])
	r.OldObject.isReadOnly, r.Options.isReadOnly, r.envelope.isReadOnly = true, true, true
	return nil
}

func (r *Review) scan() error {
	o := &r.envelope
	if o.err != nil {
		return o.err
	}
	if len(o.text) == 0 {
		return errors.New("the body is empty")
	}
	if o.text[0] != '{' {
		o.fail(o.text, 0, "an object")
		return o.err
	}
	var request string
	c := o.enter(o.text, 0)
	kind, apiVersion := c.predictedEnvelope()
	for c.member() {
		var ok bool
		switch name := c.written(); {
		case o.nameIs(name, "request"):
			request, ok = r.scanRequest(&c)
		case o.nameIs(name, "apiVersion"):
			apiVersion, ok = c.value()
		case o.nameIs(name, "kind"):
			kind, ok = c.value()
		default:
			_, ok = c.value()
		}
		if !ok {
			break
		}
	}
	if o.err == nil && c.pos != len(o.text) {
		c.fail("nothing behind the object")
	}
	if o.err != nil {
		return o.err
	}
	return r.check(apiVersion, kind, request)
}

// scanRequest notes where the fields of the request at c are. It returns a
// text that is empty or null when there is no request.
func (r *Review) scanRequest(c *cursor) (text string, ok bool) {
	if c.pos >= len(c.text) || c.text[c.pos] != '{' {
		return c.value()
	}
	clear(r.fields[:])
	r.wrong = ""
	start := c.pos
	in := r.envelope.enter(c.text, c.pos)
	next := field(0)
	for {
		f, ok := in.predicted(next)
		if !ok {
			if !in.member() {
				break
			}
			f = r.fieldNamed(in.written())
		}
		if f == next && (f == fieldObject || f == fieldOldObject) && r.lastObject(f, in.text[in.pos:]) {
			in.pos = len(in.text) - len("}") // behind the request
			break
		}
		value, ok := r.predictedValue(f, in.text[in.pos:])
		if ok {
			in.pos += len(value)
		} else if value, ok = in.value(); !ok {
			return "", false
		}
		if f < fieldCount {
			r.setField(f, value)
			next = f + 1
		}
	}
	c.pos = in.pos
	return c.text[start:in.pos], r.envelope.err == nil
}

// setField notes a field of the request. A null is no value.
func (r *Review) setField(f field, text string) {
	switch kind := kindOfText(text); {
	case kind == fieldKinds[f]:
		r.fields[f] = text
	case kind == KindNull:
		r.fields[f] = ""
	case r.wrong == "":
		r.wrong = fmt.Sprintf("request.%s: got %s, want %s", fieldNames[f], orNothing(text), fieldKinds[f])
	}
}

// predictedEnvelope moves behind kind and apiVersion if they stand in front as
// kube-apiserver writes them, and returns their texts then.
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

// predicted moves to the value of one of the fields that kube-apiserver writes
// next, in its order and without white space: one comparison stands for the
// comma, the name and the colon.
func (c *cursor) predicted(next field) (f field, ok bool) {
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

// fieldBegins are the texts between one field's value and the next.
var fieldBegins = func() (begins [fieldCount]string) {
	for f, name := range fieldNames {
		begins[f] = `,"` + name + `":`
	}
	return begins
}()

// predictedValue returns the value that rest begins with, if there is a cheaper way to
// its end than to skip it, or one that is of use later.
func (r *Review) predictedValue(f field, rest string) (value string, ok bool) {
	switch f {
	case fieldObject:
		return r.Object.open(rest)
	case fieldOldObject:
		return r.OldObject.open(rest)
	case fieldRequestKind: // is nearly always the same
		value = r.fields[fieldKind]
	case fieldRequestResource:
		value = r.fields[fieldResource]
	}
	return value, value != "" && strings.HasPrefix(rest, value) // an object, which no value that goes on begins with
}

// fieldNamed returns the field of that name, as it is written, or fieldCount
// for unknown ones.
func (r *Review) fieldNamed(name string) field {
	switch name {
	case "uid":
		return fieldUID
	case "kind":
		return fieldKind
	case "resource":
		return fieldResource
	case "subResource":
		return fieldSubResource
	case "requestKind":
		return fieldRequestKind
	case "requestResource":
		return fieldRequestResource
	case "requestSubResource":
		return fieldRequestSubResource
	case "name":
		return fieldName
	case "namespace":
		return fieldNamespace
	case "operation":
		return fieldOperation
	case "userInfo":
		return fieldUserInfo
	case "object":
		return fieldObject
	case "oldObject":
		return fieldOldObject
	case "dryRun":
		return fieldDryRun
	case "options":
		return fieldOptions
	}
	if strings.IndexByte(name, '\\') >= 0 {
		for f, plain := range fieldNames {
			if r.envelope.nameIs(name, plain) {
				return field(f)
			}
		}
	}
	return fieldCount
}

// check says what is wrong with the envelope.
func (r *Review) check(apiVersion, kind, request string) error {
	o := &r.envelope
	if !o.stringIs(kind, kindAdmissionReview) {
		return fmt.Errorf("kind: got %s, want %q", orNothing(kind), kindAdmissionReview)
	}
	switch {
	case o.stringIs(apiVersion, APIVersionV1):
		r.apiVersion = APIVersionV1
	case o.stringIs(apiVersion, APIVersionV1beta1):
		r.apiVersion = APIVersionV1beta1
	default:
		return fmt.Errorf("apiVersion: got %s, want %q or %q", orNothing(apiVersion), APIVersionV1, APIVersionV1beta1)
	}
	switch kindOfText(request) {
	case KindObject:
	case KindMissing, KindNull:
		return errors.New("request: got nothing, want an AdmissionRequest")
	default:
		return fmt.Errorf("request: got %s, want an AdmissionRequest", orNothing(request))
	}
	if r.wrong != "" {
		return errors.New(r.wrong)
	}
	if r.UID() == "" && o.err == nil {
		return errors.New("request.uid: got nothing, want the request's unique identifier")
	}
	return o.err
}

// stringIs reports whether the JSON text of a value is that of the string
// plain, which has no characters to escape.
func (o *Object) stringIs(text, plain string) bool {
	if len(text) == len(plain)+2 && text[1:len(text)-1] == plain { // as kube-apiserver writes it
		return text[0] == '"'
	}
	return o.valueAt(text).EqualString(plain)
}

// orNothing makes a piece of a document fit for an error message.
func orNothing(text string) string {
	const shown = 64
	if text == "" {
		return "nothing"
	}
	if len(text) > shown {
		text = text[:shown] + "..."
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// Err returns the first fault that reading the request or editing its Object
// met: a *SyntaxError or an *EditError.
func (r *Review) Err() error {
	switch {
	case r.envelope.err != nil:
		return fmt.Errorf("AdmissionReview: %w", r.envelope.err)
	case r.Object.err != nil:
		return fmt.Errorf("request.object: %w", r.Object.err)
	case r.OldObject.err != nil:
		return fmt.Errorf("request.oldObject: %w", r.OldObject.err)
	case r.Options.err != nil:
		return fmt.Errorf("request.options: %w", r.Options.err)
	}
	return nil
}

// text returns a field that is a string.
func (r *Review) text(f field) string {
	if !r.knowsPlain[f] {
		r.plain[f], r.knowsPlain[f] = r.value(f).String(), true
	}
	return r.plain[f]
}

func (r *Review) value(f field) Value { return r.envelope.valueAt(r.fields[f]) }

// APIVersion returns APIVersionV1 or APIVersionV1beta1.
func (r *Review) APIVersion() string { return r.apiVersion }

// UID identifies this call; a retry has the same UID. The answer repeats it.
func (r *Review) UID() string { return r.text(fieldUID) }

// Kind is the kind of Object, after conversion to what the webhook matched.
func (r *Review) Kind() GroupVersionKind { return r.value(fieldKind).groupVersionKind() }

// Resource is the resource that the webhook matched.
func (r *Review) Resource() GroupVersionResource {
	if !r.knowsResource {
		r.resource, r.knowsResource = r.value(fieldResource).groupVersionResource(), true
	}
	return r.resource
}

// SubResource is the subresource requested, "" for none.
func (r *Review) SubResource() string { return r.text(fieldSubResource) }

// RequestKind is the kind of the original API request.
func (r *Review) RequestKind() GroupVersionKind { return r.value(fieldRequestKind).groupVersionKind() }

// RequestResource is the resource of the original API request.
func (r *Review) RequestResource() GroupVersionResource {
	return r.value(fieldRequestResource).groupVersionResource()
}

// RequestSubResource is the subresource of the original API request.
func (r *Review) RequestSubResource() string { return r.text(fieldRequestSubResource) }

// Name is the object's name, "" where the API server is yet to generate it and
// for the deletion of a collection.
func (r *Review) Name() string { return r.text(fieldName) }

// Namespace is the request's namespace, "" for cluster-scoped resources. For
// namespaces it equals the name.
func (r *Review) Namespace() string { return r.text(fieldNamespace) }

// Operation is what the request does.
func (r *Review) Operation() Operation { return Operation(r.text(fieldOperation)) }

// DryRun reports whether nothing will be persisted.
func (r *Review) DryRun() bool { return r.value(fieldDryRun).Bool() }

// UserInfo is the user of the API request: username, uid, groups and extra, as in
// UserInfo of authentication.k8s.io/v1.
func (r *Review) UserInfo() Value { return r.value(fieldUserInfo) }

// Username is the name in UserInfo.
func (r *Review) Username() string { return r.UserInfo().Get("username").String() }
