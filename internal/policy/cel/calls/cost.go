package calls

import (
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/fastadmit/fastadmit/admission"
)

// Size returns the size of a value as cel-go's cost tracker sees it (interpreter/
// runtimecost.go actualSize), except for optional values: no function that is counted here
// costs the size of one.
func Size(v ref.Val) uint64 {
	if s, ok := v.(traits.Sizer); ok {
		n, _ := s.Size().(types.Int)
		return uint64(n)
	}
	return 1
}

// TraversalCost is the cost of reading a string of that many characters, or that many
// elements.
func TraversalCost(size uint64) uint64 {
	return uint64(math.Ceil(float64(size) * common.StringTraversalCostFactor))
}

// MatchesCost is the cost of matching a text with a regular expression, for their sizes in
// characters: the text is read once for each four characters of the expression.
func MatchesCost(text, pattern uint64) uint64 {
	return TraversalCost(text+1) * uint64(math.Ceil(float64(pattern)*common.RegexStringLengthCostFactor))
}

// A Cost is the cost of a call for the sizes of its first two arguments.
type Cost func(x, y uint64) uint64

// before137 are the overloads whose cost changed in cel-go v0.27 (interpreter/runtimecost.go
// costCall), which Kubernetes has since 1.37.
var before137 = map[string]Cost{
	overloads.StartsWithString: costOfFirst,
	overloads.EndsWithString:   costOfFirst,
	overloads.Matches:          func(_, _ uint64) uint64 { return 1 },
}

func costOfFirst(x, _ uint64) uint64 { return TraversalCost(x) }

// CostOf returns the cost of an overload in a release, nil if it is that of the newest one.
func CostOf(v admission.Version, overload string) Cost {
	if v.AtLeast(1, 37) {
		return nil
	}
	return before137[overload]
}

// costsOf makes cel-go's interpreter count the costs of a release.
func costsOf(v admission.Version) cel.ProgramOption {
	var all []interpreter.CostTrackerOption
	if !v.AtLeast(1, 37) {
		for overload, cost := range before137 {
			all = append(all, interpreter.OverloadCostTracker(overload, func(args []ref.Val, _ ref.Val) *uint64 {
				return new(cost(Size(args[0]), Size(args[1])))
			}))
		}
	}
	return cel.CostTrackerOptions(all...)
}

// Costlier returns a function that an expression calls and that costs more in release to than in from, "" if
// there is none.
func Costlier(expression *ast.AST, from, to admission.Version) (name string) {
	if from.AtLeast(1, 37) || !to.AtLeast(1, 37) {
		return ""
	}
	// startsWith and endsWith cost less, unless what is looked for is longer than the text.
	ast.PostOrderVisit(expression.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == overloads.Matches && !e.AsCall().IsMemberFunction() {
			name = "matches(text, expression)"
		}
	}))
	return name
}
