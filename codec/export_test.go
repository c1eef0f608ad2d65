package codec

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests, 0 for a new one")

// Seed returns where a random test begins; -seed makes it begin there again.
func Seed(t testing.TB) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("to repeat: -run '^%s$' -seed %d", t.Name(), seed)
	return seed
}

// Checkpoint and Rollback are Review's for its Object.
func (o *Object) Checkpoint() { o.checkpoint() }
func (o *Object) Rollback()   { o.rollback() }
