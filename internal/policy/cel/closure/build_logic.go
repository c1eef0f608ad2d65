package closure

import (
	"cmp"
	"math"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
)

// logical is && or ||. A term with the value decides ends it: true for ||, false for &&. It
// costs what the evaluated terms cost. If the first term is an error, the result depends on
// the second one; that is left to the interpreter.
func (b *builder) logical(c ast.CallExpr, decides bool) closure {
	terms := b.args(c)
	if terms == nil {
		return nil
	}
	first, second := terms[0], terms[1]
	return func(f *frame) value {
		v := first(f)
		if v.kind != kindBool {
			return value{}
		}
		if v.isTrue() == decides {
			return v
		}
		if v = second(f); v.kind != kindBool {
			return value{}
		}
		return v
	}
}

// not is !. It costs 1.
func (b *builder) not(c ast.CallExpr) closure {
	args := b.args(c)
	if args == nil {
		return nil
	}
	arg := args[0]
	return func(f *frame) value {
		v := arg(f)
		if v.kind != kindBool || !f.steps(1) {
			return value{}
		}
		return boolValue(!v.isTrue())
	}
}

// conditional is ?:. It costs what the condition and the chosen branch cost.
func (b *builder) conditional(c ast.CallExpr) closure {
	condition, truthy, falsy := b.expr(c.Args()[0]), b.branch(c.Args()[1]), b.branch(c.Args()[2])
	if condition == nil || truthy == nil || falsy == nil {
		return nil
	}
	return func(f *frame) value {
		v := condition(f)
		switch {
		case v.kind != kindBool:
			return value{}
		case v.isTrue():
			return truthy(f)
		}
		return falsy(f)
	}
}

// equals is == or !=. It costs what reading the smaller of both does.
func (b *builder) equals(c ast.CallExpr, want bool) closure {
	args := b.args(c)
	if args == nil {
		return nil
	}
	first, second := args[0], args[1]
	return func(f *frame) value {
		x := first(f)
		if x.kind == gaveUp {
			return value{}
		}
		y := second(f)
		if y.kind == gaveUp || !x.isPlain() || !y.isPlain() {
			return value{}
		}
		if !f.call(calls.TraversalCost(min(f.size(&x), f.size(&y)))) {
			return value{}
		}
		return boolValue(f.equal(&x, &y) == want)
	}
}

// isPlain reports whether the type of the value is not from Kubernetes' libraries, where some
// comparisons have a cost of their own.
func (v *value) isPlain() bool {
	if v.kind != kindOther {
		return true
	}
	t := v.val.Type()
	return t == types.ListType || t == types.MapType
}

// equal reports whether types.Equal is true. A value that gave up equals nothing.
func (f *frame) equal(x, y *value) bool {
	if x.kind == y.kind {
		switch x.kind {
		case kindNull:
			return true
		case kindBool, kindInt:
			return x.bits == y.bits
		case kindDouble:
			return math.Float64frombits(x.bits) == math.Float64frombits(y.bits)
		case kindText:
			return x.text == y.text
		case kindObject, kindArray:
			return f.Index.Equal(x.json, y.json)
		}
	}
	if x.kind == kindNull || y.kind == kindNull || x.kind == kindText || y.kind == kindText {
		return false
	}
	a, b := f.box(x), f.box(y)
	return f.Compares(a, b) && types.Equal(a, b) == types.True
}

// compare is <, <=, > or >=. For strings that were checked to be strings it costs what
// reading the smaller one does, otherwise 1.
func (b *builder) compare(e ast.Expr, c ast.CallExpr) closure {
	args := b.args(c)
	if args == nil {
		return nil
	}
	first, second := args[0], args[1]
	holds, fn := comparisons[c.FunctionName()], b.function(e, c)
	areStrings := false
	switch b.overload(e) {
	case overloads.LessString, overloads.LessEqualsString, overloads.GreaterString, overloads.GreaterEqualsString:
		areStrings = true
	}
	return func(f *frame) value {
		x, y := first(f), second(f)
		order, known := order(&x, &y)
		if !known {
			return fn.of2(f, &x, &y)
		}
		cost := uint64(1)
		if areStrings {
			cost = calls.TraversalCost(min(f.size(&x), f.size(&y)))
		}
		if !f.call(cost) {
			return value{}
		}
		return boolValue(holds(order))
	}
}

var comparisons = map[string]func(order int) bool{
	operators.Less:          func(order int) bool { return order < 0 },
	operators.LessEquals:    func(order int) bool { return order <= 0 },
	operators.Greater:       func(order int) bool { return order > 0 },
	operators.GreaterEquals: func(order int) bool { return order >= 0 },
}

func order(x, y *value) (order int, known bool) {
	if x.kind != y.kind {
		return 0, false
	}
	switch x.kind {
	case kindInt:
		return cmp.Compare(int64(x.bits), int64(y.bits)), true
	case kindText:
		return cmp.Compare(x.text, y.text), true
	}
	return 0, false
}

// in is the operator in. For a list that was checked to be one, it costs the length of the
// list, otherwise 1. With a list of literals it costs nothing: the interpreter makes a set of
// them, or a constant if the list is empty.
func (b *builder) in(e ast.Expr, c ast.CallExpr) closure {
	if list := b.constantList(e, c); list != nil {
		return b.inConstant(c.Args()[0], list)
	}
	args := b.args(c)
	if args == nil {
		return nil
	}
	first, second := args[0], args[1]
	isList, fn := b.overload(e) == overloads.InList, b.function(e, c)
	return func(f *frame) value {
		x := first(f)
		if x.kind == gaveUp {
			return value{}
		}
		y := second(f)
		if y.kind == kindOther {
			return fn.of2(f, &x, &y)
		}
		found, known := f.contains(&y, &x)
		if !known {
			return value{}
		}
		cost := uint64(1)
		if isList {
			cost = f.size(&y)
		}
		if !f.call(cost) {
			return value{}
		}
		return boolValue(found)
	}
}

// contains does what Contains of view.Object and view.List does.
func (f *frame) contains(in, x *value) (found, known bool) {
	switch in.kind {
	case kindObject:
		return x.kind == kindText && f.Index.Member(in.json, x.text).Exists(), true
	case kindArray:
		n := uint(0)
		for it := in.json.Iterator(); !found && it.Next(); n++ {
			if x.kind == kindText {
				found = it.Value().EqualString(x.text)
			} else {
				v := jsonValue(it.Value())
				found = f.equal(x, &v)
			}
		}
		f.Look(n)
		return found, true
	}
	return false, false
}

// inConstant is the operator in with a list of literal strings.
func (b *builder) inConstant(x ast.Expr, list traits.Lister) closure {
	arg := b.expr(x)
	if arg == nil {
		return nil
	}
	set := make(map[string]bool)
	for it := list.Iterator(); it.HasNext() == types.True; {
		s, ok := it.Next().(types.String)
		if !ok {
			return nil
		}
		set[string(s)] = true
	}
	return func(f *frame) value {
		v := arg(f)
		if v.kind == gaveUp || v.kind == kindOther {
			return value{}
		}
		return boolValue(v.kind == kindText && set[v.text])
	}
}
