// Package allocs counts allocations in tests.
package allocs

import (
	"runtime"
	"testing"
	"time"
)

// triesMax is how often PerRun counts, and pause how much longer it waits each time: 2.5 seconds in all.
const (
	triesMax = 50
	pause    = 2 * time.Millisecond
)

// PerRun returns how many allocations a run of f makes. It is [testing.AllocsPerRun] for tests that
// run among others: that counts the allocations of all goroutines. Those of tests before this one
// may still end, and a garbage collection empties the pools that f uses. So PerRun counts again until
// it finds none, and returns the smallest count: what f itself allocates is in each of them.
func PerRun(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for try := 1; try < triesMax && least > 0; try++ {
		time.Sleep(time.Duration(try) * pause)
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// Bytes returns how many bytes f allocates, and other goroutines meanwhile.
func Bytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
