package closure

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/codec"
)

// elements iterates over the elements of an array or a list, or the names of an
// object or a map.
type elements struct {
	kind   kind // of the value; gaveUp if it has no elements
	json   codec.Iterator
	values traits.Iterator
}

func (f *frame) elements(v *value) (it elements) {
	switch v.kind {
	case kindObject, kindArray:
		return elements{kind: v.kind, json: v.json.Iterator()}
	case kindOther:
		if v.val.Type().HasTrait(traits.IterableType) {
			return elements{kind: kindOther, values: v.val.(traits.Iterable).Iterator()}
		}
	}
	return elements{}
}

// next sets v to the next element. It returns false if there is none.
func (it *elements) next(v *value) bool {
	switch it.kind {
	case kindObject:
		if it.json.Next() {
			*v = value{kind: kindText, text: it.json.Name()}
			return true
		}
	case kindArray:
		if it.json.Next() {
			*v = jsonValue(it.json.Value())
			return true
		}
	case kindOther:
		if it.values.HasNext() == types.True {
			*v = unboxed(it.values.Next())
			return true
		}
	}
	return false
}
