//go:build unix

package server

import (
	"math"
	"syscall"
)

// descriptorsMax returns how many file descriptors the process may have, 0 for
// what nobody knows.
func descriptorsMax() int64 {
	var limit syscall.Rlimit // the Go runtime has raised the soft limit to the hard one
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int64(min(limit.Cur, math.MaxInt64))
}
