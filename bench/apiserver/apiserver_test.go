package apiserver

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

const documents = `apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: shop}
---
apiVersion: policies.fastadmit.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
---
# Nothing but a comment.
`

func start(t *testing.T) *Server {
	t.Helper()
	s, err := Start([]byte(documents))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestGet(t *testing.T) {
	s := start(t)
	s.Add("/api/v1/configmaps", Object{Namespace: "other", Name: "b", Content: []byte(`{"metadata":{"name":"b"}}`)})
	f := func(path string, code int, want ...string) {
		t.Helper()
		response, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != code {
			t.Errorf("%s: got status %d, %v, want %d", path, response.StatusCode, err, code)
		}
		for _, part := range want {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s: got %s, want %s in it", path, text, part)
			}
		}
	}
	f("/api/v1", 200, `"groupVersion":"v1"`, `"name":"configmaps"`)
	f("/apis/policies.fastadmit.io", 200, `"groupVersion":"policies.fastadmit.io/v1"`)
	f("/apis/other.example.com/v1", 404)
	f("/api/v1/configmaps", 200, "ConfigMapList", `"name":"a"`, `"name":"b"`)
	f("/api/v1/namespaces/shop/configmaps/a", 200, `"name":"a"`)
	f("/api/v1/namespaces/other/configmaps/a", 404)
	f("/apis/policies.fastadmit.io/v1/validatingadmissionpolicies/p", 200, `"name":"p"`)
	f("/apis/other.example.com/v1/things", 404)
	if got := s.Requests.Load(); got != 8 {
		t.Errorf("got %d requests, want 8", got)
	}
	if _, err := Start([]byte("apiVersion: v1\nkind: Secret\n")); err == nil || !strings.Contains(err.Error(), `got kind "Secret"`) {
		t.Errorf("got %v, want an error that names the kind", err)
	}
}

// TestWatch has a watch that gets an event, and ends when watches expire; then no other begins.
func TestWatch(t *testing.T) {
	s := start(t)
	watch := func() *bufio.Scanner {
		response, err := http.Get(s.URL + "/api/v1/configmaps?watch=true")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return bufio.NewScanner(response.Body)
	}
	lines := watch() // its headers are sent when it exists
	s.Publish("/api/v1/pods", func(w io.Writer) error { return io.ErrUnexpectedEOF })
	s.Publish("/api/v1/configmaps", func(w io.Writer) error {
		_, err := fmt.Fprintln(w, "event")
		return err
	})
	if !lines.Scan() || lines.Text() != "event" {
		t.Errorf("got %q, want the event", lines.Text())
	}
	s.Expire(true)
	for _, scanner := range []*bufio.Scanner{lines, watch()} {
		if !scanner.Scan() || !strings.Contains(scanner.Text(), `"code":410`) || scanner.Scan() {
			t.Errorf("got %q, want 410 and the end", scanner.Text())
		}
	}
}
