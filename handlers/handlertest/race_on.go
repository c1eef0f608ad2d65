//go:build race

package handlertest

// raceEnabled says whether the race detector is on.
const raceEnabled = true
