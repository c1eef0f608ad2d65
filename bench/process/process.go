// Package process starts the servers that the commands below bench measure, each in a process of its own.
package process

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// startMax bounds the wait for the line that a server prints when it is ready.
	startMax = 2 * time.Minute
	// readyMax is how long a server may take to read its cluster.
	readyMax = time.Minute

	// tailBytes is how much of its log an error quotes.
	tailBytes = 4096
)

// A Server is a process that serves.
type Server struct {
	// Ready is the line that it printed when it was ready. URL and Metrics are the addresses in
	// it: "https://127.0.0.1:12345" and "http://127.0.0.1:12346".
	Ready, URL, Metrics string
	// PID is the ID of the process.
	PID int

	process *os.Process
	wait    func() error
	log     string
}

var readyLine = regexp.MustCompile(`serving on (https://\S+), metrics on (http://[^\s,]+)`)

// Start starts the command with the function start, usually its own Start, and waits until it
// prints a line such as "serving on https://127.0.0.1:12345, metrics on http://127.0.0.1:12346".
// Its standard error goes to the file log. Call Kill or Stop in the end.
func Start(cmd *exec.Cmd, log string, start func() error) (*Server, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd.Stderr = file
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", cmd.Path, err)
	}
	// Nothing waits for the process before Wait is called: a wait would take the stops of a
	// process that is traced.
	s := &Server{PID: cmd.Process.Pid, process: cmd.Process, wait: sync.OnceValue(cmd.Wait), log: log}
	timer := time.AfterFunc(startMax, func() { _ = s.process.Kill() })
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	timer.Stop()
	s.Ready = strings.TrimSpace(line)
	match := readyLine.FindStringSubmatch(s.Ready)
	if match == nil {
		s.Kill()
		return nil, fmt.Errorf("%s did not start: got the line %q, want one that says where it serves; its log ends with: %s",
			cmd.Path, s.Ready, s.Tail())
	}
	s.URL, s.Metrics = match[1], match[2]
	return s, nil
}

// AwaitReady waits until /readyz answers 200. Until then, a Service sends no requests.
func (s *Server) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	var last error // not that the time is over, unless nothing else was heard
	for {
		err := s.askReady(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready after %s: %w; its log ends with: %s", readyMax, last, s.Tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *Server) askReady(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Metrics+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("got status %s of /readyz", response.Status)
	}
	return nil
}

// Wait waits until the process has ended. It returns an error unless the process exited with 0.
func (s *Server) Wait() error {
	if err := s.wait(); err != nil {
		return fmt.Errorf("the server ended: %w; its log ends with: %s", err, s.Tail())
	}
	return nil
}

// Stop asks the process to end with SIGTERM and waits until it has.
func (s *Server) Stop() error {
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("cannot ask the server to end: %w", err)
	}
	return s.Wait()
}

// Kill ends the process at once, and waits until it has ended.
func (s *Server) Kill() {
	_ = s.process.Kill() // it fails if the process has ended
	_ = s.wait()         // it says that the process was killed
}

// Tail returns the end of the log.
func (s *Server) Tail() string {
	content, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-tailBytes):])
}
