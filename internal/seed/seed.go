// Package seed says from which seed the generated cases of tests come.
package seed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Fixed is the seed of all generated cases, so that whether a change passes .ci/run does not
// depend on luck. "make fuzz" and "make e2e-full" take fresh seeds and print them. Change it now
// and then, in a commit of its own: .ci/run then tries other cases from there on.
const Fixed = 20261124

// Variable is an environment variable with another seed. To repeat a run that a fresh seed
// made fail, set it to the seed that the run printed.
const Variable = "FASTADMIT_SEED"

// Of returns the seed of a test, and logs how to repeat the test.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := current(t)
	t.Logf("to repeat: %s=%d go test -run '^%s$'", Variable, seed, t.Name())
	return seed
}

func current(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv(Variable)
	if text == "" {
		return Fixed
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: got %q, want a number: %v", Variable, text, err)
	}
	return seed
}

// Cases returns how many cases to generate: few from the fixed seed, which are the same ones in
// each run, and all from another one, as "make fuzz" takes.
func Cases(t testing.TB, few, all int) int {
	t.Helper()
	if current(t) == Fixed {
		return few
	}
	return all
}

// Rand returns a source of random numbers that begins at the seed of a test.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Of(t), 0))
}
