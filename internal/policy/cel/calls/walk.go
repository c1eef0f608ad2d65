package calls

import (
	"strings"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// A value may have the same part very often: each of [a, a], [b, b] with b for the first list, and so on has twice as many
// parts as the one before, and costs three. The values of a policy's variables may even be in themselves, as in
// ['x'].map(e, variables). Functions that read all parts, and upstream's cost of some, would read them for minutes, or
// overflow the stack, which ends the process. So the parts are counted before.

const (
	// partsMax is how many parts of a value a function may read, and how many elements a list may have: a little more than
	// an expression may cost. In-tree, most functions would exceed the cost.
	partsMax = 1 << 20

	// partBytes is how many bytes of JSON are read in the time of a part.
	partBytes = 64

	// nestingMax is how deep the parts may be.
	nestingMax = 1 << 12
)

// A walk counts the parts of values.
type walk struct {
	left int // the parts that may still be read
	// variables is true if what is neither a list nor a map, but has members, is read too, such as a policy's variables.
	variables bool
}

// fits reports whether all parts of a value may be read.
func (w *walk) fits(v ref.Val, depth int) bool {
	if w.left--; w.left < 0 || depth > nestingMax {
		return false
	}
	switch v := v.(type) {
	case *view.Object:
		w.text(v.JSON().JSON())
	case *view.List:
		w.text(v.JSON().JSON())
	case *types.Optional:
		return !v.HasValue() || w.fits(v.GetValue(), depth+1)
	case traits.Lister:
		n := Size(v)
		if n > uint64(w.left) {
			return false
		}
		for i := range n { // an iterator would be allocated for each list
			if !w.fits(v.Get(types.Int(i)), depth+1) {
				return false
			}
		}
	case traits.Mapper:
		if !w.variables && v.Type() != types.MapType {
			return true
		}
		for it := v.Iterator(); it.HasNext() == types.True; {
			if key := it.Next(); !w.fits(key, depth+1) || !w.fits(v.Get(key), depth+1) {
				return false
			}
		}
	}
	return w.left >= 0
}

// text counts the parts of JSON.
func (w *walk) text(json string) { w.left -= strings.Count(json, ",") + len(json)/partBytes }

// reads reports whether a function may read all parts of a value.
func (l *Limits) reads(v ref.Val, variables bool) bool {
	w := walk{left: partsMax, variables: variables}
	fits := w.fits(v, 0)
	l.Look(uint(partsMax - max(w.left, 0)))
	return fits
}

// Compares reports whether two values may be compared. It is false after the memory of the evaluation is exhausted, and
// exhausts it if the comparison would read too many parts. A comparison ends with the smaller one of both.
func (l *Limits) Compares(x, y ref.Val) bool {
	if !l.exhausted && hasParts(x) && hasParts(y) && !l.reads(x, false) && !l.reads(y, false) {
		l.exhausted = true
	}
	return !l.exhausted
}

func hasParts(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper, *types.Optional:
		return true
	}
	return false
}

// reading has the functions that read all parts of an argument, and whether they may.
var reading = map[string]func(l *Limits, args []ref.Val) bool{
	// Upstream's cost of these counts all parts.
	"includes":    readsFirst,
	"indexOf":     readsFirst,
	"isSorted":    readsFirst,
	"lastIndexOf": readsFirst,
	"max":         readsFirst,
	"min":         readsFirst,
	"sum":         readsFirst,

	// These compare elements.
	operators.In: func(l *Limits, args []ref.Val) bool {
		return !hasParts(args[0]) || l.reads(args[1], false)
	},
	"distinct":        comparesElements,
	"sets.contains":   comparesElements,
	"sets.equivalent": comparesElements,
	"sets.intersects": comparesElements,

	"format": func(l *Limits, args []ref.Val) bool { return l.reads(args[1], false) },

	operators.Add: func(_ *Limits, args []ref.Val) bool {
		x, isList := args[0].(traits.Lister)
		y, isList2 := args[1].(traits.Lister)
		return !isList || !isList2 || Size(x)+Size(y) <= partsMax
	},
}

func readsFirst(l *Limits, args []ref.Val) bool { return l.reads(args[0], true) }

func comparesElements(l *Limits, args []ref.Val) bool {
	for _, arg := range args {
		if !l.reads(arg, false) {
			return false
		}
	}
	return true
}

// read returns a Func that exhausts the memory of the evaluation if the function may not read its arguments. does may be
// nil.
func read(does Func, reads func(l *Limits, args []ref.Val) bool) Func {
	if reads == nil {
		return does
	}
	return func(l *Limits, args []ref.Val) ref.Val {
		if !reads(l, args) {
			l.exhausted = true
			return errNoMemory
		}
		if does != nil {
			return does(l, args)
		}
		return nil
	}
}
