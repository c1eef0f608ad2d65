package tally

import "os"

// Full is the environment variable that requests all cases. "make e2e-full" sets it.
const Full = "FASTADMIT_E2E_FULL"

// Cases returns how many cases to generate: all, or few as in CI, which tries the same ones each
// time.
func Cases(few, all int) int {
	if os.Getenv(Full) != "" {
		return all
	}
	return few
}
