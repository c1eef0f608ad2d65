package diff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/wI2L/jsondiff"

	"github.com/fastadmit/fastadmit/codec"
)

// Documents compares two JSON documents and returns the JSON Patch from before to after,
// nil if they are equal. It returns an error if a document is not JSON. It has no limit
// on the size of the patch.
//
// It is for tools that show people the difference between two documents or answers, and
// for tests. The server does not call it: its plugins edit the object, and Typed is for
// those that change Go values. So the linker drops Documents and jsondiff's comparison
// from its binary. What stays is what the inits of jsondiff and of its dependency
// github.com/tidwall/gjson refer to: 77 KB of machine code (go tool nm -size).
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

// decode is json.Unmarshal, but keeps numbers as text: a float64 cannot represent
// every int64.
func decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("unexpected data after the document")
	}
	return nil
}

// Typed applies the changes of a Go value to o. before is the value as decoded from o, and
// after is the changed value, of the same type. Typed encodes both as JSON and compares
// the texts. So fields of o that the type does not have stay, and a field that the type
// always encodes is not a change. If an array was made longer or shorter, equal elements
// at its start and end stay; those between are compared in order. The error says that a
// value cannot be encoded, or wraps the error of Change.
func Typed(o *codec.Object, before, after any) error {
	was, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("cannot encode %T before the change: %w", before, err)
	}
	return changeTyped(o, was, after)
}

// Edit calls change, which may change the Go value that value points to. The value was
// decoded from o. If change returns true, Edit applies the changes to o as Typed does. The
// errors are those of Typed.
func Edit(o *codec.Object, value any, change func() bool) error {
	was, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot encode %T before the change: %w", value, err)
	}
	if !change() {
		return nil
	}
	return changeTyped(o, was, value)
}

func changeTyped(o *codec.Object, was []byte, value any) error {
	now, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot encode %T after the change: %w", value, err)
	}
	if err := Change(o, was, now); err != nil {
		return fmt.Errorf("cannot apply the change of %T: %w", value, err)
	}
	return nil
}
