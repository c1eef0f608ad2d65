package app

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestFewFileDescriptors runs the server in its own process with a limit of 64 file
// descriptors, and opens 300 connections to each port.
func TestFewFileDescriptors(t *testing.T) {
	const few, address = "FASTADMIT_TEST_FEW_DESCRIPTORS", "127.0.0.1:0"
	if os.Getenv(few) != "" {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
			t.Fatal(err)
		}
		cmd := NewCommand()
		cmd.SetArgs([]string{"serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=" + address,
			"--enable-admission-plugins=AlwaysPullImages"})
		t.Fatal(cmd.Execute())
	}
	child := exec.Command(os.Args[0], "-test.run=^TestFewFileDescriptors$")
	child.Env = append(os.Environ(), few+"=1")
	out := new(servertest.Buffer)
	child.Stdout, child.Stderr = out, out
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	defer func() {
		_ = child.Process.Kill()
		<-ended
	}()
	servertest.Until(t, "the server serves", func() bool { return ready.MatchString(out.String()) })
	match := ready.FindStringSubmatch(out.String())
	s := &servertest.Client{Address: match[1], Ops: match[2]}
	servertest.Crowd(t, s.Address, 300)
	servertest.Crowd(t, strings.TrimPrefix(s.Ops, "http://"), 300)
	s.Open(t).Answers(false)
	s.Get(t, "/livez", 200)
	metrics := s.Get(t, "/metrics", 200)
	for _, line := range []string{`fastadmit_connections_max{port="webhooks"} 48`, `fastadmit_connections_max{port="ops"} 8`} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in %s", line, metrics)
		}
	}
	select {
	case err := <-ended:
		ended <- err
		t.Errorf("the process ended with %v: %s", err, out)
	case <-time.After(10 * time.Millisecond):
	}
}

// TestLogReaderEnds runs the server in its own process, and ends the reader of its log.
func TestLogReaderEnds(t *testing.T) {
	const child = "FASTADMIT_TEST_LOG_READER_ENDS"
	if os.Getenv(child) != "" {
		cmd := NewCommand()
		cmd.SetArgs([]string{"serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0",
			"--enable-admission-plugins=AlwaysDeny"})
		t.Fatal(cmd.Execute())
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLogReaderEnds$")
	cmd.Env = append(os.Environ(), child+"=1")
	out := new(servertest.Buffer)
	cmd.Stdout = out
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	servertest.Until(t, "the server serves", func() bool { return ready.MatchString(out.String()) })
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	s := &servertest.Client{Address: ready.FindStringSubmatch(out.String())[1]}
	for range 3 {
		x := s.Open(t)
		if response, body := x.Send(servertest.Request("/mutate",
			corpus.MustRead(servertest.PodCreate))); response.StatusCode != http.StatusOK ||
			!bytes.Contains(body, []byte(`"allowed":false`)) {
			t.Errorf("got %s %s, want a denial", response.Status, body)
		}
		time.Sleep(100 * time.Millisecond) // the line is written concurrently with the answer
	}
}
