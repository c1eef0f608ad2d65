// Package quantity parses the quantities that somebody sent, in bounded time.
package quantity

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/codec"
)

// PlacesMax is how many digits, and which exponent, a quantity may have. The time of
// resource.ParseQuantity grows with the square of the digits. Worse, an exponent
// stands for as many digits: to parse 1e-1000000000, or to compare 1e1000000000 with
// 1, computes ten to that power, which takes hours and gigabytes. With 10,000 both
// take less than 0.1 ms, and quantities of Kubernetes have 30 digits.
const PlacesMax = 10_000

// Fits reports whether a text, if it is a quantity, has no more than PlacesMax. It
// takes constant time for short texts.
func Fits(text string) bool {
	switch {
	case len(text) < len("1e10001"):
		return true
	case len(text) > PlacesMax && strings.Trim(text[:PlacesMax+1], "0123456789.+-") == "":
		return false
	}
	exponent, err := strconv.ParseInt(text[strings.LastIndexAny(text, "eE")+1:], 10, 64)
	if err != nil || !strings.ContainsAny(text, "eE") {
		return true // another suffix, none, or no quantity
	}
	exponent = int64(int32(exponent)) //nolint:gosec // ParseQuantity has it cut off like this
	return max(exponent, -exponent) <= PlacesMax
}

// ErrTooLarge is the fault of a document with a quantity that does not fit.
var ErrTooLarge = &codec.SizeError{What: "digits of a quantity, written or by its exponent", Max: PlacesMax}

// Check has the review refused if v is a quantity that does not fit, and returns the
// reason. No failure policy lets such an object pass.
func Check(v codec.Value) error {
	if Fits(v.Scalar()) {
		return nil
	}
	v.Refuse(ErrTooLarge)
	return ErrTooLarge
}

// Parse is Check and resource.ParseQuantity. The quantity keeps the text of v.
func Parse(v codec.Value) (resource.Quantity, error) {
	if err := Check(v); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(v.Scalar())
}
