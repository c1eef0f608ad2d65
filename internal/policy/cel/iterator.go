package cel

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/fastadmit/fastadmit/codec"
)

// iterator goes over the elements of a list, or the names of an object. As a value
// it is what the iterators of cel-go are.
type iterator struct {
	codec.Iterator
	in      *places
	ofNames bool
	asked   bool // HasNext has moved to the next one
	has     bool // and there is one
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
	return valueOf(it.Iterator.Value(), it.in)
}

// ConvertToNative implements ref.Val.
func (it *iterator) ConvertToNative(reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion on iterators not supported")
}

// ConvertToType implements ref.Val.
func (it *iterator) ConvertToType(ref.Type) ref.Val { return types.NewErr("no such overload") }

// Equal implements ref.Val.
func (it *iterator) Equal(ref.Val) ref.Val { return types.NewErr("no such overload") }

// Type implements ref.Val.
func (it *iterator) Type() ref.Type { return types.IteratorType }

// Value implements ref.Val.
func (it *iterator) Value() any { return nil }
