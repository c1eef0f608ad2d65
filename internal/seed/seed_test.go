package seed_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/internal/seed"
)

func TestOf(t *testing.T) {
	f := func(variable string, want uint64) {
		t.Helper()
		t.Setenv(seed.Variable, variable)
		if got := seed.Of(t); got != want {
			t.Errorf("%q: got %d, want %d", variable, got, want)
		}
		if got, many := seed.Cases(t, 1, 2), want != seed.Fixed; (got == 2) != many {
			t.Errorf("%q: got %d of 2 cases", variable, got)
		}
		if a, b := seed.Rand(t).Uint64(), seed.Rand(t).Uint64(); a != b {
			t.Errorf("%q: the same seed gave %d and %d", variable, a, b)
		}
	}
	f("", seed.Fixed)
	f("7", 7)
	f("18446744073709551615", 1<<64-1)
}
