// Package cluster runs what tests need of a real cluster: etcd, kube-apiserver,
// kube-controller-manager and the built fastadmit. Everything listens at
// addresses of this machine alone, and ends with the test that started it.
package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// cache is where make e2e puts what it builds, and logs where processes
	// write theirs; both seen from a package of this module.
	cache = "../.cache"
	logs  = cache + "/logs"

	// stopMax is how long a process may take to end on SIGTERM. fastadmit gives
	// connections without a request 5 s from when they were opened, and calls
	// their answers, which take up to 3 s here; the rest is for other work on the
	// machine. startMax is how long anything may take to be ready: twice the 90 s
	// within which the kubelet updates a volume, for machines with other work.
	stopMax  = 25 * time.Second
	startMax = 3 * time.Minute
	// pauseMax is the longest pause of Await, a twentieth of the time for which it then has waited.
	pauseMax = 250 * time.Millisecond
)

// Built returns the path of what make e2e builds.
func Built(name string) string { return filepath.Join(cache, name) }

// A Process that the test runs.
type Process struct {
	name string
	log  string // file with its output
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Start starts a command. It is ended with the test. Its output goes to a
// file, which is removed if the test passes; lines of standard output go to
// stdout too, if that is not nil.
func Start(t testing.TB, name string, stdout io.Writer, command string, arguments ...string) *Process {
	t.Helper()
	return startIn(t, nil, name, stdout, command, arguments...)
}

// startIn is Start with further variables in the environment of the process.
func startIn(t testing.TB, environment []string, name string, stdout io.Writer, command string, arguments ...string) *Process {
	t.Helper()
	dir := filepath.Join(logs, t.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(file, command, strings.Join(arguments, " "))
	p := &Process{name: name, log: file.Name(), cmd: exec.Command(command, arguments...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = file, file
	if stdout != nil {
		p.cmd.Stdout = io.MultiWriter(file, stdout)
	}
	// If the test process is killed, so is what it started.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("cannot start %s: %v; make e2e builds it", name, err)
	}
	go func() {
		defer close(p.done)
		defer file.Close()
		_ = p.cmd.Wait() // it is ended by a signal, which Wait reports as an error
	}()
	t.Cleanup(func() {
		p.Stop(t)
		if t.Failed() {
			t.Logf("log of %s: %s", name, p.log)
		} else {
			_ = os.Remove(p.log)
		}
	})
	return p
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log returns what the process has written so far.
func (p *Process) Log(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Signal sends a signal.
func (p *Process) Signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
}

// Stop asks the process to end and waits until it has.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-p.done:
	case <-time.After(stopMax):
		t.Errorf("%s has not ended %s after SIGTERM", p.name, stopMax)
		p.Kill()
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.done
}

// await waits until the process is ready, which it is when ready returns nil.
func (p *Process) await(t testing.TB, ready func() error) {
	t.Helper()
	Await(t, p.name, func() error {
		select {
		case <-p.done:
			t.Fatalf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, tail(p.log))
			return nil
		default:
			return ready()
		}
	})
}

// Await waits until ready returns nil. what describes the condition in the error. The longer it has
// waited, the less often it asks: the answer may cost a list of many objects, or a run of kubectl.
func Await(t testing.TB, what string, ready func() error) {
	t.Helper()
	for start := time.Now(); ; {
		err := ready()
		if err == nil {
			return
		}
		waited := time.Since(start)
		if waited > startMax {
			t.Fatalf("waited %s for %s: %v", startMax, what, err)
		}
		time.Sleep(min(50*time.Millisecond+waited/25, pauseMax))
	}
}

// WantError returns an error unless err contains the text.
func WantError(err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("got error %q, want one with %q", fmt.Sprint(err), text)
	}
	return nil
}

// tail returns the last lines of a log.
func tail(log string) string {
	file, err := os.Open(log)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	var lines []string
	for s := bufio.NewScanner(file); s.Scan(); {
		lines = append(lines, s.Text())
		lines = lines[max(0, len(lines)-20):]
	}
	return strings.Join(lines, "\n")
}

// WriteFile writes a file that lives as long as the test and returns its path.
func WriteFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A Buffer collects what is written to it, by any number of goroutines.
type Buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(text)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}
