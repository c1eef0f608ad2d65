package patching

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/codec"
)

// unknownMax is how many unknown fields Encode names at most, as kube-apiserver
// (sigs.k8s.io/json internal/golang/encoding/json/kubernetes_patch.go saveStrictError).
const unknownMax = 100

// Encode returns an object after a change as the Go type of its kind encodes it. kube-apiserver
// decodes an object into its Go type after each change, so the next policy or webhook does not see
// an empty list, for example, if the type omits it, and sees null if the change removed a list that
// the type never omits. Encode adds no other missing fields. before is the object before the change;
// Encode copies what is equal in both. Both may have only the members that differ.
//
// unknown are the paths of fields that the type does not have, unless before has them too: a newer
// kube-apiserver may have more fields. Encode copies them, and values of another type than the
// field's. With such values unknown is empty: kube-apiserver refuses the object because of them. If
// the kind is not a built-in one, Encode returns after itself.
//
// nullTimes is true for Kubernetes before v1.34, whose types encode an unset creationTimestamp as
// null (k8s.io/apimachinery pkg/apis/meta/v1/types.go ObjectMeta).
func Encode(kind codec.GroupVersionKind, before, after []byte, nullTimes bool) (encoded []byte, unknown []string, err error) {
	t := typeOf(kind)
	if t == nil {
		return after, nil, nil
	}
	var was, now codec.Object
	was.Reset(before)
	now.Reset(after)
	e := encoder{nullTimes: nullTimes, was: was.Root()}
	encoded = e.append(make([]byte, 0, len(after)), was.Root(), now.Root(), t)
	for _, err := range [...]error{was.Err(), now.Err()} {
		if err != nil {
			return nil, nil, fmt.Errorf("cannot encode a changed object: %w", err)
		}
	}
	if e.isRefused {
		e.unknown = nil
	}
	return encoded, e.unknown, nil
}

type encoder struct {
	nullTimes bool
	was       codec.Value // the object before the change
	path      []string    // of the current value
	unknown   []string
	isRefused bool // the Go type cannot have a value
}

// append appends now, a value of type t. was is the value of the same path before the change; it may
// be missing.
func (e *encoder) append(dst []byte, was, now codec.Value, t *goType) []byte {
	kind := now.Kind()
	if kind == codec.KindNull {
		return appendZero(dst, t)
	}
	if was.Kind() == kind && was.JSON() == now.JSON() {
		return now.AppendJSON(dst)
	}
	switch {
	case t.form == isPointer:
		return e.append(dst, was, now, t.of)
	case t.form == isStruct && kind == codec.KindObject:
		return e.appendStruct(dst, was, now, t)
	case t.form == isMap && kind == codec.KindObject:
		return e.appendMap(dst, was, now, t)
	case t.form == isList && kind == codec.KindArray:
		return e.appendList(dst, was, now, t)
	case t.form == isQuantity && (kind == codec.KindString || kind == codec.KindNumber):
		if q, err := resource.ParseQuantity(strings.TrimSpace(now.Scalar())); err == nil {
			return codec.AppendString(dst, q.String())
		}
	}
	e.isRefused = e.isRefused || !t.canHave(now)
	return now.AppendJSON(dst)
}

// canHave reports whether a scalar can be decoded into a Go type.
func (t *goType) canHave(v codec.Value) bool {
	var err error
	switch kind := v.Kind(); t.form {
	case isRaw:
		return true
	case isBool:
		return kind == codec.KindBool
	case isNumber:
		_, isWhole := v.Int64()
		return kind == codec.KindNumber && isWhole
	case isIntOrString:
		return kind == codec.KindNumber || kind == codec.KindString
	case isString:
		return kind == codec.KindString
	case isBytes:
		_, err = base64.StdEncoding.DecodeString(v.String())
	case isTime:
		_, err = time.Parse(time.RFC3339, v.String())
	case isDuration:
		_, err = time.ParseDuration(v.String())
	default:
		return false
	}
	return err == nil && v.Kind() == codec.KindString
}

func (e *encoder) appendStruct(dst []byte, was, now codec.Value, t *goType) []byte {
	start := len(dst)
	e.path = append(e.path, "")
	at := len(e.path) - 1
	for name, member := range now.Members() {
		field, known := t.fields[name]
		switch e.path[at] = "." + name; {
		case !known:
			if len(e.unknown) < unknownMax && !hasField(e.was, e.path) {
				e.unknown = append(e.unknown, strings.TrimPrefix(strings.Join(e.path, ""), "."))
			}
			dst = member.AppendJSON(append(codec.AppendString(append(dst, ','), name), ':'))
		case !e.omits(field, member):
			dst = e.append(append(codec.AppendString(append(dst, ','), name), ':'), was.Get(name), member, field.of)
		}
	}
	e.path = e.path[:at]
	for _, name := range t.always { // the type writes those that the change removed
		field := t.fields[name]
		if was.Get(name).Exists() && !now.Get(name).Exists() && (field.omit != "z" || e.nullTimes) {
			dst = appendZero(append(codec.AppendString(append(dst, ','), name), ':'), field.of)
		}
	}
	return closed(dst, start, '{', '}')
}

func (e *encoder) appendMap(dst []byte, was, now codec.Value, t *goType) []byte {
	start := len(dst)
	e.path = append(e.path, "")
	at := len(e.path) - 1
	old := make(map[string]codec.Value) // a map may have very many members
	for name, member := range was.Members() {
		old[name] = member
	}
	for name, member := range now.Members() {
		e.path[at] = "." + name
		dst = e.append(append(codec.AppendString(append(dst, ','), name), ':'), old[name], member, t.of)
	}
	e.path = e.path[:at]
	return closed(dst, start, '{', '}')
}

// appendList compares the elements at the same indices. Those that differ are encoded as a whole.
func (e *encoder) appendList(dst []byte, was, now codec.Value, t *goType) []byte {
	start := len(dst)
	e.path = append(e.path, "")
	at := len(e.path) - 1
	old := was.Iterator()
	for i, element := range now.Elements() {
		e.path[at] = "[" + codec.Index(i) + "]"
		dst = append(dst, ',')
		if old.Next() && old.Value().Kind() == element.Kind() && old.Value().JSON() == element.JSON() {
			dst = element.AppendJSON(dst)
		} else {
			dst = e.append(dst, codec.Value{}, element, t.of)
		}
	}
	e.path = e.path[:at]
	return closed(dst, start, '[', ']')
}

// closed puts brackets around members or elements, each of which begins with a comma.
func closed(dst []byte, start int, opening, closing byte) []byte {
	if len(dst) == start {
		return append(dst, opening, closing)
	}
	dst[start] = opening
	return append(dst, closing)
}

// omits reports whether a field is left out because of its value, which may be missing.
func (e *encoder) omits(f goField, v codec.Value) bool {
	switch f.omit {
	case "e":
		return f.of.isEmpty(v)
	case "z": // only creationTimestamp; TestTypes checks it
		return !e.nullTimes && !v.IsSet()
	}
	return false
}

// isEmpty reports whether encoding/json omits a value of a field with the option omitempty.
func (t *goType) isEmpty(v codec.Value) bool {
	if t.isGoStruct() {
		return false
	}
	switch v.Kind() {
	case codec.KindMissing, codec.KindNull:
		return true
	case codec.KindArray:
		return t.form == isList && v.Len() == 0
	case codec.KindObject:
		return t.form == isMap && v.Len() == 0
	case codec.KindString:
		return (t.form == isString || t.form == isBytes) && v.EqualString("")
	case codec.KindBool:
		return t.form == isBool && !v.Bool()
	case codec.KindNumber:
		return t.form == isNumber && !strings.ContainsAny(mantissa(v.Scalar()), "123456789")
	}
	return false
}

// mantissa returns a number without its exponent.
func mantissa(number string) string {
	if at := strings.IndexAny(number, "eE"); at >= 0 {
		return number[:at]
	}
	return number
}

// appendZero appends what a Go type encodes if null was decoded into it. The fields of a struct are
// missing, because Encode adds none.
func appendZero(dst []byte, t *goType) []byte {
	switch t.form {
	case isStruct:
		return append(dst, "{}"...)
	case isBool:
		return append(dst, "false"...)
	case isNumber, isIntOrString:
		return append(dst, '0')
	case isString:
		return append(dst, `""`...)
	case isQuantity:
		return append(dst, `"0"`...)
	case isDuration:
		return append(dst, `"0s"`...)
	}
	return append(dst, "null"...)
}

// hasField reports whether a value has a field. For an element of a list, any element may have it:
// elements may have been moved.
func hasField(v codec.Value, path []string) bool {
	for i, step := range path {
		if step[0] == '[' {
			for _, element := range v.Elements() {
				if hasField(element, path[i+1:]) {
					return true
				}
			}
			return false
		}
		v = v.Get(step[1:])
	}
	return v.Exists()
}
