// Package memory divides the memory that the process may take among what holds it: bodies,
// reviews, connections and cached objects. Each has a share that nobody else can take, and all
// shares together leave room for garbage.
package memory

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// ContainerShare is the part of a container's memory limit that becomes Go's limit
	// (GOMEMLIMIT), 410 MiB in a container with 512 MiB. The rest is for the pages of the binary, 45 MiB,
	// for the kernel's buffers, and for what is allocated while a garbage collection runs.
	ContainerShare = 0.8

	// Base is the memory of a process without requests, connections and cached objects: of
	// plugins, compiled policies, stacks and Go's runtime.
	Base = 48 << 20

	// BodiesShare is the part for the headers and bodies of requests in flight: 72 MiB in a
	// container with 512 MiB, two of the largest bodies. All shares are parts of Go's limit less
	// Base.
	BodiesShare = 1.0 / 5

	// ReviewsShare is the part for what reviews take beside their bodies: 90 MiB in a
	// container with 512 MiB. One with the largest object reserves all of it, and may take up to 160 MiB
	// for a moment, of the room for garbage.
	ReviewsShare = 1.0 / 4

	// ConnectionsShare is the part for open connections: 60 MiB in a container with 512 MiB.
	ConnectionsShare = 1.0 / 6

	// RetainedShare is the part for the buffers that connections of known callers keep for their next
	// requests: 15 MiB in a container with 512 MiB, 10 KB for each of the connections.
	RetainedShare = 1.0 / 24

	// StateShare is the part for the cached objects of the cluster: 60 MiB in a container with
	// 512 MiB.
	StateShare = 1.0 / 6

	// ShadowShare is the part for reviews in the shadow, if there is one: 30 MiB in a container with 512 MiB. It is of
	// the room for garbage.
	ShadowShare = 1.0 / 12
)

// Limit returns how much memory the Go runtime may take, if that has a limit.
func Limit() (limit int64, limited bool) {
	limit = debug.SetMemoryLimit(-1) // which only asks
	if limit == math.MaxInt64 {
		return 0, false
	}
	return limit, true
}

// Share returns the bytes of a share of the process's memory, or otherwise if that has no limit.
func Share(share float64, otherwise int64) int64 {
	limit, limited := Limit()
	if !limited {
		return otherwise
	}
	return int64(float64(max(limit-Base, limit/2)) * share)
}

// SetLimit tells the Go runtime how much memory its container has, unless GOMEMLIMIT
// does. readFile is os.ReadFile.
func SetLimit(readFile func(string) ([]byte, error)) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := ofContainer(readFile); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
}

// ofContainer returns the memory that may be used of what the control group of the process
// has (Linux Documentation/admin-guide/cgroup-v2.rst, and v1), 0 if that has no limit.
func ofContainer(readFile func(string) ([]byte, error)) int64 {
	for _, file := range [...]string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		content, err := readFile(file)
		if err != nil {
			continue
		}
		bytes, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		if err != nil || bytes <= 0 || bytes >= math.MaxInt64/2 { // "max", and what v1 has for it
			return 0
		}
		return int64(float64(bytes) * ContainerShare)
	}
	return 0
}
