package diff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	"github.com/wI2L/jsondiff"

	"github.com/fastadmit/fastadmit/codec"
)

// Documents returns the JSON Patch that makes after of before, two JSON
// documents; nil when they are equal.
func Documents(before, after []byte) ([]byte, error) {
	patch, err := jsondiff.CompareJSON(before, after, jsondiff.UnmarshalFunc(decode))
	if err != nil {
		return nil, fmt.Errorf("cannot compare documents: %w", err)
	}
	if len(patch) == 0 {
		return nil, nil
	}
	if patch[0].Path == "" {
		patch[0].Type = jsondiff.OperationReplace // kube-apiserver refuses "add" there
	}
	return json.Marshal(patch)
}

// decode is json.Unmarshal, but keeps numbers as they are written: a float64
// does not hold every int64.
func decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is more behind the document")
	}
	return nil
}

// Typed makes the change from before to after, two values of a Go type that
// was decoded from o, in o. What is compared are the type's own encodings:
// fields of o that the type does not know stay, and fields that the type
// encodes though o does not have them are no change. Where an array got longer
// or shorter, elements that are the same from either end stay what they are,
// and those between are paired in order.
func Typed(o *codec.Object, before, after any) error {
	was, err := encoded(before)
	if err != nil {
		return fmt.Errorf("cannot encode %T before the change: %w", before, err)
	}
	now, err := encoded(after)
	if err != nil {
		return fmt.Errorf("cannot encode %T after the change: %w", after, err)
	}
	if err := change(o, nil, was, now); err != nil {
		return fmt.Errorf("cannot take over the change of %T: %w", after, err)
	}
	return o.Err()
}

// encoded returns what the encoding of v means.
func encoded(v any) (plain any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	err = decode(text, &plain)
	return plain, err
}

// missing is what a member was that was not there; null is nil.
type missing struct{}

// change makes now of was at path in o.
func change(o *codec.Object, path []string, was, now any) error {
	if reflect.DeepEqual(was, now) {
		return nil
	}
	switch now := now.(type) {
	case map[string]any:
		if was, ok := was.(map[string]any); ok {
			return changeMembers(o, path, was, now)
		}
	case []any:
		was, ok := was.([]any)
		if array := o.Get(path...); ok && array.Kind() == codec.KindArray && array.Len() == len(was) {
			return changeElements(o, path, was, now)
		}
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if len(path) > 0 {
		parent := path[:len(path)-1]
		if v := o.Get(parent...); !v.IsSet() { // only the type's encoding has it
			o.EnsureObject(parent...)
		}
	}
	o.Set(string(text), path...)
	return nil
}

func changeMembers(o *codec.Object, path []string, was, now map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, ok := now[name]; !ok {
			o.Remove(append(slices.Clip(path), name)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		old, ok := was[name]
		if !ok {
			old = missing{}
		}
		if err := change(o, append(slices.Clip(path), name), old, now[name]); err != nil {
			return err
		}
	}
	return nil
}

func changeElements(o *codec.Object, path []string, was, now []any) error {
	shorter := min(len(was), len(now))
	first, last := 0, 0
	for first < shorter && reflect.DeepEqual(was[first], now[first]) {
		first++
	}
	for last < shorter-first && reflect.DeepEqual(was[len(was)-1-last], now[len(now)-1-last]) {
		last++
	}
	paired := shorter - last
	for i := first; i < paired; i++ {
		if err := change(o, append(slices.Clip(path), codec.Index(i)), was[i], now[i]); err != nil {
			return err
		}
	}
	if len(was) == len(now) {
		return nil
	}
	elements := make([]json.RawMessage, 0, len(was))
	for _, element := range o.Get(path...).Elements() {
		elements = append(elements, element.AppendJSON(nil))
	}
	var added []json.RawMessage
	for _, element := range now[paired : len(now)-last] {
		text, err := json.Marshal(element)
		if err != nil {
			return err
		}
		added = append(added, text)
	}
	text, err := json.Marshal(slices.Replace(elements, paired, len(was)-last, added...))
	if err != nil {
		return err
	}
	o.Set(string(text), path...)
	return nil
}
