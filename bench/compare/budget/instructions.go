package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/contest"
)

const (
	// answeredFirst is how many requests fill the pools and the caches of type switches before one
	// is counted. The runtime adds a type to such a cache on one in 1024 lookups that did not find
	// it (runtime.interfaceSwitch).
	answeredFirst = 10_000

	// answeredAlone is how many requests the client sends, one at a time, before one is counted.
	answeredAlone = 100

	// countedRequests is how many requests are counted in each of countedProcesses processes. The
	// smallest count is used, because some work is done only once in a while, and each process has
	// other seeds and addresses. The floor has little periodic work.
	countedRequests      = 4
	countedFloorRequests = 2
	countedProcesses     = 2

	// settledLooks is how many times in a row, a millisecond apart, the thread must be asleep
	// before its request counts as done.
	settledLooks = 10

	// waitingLooks bounds the search for a thread that waits for the network, in milliseconds. Ten
	// seconds are enough on a busy machine.
	waitingLooks = 10_000
)

// steppedEnv is the environment of processes that are stepped through. For them, time passes
// quickly. So nothing may be interrupted or collected because it takes long.
var steppedEnv = []string{"GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOMAXPROCS=1"}

// instructions counts the instructions that fastadmit executes for a request, and subtracts the
// floor's. It counts user mode only, which does not depend on other work of the machine.
func (o *options) instructions(ctx context.Context, stdout io.Writer, arena *contest.Arena, s *contest.Scenario, bound bound) error {
	all, where, answer, err := least(ctx, arena, contest.OurContender(), s, nil, o.keep != "")
	if err != nil {
		return err
	}
	transport, _, _, err := least(ctx, arena, contest.FloorContender(), s, answer, false)
	if err != nil {
		return err
	}
	if where != nil {
		if err := o.keepProfile(where, s.Name+".instructions.pprof"); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "%-9s %d instructions per request, %d more than the floor; allowed are %d more\n",
		s.Name, all, all-transport, bound.Instructions)
	if all-transport > bound.Instructions {
		return fmt.Errorf("got %d instructions per request more than the floor, want at most %d", all-transport, bound.Instructions)
	}
	return nil
}

// least counts the instructions of a contender for a request in several processes. It returns the
// least count and the answer. The floor is given the answer that it sends. If profiled is set,
// where is a profile of the last process.
func least(ctx context.Context, arena *contest.Arena, c contest.Contender, s *contest.Scenario, given []byte, profiled bool) (count int64, where *profile.Profile, answer []byte, err error) {
	var processes [countedProcesses]*contest.Process
	for i := range processes {
		p, err := arena.Start(c, s, contest.Settings{Env: steppedEnv}, given)
		if err != nil {
			return 0, nil, nil, err
		}
		defer p.Stop()
		if answer, err = p.Check(ctx, s); err != nil {
			return 0, nil, nil, err
		}
		processes[i] = p
	}
	var counts [countedProcesses]int64
	var group errgroup.Group // each process has a processor of its own
	for i, p := range processes {
		group.Go(func() error {
			n, at, err := step(ctx, arena, p, i > 0, profiled && i == len(processes)-1)
			if counts[i] = n; at != nil {
				where = at
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, nil, nil, fmt.Errorf("cannot count the instructions of %s: %w", c.Name, err)
	}
	return slices.Min(counts[:]), where, answer, nil
}

// step counts the instructions of a process for a request, on a processor other than the servers'
// if another is set. If profiled is set, it returns a profile.
func step(ctx context.Context, arena *contest.Arena, p *contest.Process, another, profiled bool) (count int64, where *profile.Profile, err error) {
	config, err := load(p, bench.Load{Count: answeredFirst})
	if err != nil {
		return 0, nil, err
	}
	if _, err := put(ctx, config); err != nil {
		return 0, nil, err
	}
	client := p.NewClient()
	defer client.CloseIdleConnections()
	for range answeredAlone {
		if _, err := p.Ask(ctx, client, p.Scenario); err != nil {
			return 0, nil, err
		}
	}
	s := stepper{arena: arena, another: another, process: p.Target.PID, attached: make(chan error, 1), failed: make(chan error, 1)}
	go s.run()
	if err := <-s.attached; err != nil {
		return 0, nil, err
	}
	defer s.end()
	requests := countedRequests
	if p.Contender.Name == contest.Floor {
		requests = countedFloorRequests
	}
	for i := range requests {
		if err := s.settle(); err != nil {
			return 0, nil, err
		}
		if profiled && i == requests-1 { // only the last one, because a profile makes steps slower
			s.at.Store(new(make(map[uint64]int64)))
		}
		before := s.steps.Load()
		if _, err := p.Ask(ctx, client, p.Scenario); err != nil {
			return 0, nil, err
		}
		if err := s.settle(); err != nil {
			return 0, nil, err
		}
		if n := s.steps.Load() - before; count == 0 || n < count {
			count = n
		}
	}
	if at := s.at.Load(); at != nil {
		where = profileOf(*at)
	}
	return count, where, nil
}

// A stepper runs the thread of a process that waits for the network, one instruction at a time. It
// stops the other threads until the end. (ptrace(2))
type stepper struct {
	arena    *contest.Arena
	another  bool // use a processor other than the servers'
	process  int
	thread   int   // set before a value is sent to attached
	stopped  []int // all threads
	steps    atomic.Int64
	at       atomic.Pointer[map[uint64]int64] // counts by address; nil if nobody asks for them; set while the thread waits
	attached chan error                       // gets nil once the process is traced
	failed   chan error                       // gets the reason why run returned
	ending   atomic.Bool
}

// end detaches from the process. Otherwise the kernel would report the end of a killed process to
// the tracing thread, and Wait would never return.
func (s *stepper) end() {
	s.ending.Store(true)
	if unix.Tgkill(s.process, s.thread, unix.SIGSTOP) == nil {
		err := <-s.failed
		s.failed <- err // for settle
	}
}

// run steps until end is called.
func (s *stepper) run() {
	runtime.LockOSThread() // only this thread may trace; it ends with this function
	thread, err := s.stop()
	if err == nil {
		err = s.arena.Trace(thread, s.another)
	}
	s.thread = thread
	// The count includes periodic work of the server that happens during a request. So steps should
	// be fast even if others use the processor. Without the right to set priorities, they are
	// slower.
	for _, id := range []int{0, thread} {
		_ = unix.Setpriority(unix.PRIO_PROCESS, id, -20)
	}
	s.attached <- err
	for signal := 0; err == nil && !s.ending.Load(); s.steps.Add(1) {
		if at := s.at.Load(); at != nil {
			var registers syscall.PtraceRegs
			if err = syscall.PtraceGetRegs(thread, &registers); err != nil {
				break
			}
			(*at)[registers.PC()]++
		}
		if _, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, syscall.PTRACE_SINGLESTEP, uintptr(thread), 0, uintptr(signal), 0, 0); errno != 0 {
			err = errno
			break
		}
		var status syscall.WaitStatus
		if _, err = syscall.Wait4(thread, &status, syscall.WALL, nil); err == nil && !status.Stopped() {
			err = errors.New("the process ended")
		}
		if signal = int(status.StopSignal()); signal == int(syscall.SIGTRAP) || signal == int(syscall.SIGSTOP) {
			signal = 0
		}
	}
	for _, id := range s.stopped {
		err = errors.Join(err, syscall.PtraceDetach(id))
	}
	s.failed <- err
}

// stop stops all threads and returns the one that waits for the network.
func (s *stepper) stop() (waits int, err error) {
	// On a busy machine, it takes a while after an answer until a thread waits.
	for looks := 0; waits == 0 && looks < waitingLooks; looks++ {
		if waits, err = s.waiting(); err != nil {
			return 0, err
		}
		if waits == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if waits == 0 {
		return 0, errors.New("no thread of it waits for the network")
	}
	threads, err := s.threads()
	for _, id := range threads {
		if err := syscall.PtraceAttach(id); err != nil {
			return 0, fmt.Errorf("cannot trace: %w", err)
		}
		if _, err := syscall.Wait4(id, nil, syscall.WALL, nil); err != nil {
			return 0, err
		}
		s.stopped = append(s.stopped, id)
	}
	return waits, err
}

// waiting returns the thread that waits for the network, 0 if none does.
func (s *stepper) waiting() (int, error) {
	threads, err := s.threads()
	for _, id := range threads {
		doing, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/syscall", s.process, id))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return 0, err
		}
		if bytes.HasPrefix(doing, fmt.Appendf(nil, "%d ", syscall.SYS_EPOLL_PWAIT)) {
			return id, nil
		}
	}
	return 0, err
}

// threads returns the threads of the process.
func (s *stepper) threads() (all []int, err error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", s.process))
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, id)
	}
	return all, err
}

// settle waits until the thread sleeps and keeps sleeping. The time that this takes has no meaning:
// on a busy machine, long pauses between two steps are normal.
func (s *stepper) settle() error {
	var before int64
	for asleep := 0; asleep < settledLooks; {
		select {
		case err := <-s.failed:
			return err
		case <-time.After(time.Millisecond):
		}
		sleeps, err := s.sleeps()
		if err != nil {
			return err
		}
		now := s.steps.Load()
		if asleep++; !sleeps || now != before {
			asleep = 0
		}
		before = now
	}
	return nil
}

// sleeps reports whether the thread sleeps in a system call. A thread that was stopped after a step
// does not. (proc_pid_stat(5))
func (s *stepper) sleeps() (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", s.process, s.thread))
	if err != nil {
		return false, err
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("S")), nil
}

// profileOf returns a profile for "go tool pprof BINARY PROFILE", which finds its functions and
// lines.
func profileOf(at map[uint64]int64) *profile.Profile {
	value := &profile.ValueType{Type: "instructions", Unit: "count"}
	p := &profile.Profile{SampleType: []*profile.ValueType{value}, PeriodType: value, Period: 1}
	for address, n := range at {
		location := &profile.Location{ID: uint64(len(p.Location)) + 1, Address: address}
		p.Location = append(p.Location, location)
		p.Sample = append(p.Sample, &profile.Sample{Location: []*profile.Location{location}, Value: []int64{n}})
	}
	return p
}

func (o *options) keepProfile(p *profile.Profile, file string) error {
	var content bytes.Buffer
	if err := p.Write(&content); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.dir, file), content.Bytes(), 0o644)
}
