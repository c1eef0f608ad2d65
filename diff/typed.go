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
	was, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("cannot encode %T before the change: %w", before, err)
	}
	return changeTyped(o, was, after)
}

// Edit calls change, which may change what value points to: a value of a Go type
// that was decoded from o. What it changed is changed in o as Typed does. If it
// returns false, o stays what it is.
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
		return fmt.Errorf("cannot take over the change of %T: %w", value, err)
	}
	return nil
}
