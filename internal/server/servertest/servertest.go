// Package servertest calls a running server in tests.
package servertest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/corpus"
)

// PodCreate is the recording of a creation of a Pod.
const PodCreate = "pods-create-v1-1.json"

// TLS is how clients connect: as kube-apiserver does, but to any certificate.
var TLS = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}

// Buffer is a buffer that several goroutines may use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// Block lets whoever writes wait until release is called.
func (b *Buffer) Block() (release func()) {
	b.mu.Lock()
	return b.mu.Unlock
}

// String returns what was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Client calls a server.
type Client struct {
	Address string // of the webhooks
	Ops     string // URL of the ops port
	Log     *Buffer
}

// Dial opens a connection.
func (c *Client) Dial(t testing.TB) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", c.Address, TLS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// Open opens a connection for requests.
func (c *Client) Open(t testing.TB) *Exchange { return Over(t, c.Dial(t)) }

// Get returns what the ops port answers with that code.
func (c *Client) Get(t testing.TB, path string, code int) string {
	t.Helper()
	got, body := c.Ask(t, path)
	if got != code {
		t.Fatalf("%s: got %d %s, want %d", path, got, body, code)
	}
	return body
}

// Readyz returns the code and the text of /readyz?verbose.
func (c *Client) Readyz(t testing.TB) (code int, about string) {
	t.Helper()
	return c.Ask(t, "/readyz?verbose")
}

// Ask returns what the ops port answers.
func (c *Client) Ask(t testing.TB, path string) (code int, body string) {
	t.Helper()
	response, err := http.Get(c.Ops + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// Exchange is a connection for requests, one after the other.
type Exchange struct {
	t      testing.TB
	Conn   net.Conn
	Reader *bufio.Reader
}

// Over returns an exchange over a connection.
func Over(t testing.TB, conn net.Conn) *Exchange {
	return &Exchange{t: t, Conn: conn, Reader: bufio.NewReader(conn)}
}

// Send writes raw bytes and reads one response.
func (x *Exchange) Send(raw []byte) (*http.Response, []byte) {
	x.t.Helper()
	if _, err := x.Conn.Write(raw); err != nil {
		x.t.Fatalf("cannot send: %v", err)
	}
	return x.Receive()
}

// Receive reads one response.
func (x *Exchange) Receive() (*http.Response, []byte) {
	x.t.Helper()
	response, err := http.ReadResponse(x.Reader, nil)
	if err != nil {
		x.t.Fatalf("cannot read the response: %v", err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		x.t.Fatalf("cannot read the response's body: %v", err)
	}
	response.Body.Close()
	return response, body
}

// Answer sends the creation of a Pod to a path and returns the code and body.
func (x *Exchange) Answer(path string) (int, string) {
	x.t.Helper()
	response, body := x.Send(Request(path, corpus.MustRead(PodCreate)))
	return response.StatusCode, string(body)
}

// Answers checks that the next request on the connection works, or that the
// server had said that it closes it.
func (x *Exchange) Answers(closed bool) {
	x.t.Helper()
	if closed {
		if n, err := x.Reader.Read(make([]byte, 1)); err == nil || n > 0 {
			x.t.Errorf("the connection goes on after it was said to close")
		}
		return
	}
	response, body := x.Send(Request("/mutate", corpus.MustRead(PodCreate)))
	if response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"allowed":true`)) {
		x.t.Errorf("the next request got %s %s", response.Status, body)
	}
}

// Fails checks that an answer is HTTP 500 with a Status that has the text, on a
// connection that is closed.
func (x *Exchange) Fails(response *http.Response, body []byte, want string) {
	x.t.Helper()
	var status struct {
		Kind, Reason, Message string
		Code                  int
	}
	if err := json.Unmarshal(body, &status); err != nil || response.StatusCode != http.StatusInternalServerError ||
		status.Kind != "Status" || status.Code != http.StatusInternalServerError || status.Reason != "InternalError" ||
		!strings.Contains(status.Message, want) || !response.Close {
		x.t.Errorf("got %s %s, %v, close %v, want 500 and a Status with %q", response.Status, body, err, response.Close, want)
	}
	x.Answers(true)
}

// Request renders a request as kube-apiserver sends it.
func Request(path string, body []byte, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: fastadmit.fastadmit.svc:443\r\nUser-Agent: kube-apiserver-admission\r\n", path)
	fmt.Fprintf(&b, "Content-Length: %d\r\nAccept: application/json, */*\r\n", len(body))
	if len(headers) == 0 {
		headers = []string{"Content-Type: application/json"}
	}
	for _, header := range headers {
		fmt.Fprintf(&b, "%s\r\n", header)
	}
	b.WriteString("Accept-Encoding: gzip\r\n\r\n")
	b.Write(body)
	return b.Bytes()
}

// Padded returns a review of that size.
func Padded(size int) []byte {
	pod := corpus.MustRead(PodCreate)
	return append(bytes.Repeat([]byte(" "), size-len(pod)), pod...)
}

// Until waits for something to become true.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// WriteFile makes a file, or replaces it at once.
func WriteFile(t testing.TB, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".tmp", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		t.Fatal(err)
	}
}

// TempFile returns the name of a new file with that content, in a folder of its own.
func TempFile(t testing.TB, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	WriteFile(t, file, content)
	return file
}

// Crowd opens more connections than a server may have, without a word.
func Crowd(t testing.TB, address string, n int) {
	t.Helper()
	for range n {
		DialTCP(t, address)
	}
}

// DialTCP returns a connection on which nothing has been sent. It has a minute.
func DialTCP(t testing.TB, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}
