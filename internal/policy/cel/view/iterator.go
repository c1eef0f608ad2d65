package view

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/fastadmit/fastadmit/codec"
)

// An iterator yields the elements of a list, or the names of an object.
type iterator struct {
	codec.Iterator
	IteratorVal
	in      *Index
	ofNames bool
	asked   bool // HasNext has moved to the next one
	has     bool // there is a next one
}

// HasNext implements traits.Iterator.
func (it *iterator) HasNext() ref.Val {
	if !it.asked {
		it.asked, it.has = true, it.Iterator.Next()
	}
	return types.Bool(it.has)
}

// Next implements traits.Iterator.
func (it *iterator) Next() ref.Val {
	if it.HasNext() != types.True {
		return nil
	}
	it.asked = false
	if it.ofNames {
		return types.String(it.Name())
	}
	return it.in.ValueOf(it.Iterator.Value())
}

// Value implements ref.Val.
func (it *iterator) Value() any { return it.IteratorVal.Value() }

// IteratorVal implements ref.Val as the iterators of cel-go do.
type IteratorVal struct{}

// ConvertToNative implements ref.Val.
func (IteratorVal) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion on iterators not supported")
}

// ConvertToType implements ref.Val.
func (IteratorVal) ConvertToType(ref.Type) ref.Val { return types.NewErr("no such overload") }

// Equal implements ref.Val.
func (IteratorVal) Equal(ref.Val) ref.Val { return types.NewErr("no such overload") }

// Type implements ref.Val.
func (IteratorVal) Type() ref.Type { return types.IteratorType }

// Value implements ref.Val.
func (IteratorVal) Value() any { return nil }
