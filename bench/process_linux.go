package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticksPerSecond is USER_HZ, which Linux fixed at 100 for all that it tells
// programs on the platforms that Go runs on.
const ticksPerSecond = 100

// readProcess returns the processor time that a process has used and its
// resident memory in bytes (proc_pid_stat(5)).
func readProcess(pid int) (cpu time.Duration, resident float64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseStat(stat)
}

func parseStat(stat []byte) (cpu time.Duration, resident float64, err error) {
	const (
		utime, stime, rss = 11, 12, 21 // behind the name, which may have spaces
		fieldsMin         = rss + 1
	)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < fieldsMin {
		return 0, 0, fmt.Errorf("got %d fields behind the name of the process, want %d", len(fields), fieldsMin)
	}
	var numbers [3]int64
	for i, at := range []int{utime, stime, rss} {
		if numbers[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return 0, 0, err
		}
	}
	cpu = time.Duration(numbers[0]+numbers[1]) * (time.Second / ticksPerSecond)
	return cpu, float64(numbers[2]) * float64(os.Getpagesize()), nil
}
