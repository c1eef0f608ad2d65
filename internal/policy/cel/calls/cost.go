package calls

import (
	"math"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
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
