package tally

import "os"

// Full is the environment variable that asks for all generated cases, as "make
// e2e-full" sets it.
const Full = "FASTADMIT_E2E_FULL"

// Cases returns how many cases to generate: few in CI, or all.
func Cases(few, all int) int {
	if os.Getenv(Full) != "" {
		return all
	}
	return few
}
