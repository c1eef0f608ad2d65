// Package count has code of which each kind of mutant can be made.
package count

import (
	"errors"
	"slices"
	"strings"
)

var errNegative = errors.New("negative")

// Positive reports whether n is positive.
func Positive(n int) bool { return n > 0 }

// Sum adds numbers.
func Sum(numbers []int) (sum int, err error) {
	for _, n := range numbers {
		if n < 0 && !ignored(n) {
			return 0, errNegative
		}
		sum += n
	}
	return sum, nil
}

func ignored(n int) bool { return slices.Contains([]int{-1, -2}, n) }

// Kept is a text.
var Kept string

// Keep keeps a text.
func Keep(text string) {
	Kept = strings.Clone(text)
	log()
}

func log() {}

// Unreached is called by no test.
func Unreached() int { return 7 }
