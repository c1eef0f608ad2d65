//go:build !linux

package bench

import "time"

// An alarm sleeps.
type alarm struct{}

func newAlarm() (*alarm, error) { return new(alarm), nil }

func (*alarm) sleep(d time.Duration) { time.Sleep(d) }

func (*alarm) close() {}
