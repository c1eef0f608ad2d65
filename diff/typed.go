package diff

import (
	"encoding/json"
	"fmt"

	"github.com/wI2L/jsondiff"

	"github.com/fastadmit/fastadmit/codec"
)

// Documents returns the JSON Patch that makes after of before, two JSON
// documents; nil when they are equal.
func Documents(before, after []byte) ([]byte, error) {
	patch, err := jsondiff.CompareJSON(before, after)
	if err != nil {
		return nil, fmt.Errorf("cannot compare documents: %w", err)
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return json.Marshal(patch)
}

// Typed makes the change from before to after, two values of a Go type that
// was decoded from o, in o. What is compared are the type's own encodings:
// fields of o that the type does not know stay, and fields that the type
// encodes though o does not have them are no change.
func Typed(o *codec.Object, before, after any) error {
	was, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("cannot encode %T before the change: %w", before, err)
	}
	now, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("cannot encode %T after the change: %w", after, err)
	}
	patch, err := jsondiff.CompareJSON(was, now)
	if err != nil {
		return fmt.Errorf("cannot compare encodings of %T: %w", after, err)
	}
	for _, operation := range patch {
		if err := apply(o, operation); err != nil {
			return err
		}
	}
	return o.Err()
}

// apply makes one operation of jsondiff's in o. Parents that only the type's
// encoding has are created.
func apply(o *codec.Object, operation jsondiff.Operation) error {
	path, ok := codec.AppendPath(nil, operation.Path)
	if !ok || len(path) == 0 {
		return fmt.Errorf("cannot apply %s at %q: not the pointer of a part", operation.Type, operation.Path)
	}
	if operation.Type == jsondiff.OperationRemove {
		o.Remove(path...)
		return nil
	}
	value, err := json.Marshal(operation.Value)
	if err != nil {
		return fmt.Errorf("cannot encode the value at %q: %w", operation.Path, err)
	}
	if parent := path[:len(path)-1]; !o.Get(parent...).Exists() || o.Get(parent...).IsNull() {
		o.EnsureObject(parent...)
	}
	switch operation.Type {
	case jsondiff.OperationAdd:
		o.Add(string(value), path...)
	case jsondiff.OperationReplace:
		o.Set(string(value), path...)
	default:
		return fmt.Errorf("cannot apply %s at %q: want add, remove or replace", operation.Type, operation.Path)
	}
	return nil
}
