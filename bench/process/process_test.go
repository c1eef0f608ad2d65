package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serverEnv makes the test binary the server that tests start.
const serverEnv = "FASTADMIT_TEST_SERVER"

func TestMain(m *testing.M) {
	behaviour := os.Getenv(serverEnv)
	if behaviour == "" {
		os.Exit(m.Run())
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	fmt.Fprintln(os.Stderr, strings.Repeat("-", tailBytes), "a log of a server that", behaviour)
	switch behaviour {
	case "fails":
		os.Exit(1)
	case "prints something else":
		fmt.Println("hello")
	default:
		fmt.Println("fastadmit: serving on https://127.0.0.1:1234, metrics on http://127.0.0.1:5678, and more")
	}
	<-asked
	if behaviour == "ends badly" {
		os.Exit(3)
	}
}

// start starts a server that behaves so.
func start(t *testing.T, behaviour string) (*Server, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+behaviour)
	s, err := Start(cmd, filepath.Join(t.TempDir(), "log"), cmd.Start)
	if s != nil {
		t.Cleanup(s.Kill)
	}
	return s, err
}

// TestAwaitReady has a server that is ready when it is asked for the third time, and one that never is.
func TestAwaitReady(t *testing.T) {
	s, err := start(t, "serves")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	end := func() {}
	ops := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked < 3 || r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		if asked == 0 {
			end()
		}
	}))
	defer ops.Close()
	s.Metrics = ops.URL
	if err := s.AwaitReady(t.Context()); err != nil || asked != 3 {
		t.Errorf("got %v after %d requests, want a server that is ready after 3", err, asked)
	}
	asked = -2 // the second request ends the wait
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end = cancel
	if err := s.AwaitReady(ctx); err == nil || !strings.Contains(err.Error(), "503 Service Unavailable of /readyz") {
		t.Errorf("got %v, want an error with the status", err)
	}
	if err := s.AwaitReady(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v of a context that has ended before, want its error", err)
	}
}

func TestStart(t *testing.T) {
	s, err := start(t, "serves")
	if err != nil {
		t.Fatal(err)
	}
	if s.URL != "https://127.0.0.1:1234" || s.Metrics != "http://127.0.0.1:5678" || !strings.HasSuffix(s.Ready, ", and more") {
		t.Errorf("got %s, %s and the line %q, want the addresses in the line", s.URL, s.Metrics, s.Ready)
	}
	if err := syscall.Kill(s.PID, 0); err != nil {
		t.Errorf("got no process %d: %v", s.PID, err)
	}
	const end = "- a log of a server that serves\n"
	if tail := s.Tail(); len(tail) != tailBytes || !strings.HasSuffix(tail, end) {
		t.Errorf("got %d bytes of the log, want %d that end with %q: %q", len(tail), tailBytes, end, tail)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(s.PID, 0); err == nil {
		t.Error("the process runs after Stop")
	}
}

func TestKill(t *testing.T) {
	s, err := start(t, "serves")
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() { waited <- s.Wait() }()
	s.Kill()
	if err := <-waited; err == nil || !strings.Contains(err.Error(), "killed") || !strings.Contains(err.Error(), "a log of") {
		t.Errorf("got error %v, want one that says that the process was killed, with its log", err)
	}
	s.Kill() // must not fail or wait
}

func TestFailures(t *testing.T) {
	f := func(behaviour, want string) {
		t.Helper()
		s, err := start(t, behaviour)
		if err == nil {
			err = s.Stop()
		}
		if log := "a log of a server that " + behaviour; err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), log) {
			t.Errorf("%s: got error %v, want one with %q and %q", behaviour, err, want, log)
		}
	}
	f("fails", `got the line ""`)
	f("prints something else", `got the line "hello"`)
	f("ends badly", "exit status 3")
}
