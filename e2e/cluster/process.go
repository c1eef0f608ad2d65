// Package cluster runs what tests need of a real cluster: etcd, kube-apiserver,
// kube-controller-manager and the built fastadmit. Everything listens on ports
// of 127.0.0.1 that the system picks, and ends with the test that started it.
package cluster

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// binaries is where make e2e puts what it builds, logs where processes
	// write theirs; both seen from a package of this module.
	binaries = "../.cache"
	logs     = "../.cache/logs"

	// stopMax is how long a process may take to end on SIGTERM. fastadmit gives
	// connections without a request 5 s from when they were opened, and calls
	// their answers, which take up to 3 s here; the rest is for other work on the
	// machine. startMax is how long it may take to be ready.
	stopMax  = 15 * time.Second
	startMax = 90 * time.Second
)

// A process that the test runs.
type process struct {
	name string
	log  string // file with its output
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// start starts a command. It is ended with the test. Its output goes to a
// file, which is removed if the test passes; lines of standard output go to
// stdout too, if that is not nil.
func start(t testing.TB, name string, stdout io.Writer, command string, arguments ...string) *process {
	t.Helper()
	dir := filepath.Join(logs, t.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(file, command, strings.Join(arguments, " "))
	p := &process{name: name, log: file.Name(), cmd: exec.Command(command, arguments...), done: make(chan struct{})}
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
		p.stop(t)
		if t.Failed() {
			t.Logf("log of %s: %s", name, p.log)
		} else {
			_ = os.Remove(p.log)
		}
	})
	return p
}

func (p *process) stop(t testing.TB) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	select {
	case <-p.done:
	case <-time.After(stopMax):
		t.Errorf("%s has not ended %s after SIGTERM", p.name, stopMax)
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended
	<-p.done
}

// await waits until ready returns nil.
func (p *process) await(t testing.TB, ready func() error) {
	t.Helper()
	deadline := time.Now().Add(startMax)
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended: %v\n%s", p.name, p.cmd.ProcessState, tail(p.log))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready after %s: %v\n%s", p.name, startMax, err, tail(p.log))
		}
	}
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

// freePort returns a port that nobody listens on. The processes cannot pick
// one themselves.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// writeFile writes a file that lives as long as the test and returns its path.
func writeFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
