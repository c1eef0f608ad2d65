package calls

import (
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// distinct is distinctList of cel-go's ext/lists.go. A pair of elements costs 2.
func distinct(l *Limits, args []ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	n := Size(list)
	if tooMany(n, n, 2) {
		return refused(0)
	}
	if !l.charge(relisted, args) {
		return errNoMemory
	}
	unique := make([]ref.Val, 0, n)
	for i := range n {
		v := list.Get(types.Int(i))
		seen := false
		for _, other := range unique {
			if l.IsInterrupted() {
				return errInterrupted
			}
			if seen = v.Equal(other) == types.True; seen {
				break
			}
		}
		if !seen {
			unique = append(unique, v)
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(unique)
}

// setsContains, setsEquivalent and setsIntersects are the functions of cel-go's
// ext/sets.go. A pair of elements costs 1, of sets.equivalent 2.
func setsContains(l *Limits, args []ref.Val) ref.Val {
	return ofSets(args, 1, func(a, b traits.Lister) ref.Val { return l.containsAll(a, b) })
}

func setsEquivalent(l *Limits, args []ref.Val) ref.Val {
	return ofSets(args, 2, func(a, b traits.Lister) ref.Val {
		if contains := l.containsAll(a, b); contains != types.True {
			return contains
		}
		return l.containsAll(b, a)
	})
}

func setsIntersects(l *Limits, args []ref.Val) ref.Val {
	return ofSets(args, 1, func(a, b traits.Lister) ref.Val {
		for it := a.Iterator(); it.HasNext() == types.True; {
			if l.isOver() {
				return errInterrupted
			}
			if b.Contains(it.Next()) == types.True {
				return types.True
			}
		}
		return types.False
	})
}

func ofSets(args []ref.Val, cost uint64, does func(a, b traits.Lister) ref.Val) ref.Val {
	a, ok := args[0].(traits.Lister)
	b, ok2 := args[1].(traits.Lister)
	switch {
	case !ok || !ok2:
		return nil
	case tooMany(Size(a), Size(b), cost):
		return refused(0)
	}
	return does(a, b)
}

func (l *Limits) containsAll(list, sub traits.Lister) ref.Val {
	for it := sub.Iterator(); it.HasNext() == types.True; {
		if l.isOver() {
			return errInterrupted
		}
		if contains := list.Contains(it.Next()); contains != types.True {
			return contains
		}
	}
	return types.True
}

// rangeMax is the maximum number of elements of lists.range (cel-go ext/lists.go).
const rangeMax = 1_000_000

// listsRange refuses what cel-go refuses, before its memory is charged.
func listsRange(_ *Limits, args []ref.Val) ref.Val {
	if n, ok := args[0].(types.Int); ok && n > rangeMax {
		return types.NewErr("lists.range: size %d exceeds maximum allowed (%d)", n, rangeMax)
	}
	return nil
}

// listsRangeOfNegative is listsRange until v1.36: the list of a negative number is empty.
func listsRangeOfNegative(l *Limits, args []ref.Val) ref.Val {
	if n, ok := args[0].(types.Int); ok && n < 0 {
		args[0] = types.IntZero
	}
	return listsRange(l, args)
}

// join refuses a result that costs too much: with a long separator it is far longer than
// the list. join costs twice what reading the result does.
func join(_ *Limits, args []ref.Val) ref.Val {
	list, _ := args[0].(traits.Lister)
	n, size := Size(list), uint64(0) // 1 for what is no list
	if len(args) > 1 && n != 0 {
		size = (n - 1) * Size(args[1])
	}
	if TraversalCost(size) <= celconfig.PerCallLimit/2 {
		return nil
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		v := it.Next()
		if _, ok := v.(types.String); !ok {
			args[1] = types.String("") // the error is the same with it
			return nil
		}
		size += Size(v)
	}
	return refused(size)
}

// indexOf is indexOfOffset of cel-go's ext/strings.go in linear time. Places count in
// characters.
func indexOf(_ *Limits, args []ref.Val) ref.Val {
	s, sub, offset, ok := searched(args)
	if !ok {
		return nil
	}
	begin, inside := byteAt(s, offset)
	if !inside {
		return nil // upstream returns at once
	}
	at := strings.Index(s[begin:], sub)
	if at < 0 {
		return types.Int(-1)
	}
	return types.Int(offset + utf8.RuneCountInString(s[begin:begin+at]))
}

// lastIndexOf is lastIndexOfOffset.
func lastIndexOf(_ *Limits, args []ref.Val) ref.Val {
	s, sub, offset, ok := searched(args)
	if !ok {
		return nil
	}
	end := len(s)
	if len(args) > 2 {
		begin, inside := byteAt(s, offset)
		if !inside {
			return nil
		}
		end = min(begin+len(sub), end)
	}
	at := strings.LastIndex(s[:end], sub)
	if at < 0 {
		return types.Int(-1)
	}
	return types.Int(utf8.RuneCountInString(s[:at]))
}

// lastIndexOfInEmpty is lastIndexOf of cel-go v0.23, for which no text has a place in an empty string.
func lastIndexOfInEmpty(l *Limits, args []ref.Val) ref.Val {
	if s, sub, _, ok := searched(args); ok && len(args) == 2 && s == "" && sub != "" {
		return types.NewErr("index out of range: -1")
	}
	return lastIndexOf(l, args)
}

// searched returns the arguments of a search in a string. ok is false for other arguments,
// and for text that is not UTF-8, which upstream converts before it compares.
func searched(args []ref.Val) (s, sub string, offset int, ok bool) {
	x, ok1 := args[0].(types.String)
	y, ok2 := args[1].(types.String)
	if !ok1 || !ok2 || !utf8.ValidString(string(x)) || !utf8.ValidString(string(y)) {
		return "", "", 0, false
	}
	if len(args) > 2 {
		n, isInt := args[2].(types.Int)
		offset, ok = int(n), isInt
		return string(x), string(y), offset, ok
	}
	return string(x), string(y), 0, true
}

// byteAt returns the byte where a character begins. inside is false after the last one.
func byteAt(s string, character int) (at int, inside bool) {
	for at = range s {
		if character == 0 {
			return at, true
		}
		character--
	}
	return 0, false
}
