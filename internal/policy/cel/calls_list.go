package cel

import (
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// distinct is distinctList of cel-go's ext/lists.go. A pair of elements costs 2.
func distinct(e *Evaluation, args []ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	n := actualSize(list)
	if tooMany(n, n, 2) {
		return oversized{}
	}
	unique := make([]ref.Val, 0, n)
	for i := range n {
		v := list.Get(types.Int(i))
		seen := false
		for _, other := range unique {
			if e.isInterrupted() {
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
func setsContains(e *Evaluation, args []ref.Val) ref.Val {
	return ofSets(args, 1, func(a, b traits.Lister) ref.Val { return e.containsAll(a, b) })
}

func setsEquivalent(e *Evaluation, args []ref.Val) ref.Val {
	return ofSets(args, 2, func(a, b traits.Lister) ref.Val {
		if contains := e.containsAll(a, b); contains != types.True {
			return contains
		}
		return e.containsAll(b, a)
	})
}

func setsIntersects(e *Evaluation, args []ref.Val) ref.Val {
	return ofSets(args, 1, func(a, b traits.Lister) ref.Val {
		for it := a.Iterator(); it.HasNext() == types.True; {
			if e.isOver() {
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
	case tooMany(actualSize(a), actualSize(b), cost):
		return oversized{}
	}
	return does(a, b)
}

func (e *Evaluation) containsAll(list, sub traits.Lister) ref.Val {
	for it := sub.Iterator(); it.HasNext() == types.True; {
		if e.isOver() {
			return errInterrupted
		}
		if contains := list.Contains(it.Next()); contains != types.True {
			return contains
		}
	}
	return types.True
}

// listsRange refuses the range of a number that costs too much: a number of a few
// digits takes gigabytes. An element costs 1.
func listsRange(_ *Evaluation, args []ref.Val) ref.Val {
	if n, ok := args[0].(types.Int); ok && n > celconfig.PerCallLimit {
		return refused(uint64(n))
	}
	return nil
}

// join refuses a string that costs too much: with a long separator it is far longer
// than the list. Going through it costs twice what reading it does.
func join(_ *Evaluation, args []ref.Val) ref.Val {
	list, _ := args[0].(traits.Lister)
	n, size := actualSize(list), uint64(0) // 1 for what is no list
	if len(args) > 1 && n != 0 {
		size = (n - 1) * actualSize(args[1])
	}
	if traversal(size) <= celconfig.PerCallLimit/2 {
		return nil
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		v := it.Next()
		if _, ok := v.(types.String); !ok {
			args[1] = types.String("") // with which the error is the same
			return nil
		}
		size += actualSize(v)
	}
	return refused(size)
}

// replace asks for the memory that the result takes: the product of the lengths of two
// of its arguments, for which nothing is charged.
func replace(e *Evaluation, args []ref.Val) ref.Val {
	s, _ := args[0].(types.String) // other values are refused by cel-go
	old, _ := args[1].(types.String)
	by, _ := args[2].(types.String)
	n := strings.Count(string(s), string(old))
	if len(args) > 3 {
		if most, _ := args[3].(types.Int); most >= 0 {
			n = int(min(types.Int(n), most))
		}
	}
	if grows := len(by) - len(old); n*grows > resultFree && !e.fits(len(s)+n*grows) {
		return errNoMemory
	}
	return nil
}

// resultFree is how many bytes longer than its arguments a result may be without the
// memory for it being asked for.
const resultFree = 64 << 10

// indexOf is indexOfOffset of cel-go's ext/strings.go in linear time. Places count in
// characters.
func indexOf(_ *Evaluation, args []ref.Val) ref.Val {
	s, sub, offset, ok := searched(args)
	if !ok {
		return nil
	}
	begin, inside := byteAt(s, offset)
	if !inside {
		return nil // at once
	}
	at := strings.Index(s[begin:], sub)
	if at < 0 {
		return types.Int(-1)
	}
	return types.Int(offset + utf8.RuneCountInString(s[begin:begin+at]))
}

// lastIndexOf is lastIndexOfOffset.
func lastIndexOf(_ *Evaluation, args []ref.Val) ref.Val {
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

// searched returns the arguments of a search in a string. It is not ok for others, and
// for text that is not UTF-8, of which upstream compares what became of it.
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

// byteAt returns where the character of that number begins. It is not inside behind
// the last one.
func byteAt(s string, character int) (at int, inside bool) {
	for at = range s {
		if character == 0 {
			return at, true
		}
		character--
	}
	return 0, false
}
