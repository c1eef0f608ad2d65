package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A group is a control group with a memory limit and without swap. (Linux
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst)
type group struct {
	folder string // empty if there is none
	peak   string // the file with the most memory that was used, in bytes
}

// newGroup makes a control group. If it cannot, it says so, and the process has no limit but the one
// of Go's runtime.
func newGroup(memory int64) group {
	root, limit, swap, swapMax, peak := "/sys/fs/cgroup", "memory.max", "memory.swap.max", "0", "memory.peak"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		root, limit, peak = filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"
		swap, swapMax = "memory.memsw.limit_in_bytes", strconv.FormatInt(memory, 10) // memory and swap
	}
	g := group{folder: filepath.Join(root, fmt.Sprintf("fastadmit-soak-%d", os.Getpid())), peak: peak}
	err := os.Mkdir(g.folder, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(g.folder, limit), []byte(strconv.FormatInt(memory, 10)), 0o600)
		if err == nil {
			err = os.WriteFile(filepath.Join(g.folder, swap), []byte(swapMax), 0o600)
			if errors.Is(err, os.ErrNotExist) {
				err = nil // a kernel without swap accounting
			}
		}
		if err != nil {
			g.remove()
		}
	}
	if err != nil {
		fmt.Printf("no control group: %v. The process is not ended if it takes more than %d MiB; compare what is resident\n", err, memory>>20)
		return group{}
	}
	fmt.Printf("control group: %s, %d MiB of memory, no swap\n", g.folder, memory>>20)
	return g
}

// entrance is the file to which a process writes its number to enter the group.
func (g group) entrance() string {
	if g.folder == "" {
		return os.DevNull
	}
	return filepath.Join(g.folder, "cgroup.procs")
}

// remove removes the group after its processes have ended.
func (g group) remove() {
	if g.folder != "" {
		_ = os.Remove(g.folder)
	}
}

// most says how much memory the group has used at most: with the page cache and the kernel's
// buffers, as the kernel counts it before it ends a process.
func (g group) most() string {
	text, err := os.ReadFile(filepath.Join(g.folder, g.peak))
	if g.folder == "" || err != nil {
		return "unknown"
	}
	bytes, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
