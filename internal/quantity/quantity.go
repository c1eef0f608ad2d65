// Package quantity parses the resource quantities of a review in bounded time.
package quantity

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/codec"
)

// PlacesMax is the maximum number of digits of a quantity, and of its decimal exponent.
// The time of resource.ParseQuantity grows with the square of the number of digits. A
// large exponent is worse: parsing 1e-1000000000, or comparing 1e1000000000 with 1,
// computes that power of ten, which takes hours and gigabytes. With 10,000, both take
// less than 0.1 ms. Quantities of Kubernetes have at most 30 digits.
const PlacesMax = 10_000

// Fits reports whether a quantity is within PlacesMax. The result means nothing if text is
// not a quantity. Fits takes constant time for short texts.
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
	exponent = int64(int32(exponent)) //nolint:gosec // ParseQuantity truncates it in the same way
	return max(exponent, -exponent) <= PlacesMax
}

// ErrTooLarge is the error of a document with a quantity that exceeds PlacesMax.
var ErrTooLarge = &codec.SizeError{What: "digits of a quantity, written or by its exponent", Max: PlacesMax}

// Check returns ErrTooLarge if the quantity v exceeds PlacesMax. It also records the error
// in the review of v, so the request is denied regardless of failure policies.
func Check(v codec.Value) error {
	if Fits(v.Scalar()) {
		return nil
	}
	v.Refuse(ErrTooLarge)
	return ErrTooLarge
}

// Parse calls Check and parses v with resource.ParseQuantity. The quantity may contain a
// view of v, so it is valid as long as v.
func Parse(v codec.Value) (resource.Quantity, error) {
	if err := Check(v); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(v.Scalar())
}
