//go:build !linux

package bench

import (
	"errors"
	"time"
)

func readProcess(int) (cpu time.Duration, resident float64, err error) {
	return 0, 0, errors.New("processes can be read on Linux only; /metrics works everywhere")
}
