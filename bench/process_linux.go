package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// readProcess returns the CPU time that a process has used, and its resident memory in bytes
// (clock_getcpuclockid(3), proc_pid_statm(5)). This clock is exact to the microsecond; /proc counts
// in steps of 10 ms.
func readProcess(pid int) (cpu time.Duration, resident float64, err error) {
	const schedulerTime = 2 // of all threads, CPUCLOCK_SCHED (linux/posix-timers.h)
	var used unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|schedulerTime, &used); err != nil {
		return 0, 0, fmt.Errorf("cannot read its processor time: %w", err)
	}
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, 0, err
	}
	resident, err = parseStatm(statm)
	return time.Duration(used.Nano()), resident, err
}

// parseStatm returns the resident memory in bytes. statm has seven numbers of pages; the second one
// is the resident memory.
func parseStatm(statm []byte) (float64, error) {
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return 0, fmt.Errorf("got %d numbers of memory, want 7", len(fields))
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return float64(pages) * float64(os.Getpagesize()), err
}
