package cluster

import (
	"bufio"
	"errors"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Fastadmit is a running fastadmit serve.
type Fastadmit struct {
	*Process
	URL     string // of the webhooks
	Metrics string
}

// Binary is fastadmit as the script run builds it: with the tag poison, so that the memory of a
// request is overwritten when it is released. The path is relative to a package of this module.
const Binary = "../.cache/fastadmit"

// StartFastadmit starts a binary with a certificate of the authority.
func StartFastadmit(t testing.TB, binary string, a *Authority, flags ...string) *Fastadmit {
	t.Helper()
	return StartFastadmitUntil(t, binary, a, time.Now().Add(24*time.Hour), flags...)
}

// StartFastadmitUntil is StartFastadmit with a certificate that is valid until
// then.
func StartFastadmitUntil(t testing.TB, binary string, a *Authority, until time.Time, flags ...string) *Fastadmit {
	t.Helper()
	cert, key := a.Sign(t, Serving(until, "127.0.0.1"))
	return RunFastadmit(t, append([]string{binary, "serve", "--bind-address", "127.0.0.1", "--secure-port", "0",
		"--metrics-bind-address", "127.0.0.1:0",
		"--tls-cert-file", WriteFile(t, "tls.crt", cert), "--tls-private-key-file", WriteFile(t, "tls.key", key)}, flags...)...)
}

// RunFastadmit runs a command that becomes fastadmit serve, and waits until it
// serves.
func RunFastadmit(t testing.TB, command ...string) *Fastadmit {
	t.Helper()
	var stdout Buffer
	f := &Fastadmit{Process: Start(t, "fastadmit", &stdout, command[0], command[1:]...)}
	f.await(t, func() error {
		m := ready.FindStringSubmatch(stdout.String())
		if m == nil {
			return errors.New("no line that says that it is serving")
		}
		f.URL, f.Metrics = m[1], m[2]
		return nil
	})
	return f
}

// ready matches the line that fastadmit prints when it is ready.
var ready = regexp.MustCompile(`serving on (https://\S+), metrics on (http://[^\s,]+)`)

// AwaitReady waits until fastadmit has read what it needs of the cluster, as the kubelet does before it lets a pod get requests.
func (f *Fastadmit) AwaitReady(t testing.TB) {
	t.Helper()
	Await(t, "fastadmit to be ready", func() error {
		response, err := http.Get(f.Metrics + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// Freeze stops the process until the test ends: the system still accepts its
// connections.
func (f *Fastadmit) Freeze(t testing.TB) {
	t.Helper()
	f.Signal(t, syscall.SIGSTOP)
	t.Cleanup(func() { _ = f.cmd.Process.Signal(syscall.SIGCONT) }) // an error means that it has ended
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

// Find is Metric for a series that may be missing.
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

// Manifests runs fastadmit manifests and returns what it prints.
func Manifests(t testing.TB, arguments ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.Command(Binary, append([]string{"manifests"}, arguments...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, stderr.String())
	}
	return stdout.String()
}
