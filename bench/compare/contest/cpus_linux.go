package contest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// cpus are the processors of this process (own) and of the contenders (servers). another is a
// processor other than the servers', if there is one.
type cpus struct{ own, servers, another unix.CPUSet }

// splitCPUs gives the last processor to the servers and the others to this process. If there is
// only one, they share it.
func splitCPUs() (cpus, error) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return cpus{}, err
	}
	c := cpus{own: all}
	first, last := -1, -1
	for i := range 1024 {
		if !all.IsSet(i) {
			continue
		}
		if first < 0 {
			first = i
		}
		last = i
	}
	c.another.Set(first)
	c.servers.Set(last)
	if all.Count() > 1 {
		c.own.Clear(last)
	}
	runtime.GOMAXPROCS(c.own.Count())
	// Threads inherit the affinity of the thread that starts them. The second round catches those
	// that were started during the first.
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return c, err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return c, err
			}
			if err := unix.SchedSetaffinity(id, &c.own); err != nil && err != unix.ESRCH {
				return c, err
			}
		}
	}
	return c, nil
}

// String describes which processors the generator and the servers use.
func (c *cpus) String() string {
	if c.own == c.servers {
		return "generator and server share one processor"
	}
	return fmt.Sprintf("the server has one processor, the generator %d", c.own.Count())
}

// Trace moves the calling thread and the thread that it traces to the same processor, because
// switching is faster there: to the servers' processor, or to another one if another is set and
// there is one.
func (a *Arena) Trace(thread int, another bool) error {
	at := a.cpus.servers
	if another {
		at = a.cpus.another
	}
	for _, id := range []int{0, thread} {
		if err := unix.SchedSetaffinity(id, &at); err != nil {
			return err
		}
	}
	return nil
}

// start starts a command on the servers' processor. A process inherits the affinity of the thread
// that starts it.
func (c *cpus) start(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &c.servers); err != nil {
		return err
	}
	err := cmd.Start()
	if back := unix.SchedSetaffinity(0, &c.own); back != nil {
		return back
	}
	return err
}
