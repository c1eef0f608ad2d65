package codec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// warningRunesMax is how many characters all warnings of an API request may have
// together. If they have more, kube-apiserver truncates each to 256 characters
// (k8s.io/apiserver pkg/endpoints/filters/warning.go).
const warningRunesMax = 4096

// A response is short enough for the audit log. If kube-apiserver is configured to
// truncate audit events, it drops an event of more than 100 KiB of JSON
// (--audit-log-truncate-max-event-size, --audit-webhook-truncate-max-event-size).
// An event has the message, the details and the annotations; these limits leave 12 KiB
// for the rest. The longest in-tree messages name each container of a Pod several times
// and have a few KiB.
const (
	// MessageBytesMax is the longest message of a Status, as JSON.
	MessageBytesMax = 32 << 10
	// DetailsBytesMax bounds all text in the Details of a Status together, as JSON.
	DetailsBytesMax = 24 << 10
	// annotationBytesMax bounds all values of audit annotations together, as JSON.
	// When it is reached, each further value is truncated to TruncatedMin bytes.
	annotationBytesMax = 32 << 10
)

// Response is the answer to a review.
type Response struct {
	// Allowed says whether the request may proceed.
	Allowed bool
	// Status says why the request is denied. It is not sent if the request is allowed.
	Status Status
	// DeniedBy is the name of the plugin that denied the request. It is not sent.
	DeniedBy string
	// Patch is a JSON Patch (RFC 6902), empty for none. It is sent only when
	// the request is allowed; to the validating endpoint it must be empty.
	Patch []byte

	warnings        []string
	warningRunes    int
	allWarnings     bool // however long
	annotations     []annotation
	annotationBytes int // of the values, as JSON

	saved saved // at the checkpoint
}

// saved has the state of a Response at the checkpoint.
type saved struct{ warnings, warningRunes, annotations, annotationBytes int }

type annotation struct{ key, value string }

// Status is the part of metav1.Status that reaches the user of a denied
// request.
type Status struct {
	Code    int32 // HTTP status; kube-apiserver replaces anything below 400 by 400
	Message string
	Reason  string // a metav1.StatusReason, "" for unknown
	Details Details
}

// Details is metav1.StatusDetails.
type Details struct {
	Name, Group, Kind, UID string
	Causes                 []Cause
	RetryAfterSeconds      int32 // becomes the user's Retry-After header
}

// Cause is metav1.StatusCause.
type Cause struct{ Type, Message, Field string }

func (r *Response) reset() {
	clear(r.warnings)
	clear(r.annotations)
	r.Allowed, r.Status, r.DeniedBy, r.Patch = false, Status{}, "", resetArena(r.Patch)
	r.warnings, r.warningRunes, r.annotations, r.annotationBytes = r.warnings[:0], 0, r.annotations[:0], 0
	r.allWarnings = false
	r.saved = saved{}
}

// Warn adds a warning, which kubectl shows to the user. Control characters become
// spaces, because kube-apiserver would drop the warning. A duplicate is ignored,
// and so is what would make all warnings longer than 4096 characters, unless KeepAllWarnings was called.
func (r *Response) Warn(text string) {
	text = strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text))
	if slices.Contains(r.warnings, text) { // before it is cut
		return
	}
	left := warningRunesMax - r.warningRunes
	if n := utf8.RuneCountInString(text); n > left && !r.allWarnings {
		text = string([]rune(text)[:left])
	}
	if text == "" {
		return
	}
	r.warningRunes += utf8.RuneCountInString(text)
	r.warnings = append(r.warnings, text)
}

// KeepAllWarnings lifts the limit of the length of all warnings, for a response that kube-apiserver does not get.
func (r *Response) KeepAllWarnings() { r.allWarnings = true }

// Warnings returns the warnings added so far. It is valid until the Review is
// released.
func (r *Response) Warnings() []string { return r.warnings }

// IsAnnotationKey reports whether kube-apiserver accepts key behind the
// webhook's name and a slash (k8s.io/apimachinery pkg/util/validation
// IsQualifiedName): at most 63 of [-A-Za-z0-9_.], alphanumeric at both ends.
func IsAnnotationKey(key string) bool {
	const keyBytesMax = 63
	if key == "" || len(key) > keyBytesMax {
		return false
	}
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && i < len(key)-1 && (c == '-' || c == '_' || c == '.'):
		default:
			return false
		}
	}
	return true
}

// Annotate adds an audit annotation. kube-apiserver puts the webhook's name and a
// slash before the key, and silently drops invalid keys; here an invalid key is an
// error. If a key is added twice, the first value is kept, as in kube-apiserver. A
// long value is truncated.
func (r *Response) Annotate(key, value string) error {
	if !IsAnnotationKey(key) {
		return fmt.Errorf("cannot add audit annotation %q: want at most 63 of [-A-Za-z0-9_.], alphanumeric at both ends", key)
	}
	for _, a := range r.annotations {
		if a.key == key {
			return nil
		}
	}
	value = TruncateString(value, max(annotationBytesMax-r.annotationBytes, TruncatedMin))
	r.annotationBytes += JSONLen(value)
	r.annotations = append(r.annotations, annotation{key, value})
	return nil
}

// Annotation returns the value of an audit annotation, "" if there is none. It is valid until the Review is released or
// reset.
func (r *Response) Annotation(key string) string {
	for _, a := range r.annotations {
		if a.key == key {
			return a.value
		}
	}
	return ""
}

// AppendResponse appends the AdmissionReview that answers r, in the API
// version of the request (k8s.io/api/admission/v1 AdmissionResponse).
func (r *Review) AppendResponse(dst []byte) []byte {
	dst = append(dst, `{"kind":"AdmissionReview","apiVersion":"`...)
	dst = append(dst, r.apiVersion...)
	dst = append(dst, `","response":{"uid":`...)
	dst = AppendString(dst, r.UID())
	a := &r.Response
	dst = append(dst, `,"allowed":`...)
	dst = strconv.AppendBool(dst, a.Allowed)
	if !a.Allowed {
		dst = append(dst, `,"status":{`...)
		dst = a.Status.appendMembers(dst)
	}
	if a.Allowed && len(a.Patch) > 0 {
		dst = append(dst, `,"patch":"`...)
		dst = AppendBase64(dst, a.Patch)
		dst = append(dst, `","patchType":"JSONPatch"`...)
	}
	if len(a.annotations) > 0 {
		dst = append(dst, `,"auditAnnotations":{`...)
		for i, annotation := range a.annotations {
			dst = appendMember(dst, i == 0, annotation.key, annotation.value)
		}
		dst = append(dst, '}')
	}
	if len(a.warnings) > 0 {
		dst = append(dst, `,"warnings":[`...)
		for i, warning := range a.warnings {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendString(dst, warning)
		}
		dst = append(dst, ']')
	}
	return append(dst, "}}"...)
}

// AppendDocument appends s as a metav1.Status of status "Failure", as the body
// of an HTTP response has it.
func (s *Status) AppendDocument(dst []byte) []byte {
	return s.appendMembers(append(dst, `{"kind":"Status","apiVersion":"v1",`...))
}

func (s *Status) appendMembers(dst []byte) []byte {
	dst = append(dst, `"metadata":{},"status":"Failure"`...)
	dst = appendOptional(dst, "message", s.Message)
	dst = appendOptional(dst, "reason", s.Reason)
	d := &s.Details
	if d.Name != "" || d.Group != "" || d.Kind != "" || d.UID != "" || len(d.Causes) > 0 || d.RetryAfterSeconds != 0 {
		dst = append(dst, `,"details":`...)
		dst = d.appendJSON(dst)
	}
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendInt(dst, int64(s.Code), 10)
	return append(dst, '}')
}

func (d *Details) appendJSON(dst []byte) []byte {
	start := len(dst)
	dst = appendOptional(dst, "name", d.Name)
	dst = appendOptional(dst, "group", d.Group)
	dst = appendOptional(dst, "kind", d.Kind)
	dst = appendOptional(dst, "uid", d.UID)
	for i := range d.Causes {
		if i == 0 {
			dst = append(dst, `,"causes":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = d.Causes[i].appendJSON(dst)
		if i == len(d.Causes)-1 {
			dst = append(dst, ']')
		}
	}
	if d.RetryAfterSeconds != 0 {
		dst = append(dst, `,"retryAfterSeconds":`...)
		dst = strconv.AppendInt(dst, int64(d.RetryAfterSeconds), 10)
	}
	dst[start] = '{' // in place of the first comma
	return append(dst, '}')
}

func (c *Cause) appendJSON(dst []byte) []byte {
	dst = appendMember(append(dst, '{'), true, "reason", c.Type)
	dst = appendOptional(dst, "message", c.Message)
	dst = appendOptional(dst, "field", c.Field)
	return append(dst, '}')
}

func appendMember(dst []byte, first bool, name, value string) []byte {
	if !first {
		dst = append(dst, ',')
	}
	dst = AppendString(dst, name)
	return AppendString(append(dst, ':'), value)
}

func appendOptional(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendMember(dst, false, name, value)
}
