package app

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// A running is a server started as the command starts it.
type running struct {
	servertest.Client
	stop context.CancelFunc
	done chan error
}

var ready = regexp.MustCompile(`serving on https://(\S+), metrics on (http://\S+), `)

// serve starts "fastadmit serve" in this process with the plugins of the table and those of
// the test, and stops it when the test ends.
func serve(t testing.TB, own []admission.Plugin, args ...string) *running {
	t.Helper()
	opts := []Option{WithVersion("v1.2.3")}
	for _, plugin := range own {
		opts = append(opts, WithPlugin(plugin))
	}
	ctx, stop := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	s := &running{Client: servertest.Client{Log: new(servertest.Buffer)}, stop: stop, done: make(chan error, 1)}
	cmd := NewCommand(opts...)
	cmd.SetArgs(append([]string{"serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0"}, args...))
	cmd.SetOut(writer)
	cmd.SetErr(s.Log)
	go func() {
		s.done <- cmd.ExecuteContext(ctx)
		writer.Close()
	}()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatalf("no ready line: %v, %v", err, <-s.done)
	}
	match := ready.FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("got ready line %q", line)
	}
	s.Address, s.Ops = match[1], match[2]
	t.Cleanup(func() { s.end(t) })
	return s
}

// end stops the server and fails the test if it does not end in order.
func (s *running) end(t testing.TB) {
	t.Helper()
	s.stop()
	select {
	case err := <-s.done:
		if err != nil {
			t.Errorf("the server ended with %v", err)
		}
		s.done <- nil
	case <-time.After(5 * time.Minute):
		t.Error("the server did not end")
	}
}

// TestDrainKeepsPlugins expects the background tasks of plugins to continue until the last
// review is answered, because reviews depend on the objects that they watch. The process
// ends after it.
func TestDrainKeepsPlugins(t *testing.T) {
	t.Parallel() // the delay, in which a busy machine has to answer
	var returned atomic.Bool
	plugin := admission.Plugin{Name: "Follows", Rules: []admission.Rule{admission.Any()}, Validates: true}
	plugin.New = func(admission.Setup) (admission.Handler, error) {
		h := admission.Handler{Validate: func(context.Context, *codec.Review) admission.Result { return admission.Allowed() }}
		h.Rules = func() []admission.Rule { return plugin.Rules }
		h.Run = func(ctx context.Context, rulesChanged func()) {
			rulesChanged()
			<-ctx.Done()
			time.Sleep(50 * time.Millisecond) // such as a request to kube-apiserver
			returned.Store(true)
		}
		return h, nil
	}
	s := serve(t, []admission.Plugin{plugin}, "--enable-admission-plugins=Follows", "--shutdown-delay-duration=5s")
	s.stop()
	servertest.Until(t, "the server drains", func() bool {
		code, _ := s.Readyz(t)
		return code == http.StatusServiceUnavailable
	})
	time.Sleep(100 * time.Millisecond) // in this time it would have returned
	response, _ := s.Open(t).Send(servertest.Request("/validate", corpus.MustRead(servertest.PodCreate)))
	if response.StatusCode != http.StatusOK || returned.Load() {
		t.Errorf("got %s, returned %v, want an answer by a plugin that still runs", response.Status, returned.Load())
	}
	s.end(t)
	if !returned.Load() {
		t.Error("the process ended before the plugin returned")
	}
}

// TestWriteCA asks a server by the name localhost, and trusts only the certificate that it wrote.
func TestWriteCA(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--write-ca="+file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		t.Fatalf("got %q, want a certificate", text)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer client.CloseIdleConnections()
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	body := corpus.MustRead(servertest.PodCreate)
	response, err := client.Post("https://localhost:"+port+"/mutate", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err != nil || !bytes.Contains(body, []byte(`"patchType":"JSONPatch"`)) {
		t.Errorf("got %s, %v, want a patch", body, err)
	}
	_, errs, code := execute("", "serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=",
		"--enable-admission-plugins=AlwaysAdmit", "--write-ca="+filepath.Dir(file))
	want := "cannot write the certificate for --write-ca: open " + filepath.Dir(file) + ": is a directory"
	if code != 1 || !strings.Contains(errs, want) {
		t.Errorf("a folder: got code %d and %s, want %s", code, errs, want)
	}
}
