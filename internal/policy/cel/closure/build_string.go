package closure

import (
	"regexp"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
)

// size is the function size. It costs 1.
func (b *builder) size(e ast.Expr, c ast.CallExpr) closure {
	fn := b.function(e, c)
	args := b.args(c)
	if args == nil {
		return nil
	}
	arg := args[0]
	return func(f *frame) value {
		v := arg(f)
		switch v.kind {
		case kindText, kindObject, kindArray:
			if f.steps(1) {
				return value{kind: kindInt, bits: f.size(&v)}
			}
		case kindOther:
			return fn.apply(f, []ref.Val{v.val})
		}
		return value{}
	}
}

// stringFunction is a function with two strings.
func (b *builder) stringFunction(e ast.Expr, c ast.CallExpr) closure {
	args := b.args(c)
	if args == nil {
		return nil
	}
	first, second := args[0], args[1]
	var does func(x, y string) bool
	var costs calls.Cost
	overload := b.overload(e)
	switch overload {
	case overloads.StartsWithString:
		does, costs = strings.HasPrefix, costOfSecond
	case overloads.EndsWithString:
		does, costs = strings.HasSuffix, costOfSecond
	case overloads.ContainsString:
		does, costs = strings.Contains, costOfContains
	case overloads.MatchesString:
		does, costs = b.matchesConstant(b.constant(c.Args()[0])), calls.MatchesCost
	}
	if does == nil {
		return nil
	}
	if other := calls.CostOf(b.version, overload); other != nil {
		costs = other
	}
	return func(f *frame) value {
		x := first(f)
		if x.kind != kindText {
			return value{}
		}
		y := second(f)
		if y.kind != kindText {
			return value{}
		}
		if result := does(x.text, y.text); f.call(costs(f.size(&x), f.size(&y))) {
			return boolValue(result)
		}
		return value{}
	}
}

// matchesConstant returns a function that matches a literal regular expression; nil if it is
// no literal, or does not compile.
func (b *builder) matchesConstant(literal ref.Val) func(x, _ string) bool {
	pattern, ok := literal.(types.String)
	if !ok {
		return nil
	}
	re, err := regexp.Compile(string(pattern))
	if err != nil {
		b.refused = true
		return nil
	}
	return func(x, _ string) bool { return re.MatchString(x) }
}

// costOfSecond is the cost of reading the second string.
func costOfSecond(_, y uint64) uint64 { return calls.TraversalCost(y) }

// costOfContains is the cost of reading the second string at each character of the first.
func costOfContains(x, y uint64) uint64 { return calls.TraversalCost(x) * calls.TraversalCost(y) }
