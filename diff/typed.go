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

// Documents returns the JSON Patch from before to after, two JSON documents; nil if
// they are equal.
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
		return errors.New("unexpected data after the document")
	}
	return nil
}

// Typed makes the difference between before and after in o. They are two values of
// a Go type that was decoded from o. Their encodings are compared: fields of o that
// the type does not know stay, and fields that the type always encodes are no
// change. If the length of an array changed, equal elements at both ends stay, and
// the elements between are paired in order.
func Typed(o *codec.Object, before, after any) error {
	was, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("cannot encode %T before the change: %w", before, err)
	}
	return changeTyped(o, was, after)
}

// Edit calls change, which may change the value that value points to, a Go value
// that was decoded from o. If change returns true, its changes are made in o, as by
// Typed.
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
