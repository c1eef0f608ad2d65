package calls

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

	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// format makes the texts of lists and maps itself and gives them to upstream's function as
// strings. Upstream copies the text of a map once for each map around it, which takes
// quadratic time if they nest deep.
func format(l *Limits, args []ref.Val) ref.Val {
	text, _ := args[0].(types.String) // "" for what cel-go refuses
	given, ok := args[1].(traits.Lister)
	if !ok {
		return nil
	}
	clauses := clausesOf(string(text))
	var shown []ref.Val // the arguments for upstream's function; nil as long as all are as given
	size, bytes := int(Size(given)), len(text)
	for i, c := range clauses[:min(len(clauses), size)] {
		v := given.Get(types.Int(i))
		if t := v.Type(); c.verb != 's' || t != types.ListType && t != types.MapType {
			bytes += c.places + hexBytes*lengthOf(v) + numberBytes
			continue
		}
		f := formatter{limits: l, others: bytes}
		if !f.append(v, view.DepthMax) {
			if f.cause == nil {
				return nil
			}
			if types.IsError(f.cause) {
				return f.cause
			}
			v = f.cause // upstream has the same error for it
		} else {
			v = types.String(f.text)
			bytes += len(f.text)
		}
		if shown == nil {
			shown = make([]ref.Val, size)
			for j := range shown {
				shown[j] = given.Get(types.Int(j))
			}
		}
		shown[i] = v
	}
	if !l.Passing(3*bytes) || !l.Take(bytes) {
		return errNoMemory
	}
	if shown != nil {
		args[1] = types.DefaultTypeAdapter.NativeToValue(shown)
	}
	return nil
}

const (
	// numberBytes is the memory of the text of a number with six places: a float64 has up to 309
	// digits before the point.
	numberBytes = 320

	// hexBytes is how many digits %x writes for a byte.
	hexBytes = 2
)

// A clause is a verb of a format string, such as %.3f.
type clause struct {
	verb   byte
	places int // digits after the point
}

// clausesOf returns the clauses before the first one that is an error upstream.
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

// formatPlacesMax is how many digits after the point package fmt writes at most.
const formatPlacesMax = 1_000_000

// A formatter formats values as FormatString of cel-go's ext/formatting.go does, in linear
// time.
type formatter struct {
	limits *Limits
	text   []byte
	others int     // the bytes of the arguments before
	cause  ref.Val // why there is no text: an error, or a value with the same error upstream
}

// failAs is fail for a value without a text. Upstream has the same error for a list of it.
func (f *formatter) failAs(v ref.Val) bool {
	return f.fail(types.DefaultTypeAdapter.NativeToValue([]ref.Val{v}))
}

func (f *formatter) fail(cause ref.Val) bool {
	f.cause = cause
	return false
}

// append appends the text of a value. Values of the review that are levels deep are decoded.
func (f *formatter) append(v ref.Val, levels int) bool {
	if f.limits.IsInterrupted() {
		return f.fail(errInterrupted)
	}
	if !f.limits.Passing(3 * (f.others + len(f.text) + lengthOf(v))) {
		return f.fail(errNoMemory)
	}
	switch v := v.(type) {
	case *view.Object:
		if levels == 0 {
			return f.appendDecoded(view.Decoded(v.JSON()))
		}
		var members []member
		for it := v.JSON().Iterator(); it.Next(); {
			members = append(members, member{strconv.Quote(it.Name()), v.ValueOf(it.Value())})
		}
		return f.appendMembers(members, levels-1)
	case *view.List:
		if levels == 0 {
			return f.appendDecoded(view.Decoded(v.JSON()))
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

// A member is a member of a map, with the text of its key.
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
		name := formatter{limits: f.limits}
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
