package bench

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An alarm sleeps with the precision of the kernel's timers, about 30 µs. On an idle machine,
// time.Sleep is late by half a millisecond on average, which is longer than the latencies to be
// measured.
type alarm struct {
	fd   int
	file *os.File
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

func (a *alarm) sleep(d time.Duration) {
	var expired [8]byte
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if unix.TimerfdSettime(a.fd, 0, &spec, nil) != nil {
		time.Sleep(d)
		return
	}
	if _, err := a.file.Read(expired[:]); err != nil {
		time.Sleep(d)
	}
}

func (a *alarm) close() { a.file.Close() }
