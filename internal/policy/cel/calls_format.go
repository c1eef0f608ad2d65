package cel

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
)

// format has upstream put lists and maps into the result as the texts that this makes
// of them: upstream copies the text of a map for each map that it is in, which takes
// quadratic time for what nests deep.
func format(e *Evaluation, args []ref.Val) ref.Val {
	text, _ := args[0].(types.String) // "" for what cel-go refuses
	given, ok := args[1].(traits.Lister)
	if !ok {
		return nil
	}
	clauses := clausesOf(string(text))
	var shown []ref.Val // the arguments as they are given to upstream, nil as long as none is another
	size, places := int(actualSize(given)), 0
	for i, c := range clauses[:min(len(clauses), size)] {
		places += c.places
		v := given.Get(types.Int(i))
		if t := v.Type(); c.verb != 's' || t != types.ListType && t != types.MapType {
			continue
		}
		f := formatter{of: e}
		if !f.append(v, depthMax) {
			if f.cause == nil {
				return nil
			}
			if types.IsError(f.cause) {
				return f.cause
			}
			v = f.cause // has the error that the whole has
		} else {
			v = types.String(f.text)
		}
		if shown == nil {
			shown = make([]ref.Val, size)
			for j := range shown {
				shown[j] = given.Get(types.Int(j))
			}
		}
		shown[i] = v
	}
	if places > resultFree && !e.fits(places) {
		return errNoMemory
	}
	if shown != nil {
		args[1] = types.DefaultTypeAdapter.NativeToValue(shown)
	}
	return nil
}

// A clause is one of a text that is formatted.
type clause struct {
	verb   byte
	places int // behind the point
}

// clausesOf returns the clauses in front of the first that upstream has an error for.
func clausesOf(text string) (clauses []clause) {
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			continue
		}
		if i++; i < len(text) && text[i] == '%' {
			continue
		}
		var c clause
		if i < len(text) && text[i] == '.' {
			begin := i + 1
			for i++; i < len(text) && '0' <= text[i] && text[i] <= '9'; i++ {
			}
			c.places, _ = strconv.Atoi(text[begin:i])
			c.places = min(c.places, formatPlacesMax)
		}
		if i == len(text) {
			break
		}
		c.verb = text[i]
		clauses = append(clauses, c)
	}
	return clauses
}

// formatPlacesMax is how many places package fmt writes at most.
const formatPlacesMax = 1_000_000

// A formatter makes texts as FormatString of cel-go's ext/formatting.go, in linear
// time.
type formatter struct {
	of    *Evaluation
	text  []byte
	asked int     // for how many bytes there is memory
	cause ref.Val // why there is no text: an error, or a value that upstream has the same error for
}

// failAs is fail for a value that has no text, which upstream says of a list of it.
func (f *formatter) failAs(v ref.Val) bool {
	return f.fail(types.DefaultTypeAdapter.NativeToValue([]ref.Val{v}))
}

func (f *formatter) fail(cause ref.Val) bool {
	f.cause = cause
	return false
}

// append appends the text of a value, of which it goes so many levels down before it
// decodes what is in the review.
func (f *formatter) append(v ref.Val, levels int) bool {
	if f.of.isInterrupted() {
		return f.fail(errInterrupted)
	}
	if len(f.text) > f.asked+resultFree {
		if f.asked = 2 * len(f.text); !f.of.fits(f.asked) {
			return f.fail(errNoMemory)
		}
	}
	switch v := v.(type) {
	case *object:
		if levels == 0 {
			return f.appendDecoded(decodedVal(v.v))
		}
		var members []member
		for it := v.v.Iterator(); it.Next(); {
			members = append(members, member{strconv.Quote(it.Name()), valueOf(it.Value(), v.in)})
		}
		return f.appendMembers(members, levels-1)
	case *list:
		if levels == 0 {
			return f.appendDecoded(decodedVal(v.v))
		}
		return f.appendElements(v.Iterator(), levels-1)
	case traits.Mapper:
		if v.(ref.Val).Type() == types.MapType {
			return f.appendMap(v, levels)
		}
	case traits.Lister:
		return f.appendElements(v.Iterator(), levels)
	}
	return f.appendScalar(v)
}

func (f *formatter) appendDecoded(v ref.Val) bool {
	if v == nil {
		return f.fail(errNoMemory)
	}
	return f.append(v, 0)
}

// A member is one of a map, with the text of its key.
type member struct {
	key string
	v   ref.Val
}

func (f *formatter) appendMap(v traits.Mapper, levels int) bool {
	var members []member
	for it := v.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		found, ok := v.Find(key)
		if !ok {
			return f.fail(nil)
		}
		name := formatter{of: f.of}
		switch key.(type) {
		case types.String, types.Bool, types.Int, types.Uint:
			name.appendScalar(key)
		default:
			return f.fail(types.DefaultTypeAdapter.NativeToValue(map[ref.Val]ref.Val{key: types.NullValue}))
		}
		members = append(members, member{string(name.text), found})
	}
	return f.appendMembers(members, levels)
}

func (f *formatter) appendMembers(members []member, levels int) bool {
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	f.text = append(f.text, '{')
	for i, m := range members {
		if i > 0 {
			f.text = append(f.text, ", "...)
		}
		f.text = append(append(f.text, m.key...), ':')
		if !f.append(m.v, levels) {
			return false
		}
	}
	f.text = append(f.text, '}')
	return true
}

func (f *formatter) appendElements(it traits.Iterator, levels int) bool {
	f.text = append(f.text, '[')
	for first := true; it.HasNext() == types.True; first = false {
		if !first {
			f.text = append(f.text, ", "...)
		}
		if !f.append(it.Next(), levels) {
			return false
		}
	}
	f.text = append(f.text, ']')
	return true
}

func (f *formatter) appendScalar(v ref.Val) bool {
	switch v := v.(type) {
	case types.Int:
		f.text = strconv.AppendInt(f.text, int64(v), 10)
	case types.Uint:
		f.text = strconv.AppendUint(f.text, uint64(v), 10)
	case types.Double:
		text := strconv.FormatFloat(float64(v), 'f', 6, 64)
		if math.IsInf(float64(v), 0) || math.IsNaN(float64(v)) {
			text = strconv.Quote(text)
		}
		f.text = append(f.text, text...)
	case types.Timestamp:
		f.text = fmt.Appendf(f.text, "timestamp(%q)", v.ConvertToType(types.StringType).Value())
	case types.Duration:
		f.text = fmt.Appendf(f.text, "duration(%q)", v.ConvertToType(types.StringType).Value())
	case types.String, types.Bytes, types.Bool, types.Null, *types.Type:
		text, _ := ext.FormatString(v, "") // which has no error for these types
		switch v.(type) {
		case types.Bytes:
			text = "b" + strconv.Quote(text)
		case types.String:
			text = strconv.Quote(text)
		}
		f.text = append(f.text, text...)
	default:
		return f.failAs(v)
	}
	return true
}
