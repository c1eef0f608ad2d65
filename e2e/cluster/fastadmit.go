package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Fastadmit is a running fastadmit serve.
type Fastadmit struct {
	URL     string // of the webhooks
	Metrics string
	process *process
}

// Binary is the fastadmit that make build made, seen from a package of this
// module.
const Binary = "../../bin/fastadmit"

// StartFastadmit starts a binary with a certificate of the authority.
func StartFastadmit(t testing.TB, binary string, a *Authority, flags ...string) *Fastadmit {
	t.Helper()
	return StartFastadmitUntil(t, binary, a, time.Now().Add(24*time.Hour), flags...)
}

// StartFastadmitUntil is StartFastadmit with a certificate that is valid until
// then.
func StartFastadmitUntil(t testing.TB, binary string, a *Authority, until time.Time, flags ...string) *Fastadmit {
	t.Helper()
	cert, key := a.Sign(t, until)
	arguments := append([]string{"serve", "--bind-address", "127.0.0.1", "--secure-port", "0",
		"--metrics-bind-address", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-private-key-file", key}, flags...)
	var stdout output
	p := start(t, "fastadmit", &stdout, binary, arguments...)
	f := &Fastadmit{process: p}
	p.await(t, func() error {
		m := ready.FindStringSubmatch(stdout.String())
		if m == nil {
			return errors.New("no line that says that it is serving")
		}
		f.URL, f.Metrics = m[1], m[2]
		return nil
	})
	return f
}

// ready is the line fastadmit prints when it is.
var ready = regexp.MustCompile(`serving on (https://\S+), metrics on (http://[^\s,]+)`)

// Kill ends the process at once.
func (f *Fastadmit) Kill() { f.process.kill() }

// Stop asks the process to end and waits until it has.
func (f *Fastadmit) Stop(t testing.TB) { f.process.stop(t) }

// Freeze stops the process until the test ends: the system still accepts its
// connections.
func (f *Fastadmit) Freeze(t testing.TB) {
	t.Helper()
	if err := f.process.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.process.cmd.Process.Signal(syscall.SIGCONT) })
}

// Metric returns the value of a series, labels included in its name.
func (f *Fastadmit) Metric(t testing.TB, series string) int {
	t.Helper()
	value, ok := f.Find(t, series)
	if !ok {
		t.Fatalf("got no series %s from %s", series, f.Metrics)
	}
	return value
}

// Find is Metric for a series that need not be there.
func (f *Fastadmit) Find(t testing.TB, series string) (value int, ok bool) {
	t.Helper()
	response, err := http.Get(f.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for s := bufio.NewScanner(response.Body); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), series+" "); ok {
			value, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return value, true
		}
	}
	return 0, false
}

// output collects what a process prints.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}
