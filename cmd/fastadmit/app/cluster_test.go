package app

import (
	"runtime/debug"
	"testing"
)

// TestLimitGarbage expects the collector to run sooner, unless GOGC is set.
func TestLimitGarbage(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	f := func(gogc string, want int) {
		t.Helper()
		debug.SetGCPercent(100)
		t.Setenv("GOGC", gogc)
		limitGarbage()
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC=%s: got %d, want %d", gogc, got, want)
		}
	}
	f("", 50)
	f("100", 100)
}
