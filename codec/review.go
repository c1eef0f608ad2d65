package codec

import (
	"errors"
	"fmt"
	"slices"
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

// OtherOperation stands for all that is no operation of Kubernetes, in metrics and log lines.
const OtherOperation Operation = "other"

// Operations are those that metrics distinguish. No request can add one.
var Operations = [...]Operation{Create, Update, Delete, Connect, OtherOperation}

// Index returns the place of o in [Operations].
func (o Operation) Index() int {
	if i := slices.Index(Operations[:], o); i >= 0 {
		return i
	}
	return len(Operations) - 1
}

// GroupVersionKind names a kind, as metav1.GroupVersionKind.
type GroupVersionKind struct{ Group, Version, Kind string }

// GroupVersionResource names a resource, as metav1.GroupVersionResource.
type GroupVersionResource struct{ Group, Version, Resource string }

// Review is an AdmissionReview: the request, which is read lazily from the bytes of an
// HTTP body, and the Response to it. Acquire returns a Review from a pool, and Release
// puts it back. It must not be used by two goroutines at once.
type Review struct {
	// Object, OldObject and Options are the request's fields of these names.
	// A field that is null or absent is an empty document. Edits of Object become
	// the patch.
	Object    Object
	OldObject Object
	Options   Object

	// Response is the answer. Decode empties it.
	Response Response

	envelope   Object
	apiVersion string
	fields     [fieldCount]string // the JSON text of the request's fields
	invalid    string             // the error in one of them, "" if none
	decoded    bool               // the fields below and above may be set
	asDryRun   bool

	// Results that several plugins read, filled by the first read.
	texts       [fieldCount]string // the fields that are strings, unescaped
	hasText     [fieldCount]bool
	resource    GroupVersionResource
	hasResource bool
}

// A field is the index of a field in RequestFields.
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
	r.asDryRun = false
	r.envelope.reset("")
	r.Object.reset("")
	r.OldObject.reset("")
	r.Options.reset("")
	r.Response.reset()
	if r.decoded {
		r.apiVersion, r.invalid, r.decoded = "", "", false
		r.ClearContext()
		clear(r.texts[:])
		clear(r.hasText[:])
		r.resource, r.hasResource = GroupVersionResource{}, false
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
	r.envelope.reset(stringOf(r.envelope.views.copyOf(body)))
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

// scanRequest finds the fields of the request at c. The text that it returns is that of
// the request, which is null if there is no request.
func (r *Review) scanRequest(c *cursor) (text string, ok bool) {
	if c.pos >= len(c.text) || c.text[c.pos] != '{' {
		return c.value()
	}
	clear(r.fields[:])
	r.invalid = ""
	start := c.pos
	in := r.envelope.enter(c.text, c.pos)
	next := field(0)
	for {
		f, ok := in.predictedField(next)
		if !ok {
			if !in.member() {
				break
			}
			f = r.fieldNamed(in.written())
		}
		if f == next && (f == fieldObject || f == fieldOldObject) && r.predictedLastObject(f, in.text[in.pos:]) {
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

// setField records the text of a field of the request, "" for null.
func (r *Review) setField(f field, text string) {
	switch kind := kindOfText(text); {
	case kind == RequestFields[f].Kind:
		r.fields[f] = text
	case kind == KindNull:
		r.fields[f] = ""
	case r.invalid == "":
		r.invalid = fmt.Sprintf("request.%s: got %s, want %s", RequestFields[f].Name, orNothing(text), RequestFields[f].Kind)
	}
}

// fieldNamed returns the field with that name, which may have escapes, or fieldCount if
// there is none.
func (r *Review) fieldNamed(name string) field {
	for f := range RequestFields {
		if RequestFields[f].Name == name {
			return field(f)
		}
	}
	if strings.IndexByte(name, '\\') >= 0 {
		for f := range RequestFields {
			if r.envelope.nameIs(name, RequestFields[f].Name) {
				return field(f)
			}
		}
	}
	return fieldCount
}

// check returns the error in the envelope, "" if none.
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
	if r.invalid != "" {
		return errors.New(r.invalid)
	}
	if r.UID() == "" && o.err == nil {
		return errors.New("request.uid: got nothing, want the request's unique identifier")
	}
	return o.err
}

// stringIs reports whether the JSON text of a value is that of the string plain, which
// has no characters that must be escaped.
func (o *Object) stringIs(text, plain string) bool {
	if len(text) == len(plain)+2 && text[1:len(text)-1] == plain { // as kube-apiserver writes it
		return text[0] == '"'
	}
	return o.valueAt(text).EqualString(plain)
}

// orNothing returns text for an error message: "nothing" if it is empty, and truncated if
// it is long.
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

// Err returns the first error of the envelope, Object, OldObject or Options, in this
// order, with the name of the part before it. It wraps the error that Object.Err
// describes: a *SyntaxError, *EditError, *SizeError or *ContextError, ErrNoMemory, or an
// error that a plugin passed to Value.Refuse.
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
	if !r.hasText[f] {
		r.texts[f], r.hasText[f] = r.value(f).String(), true
	}
	return r.texts[f]
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
	if !r.hasResource {
		r.resource, r.hasResource = r.value(fieldResource).groupVersionResource(), true
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
func (r *Review) DryRun() bool { return r.asDryRun || r.value(fieldDryRun).Bool() }

// AsDryRun makes DryRun return true, whatever the request says, until it is called with false. RequestField
// returns what the request says.
func (r *Review) AsDryRun(dryRun bool) { r.asDryRun = dryRun }

// UserInfo is the user of the API request: username, uid, groups and extra, as in
// UserInfo of authentication.k8s.io/v1.
func (r *Review) UserInfo() Value { return r.value(fieldUserInfo) }

// Username is the name in UserInfo.
func (r *Review) Username() string { return r.UserInfo().Get("username").String() }
