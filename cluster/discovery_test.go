package cluster

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSchemas checks which schema documents are requested from the API server.
func TestSchemas(t *testing.T) {
	a := newAPIServer(t)
	discovery := DiscoveryIn(asking(t, a))
	const index = `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=1"},` +
		`"apis/example.com/v1":{"serverRelativeURL":"/openapi/v3/x?hash=2"},` +
		`"version":{"serverRelativeURL":"/openapi/v3/version"},"apis/a/b/c":{"serverRelativeURL":"/openapi/v3/odd"},"openid/v1/jwks":{}}}`
	status, text := http.StatusOK, index
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.RequestURI() {
		case "/openapi/v3":
			w.WriteHeader(status)
			io.WriteString(w, text)
		case "/openapi/v3/x?hash=2":
			io.WriteString(w, "of "+r.Header.Get("Accept"))
		default:
			http.NotFound(w, r)
		}
		return true
	})
	f := func(want string) {
		t.Helper()
		paths, err := discovery.SchemaPaths(t.Context())
		if got := fmt.Sprint(paths, err); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f(fmt.Sprint(map[schema.GroupVersion]string{{Version: "v1"}: "/openapi/v3/api/v1?hash=1",
		{Group: "example.com", Version: "v1"}: "/openapi/v3/x?hash=2"}, nil))
	text = "{"
	f("cluster state: cannot read the API server's list of schemas: unexpected end of JSON input")
	status, text = http.StatusNotFound, "404 page not found"
	if paths, err := discovery.SchemaPaths(t.Context()); paths != nil || err != nil {
		t.Errorf("an API server without schemas: got %v, %v, want nothing", paths, err)
	}
	status = http.StatusForbidden
	f("cluster state: cannot read the API server's list of schemas: cluster state: cannot get discovery \"/openapi/v3\": ")
	if got, err := discovery.Schema(t.Context(), "/openapi/v3/x?hash=2"); err != nil || string(got) != "of application/json" {
		t.Errorf("got %s, %v, want a document", got, err)
	}
	if _, err := discovery.Schema(t.Context(), "/openapi/v3/gone"); err == nil ||
		!strings.Contains(err.Error(), "cluster state: cannot read a schema: ") {
		t.Errorf("got %v, want that there is none", err)
	}
}

// TestSchemaBytes checks the maximum length of a schema document.
func TestSchemaBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads long documents")
	}
	for n, want := range map[int64]bool{schemaBytesMax - 1: true, schemaBytesMax: true, schemaBytesMax + 1: false} {
		document := &document{Reader: io.LimitReader(zeros{}, n)}
		text, err := readAll(document, nil)
		if !document.closed {
			t.Errorf("%d bytes: the document stays open", n)
		}
		if (err == nil) != want || want && int64(len(text)) != n || !want && !strings.Contains(err.Error(), "more than 33554432 bytes") {
			t.Errorf("%d bytes: got %d, %v, want them to be read: %t", n, len(text), err, want)
		}
	}
	if _, err := readAll(nil, errNoAPIServer); !errors.Is(err, errNoAPIServer) {
		t.Errorf("got %v, want %v", err, errNoAPIServer)
	}
}

type document struct {
	io.Reader
	closed bool
}

func (d *document) Close() error { d.closed = true; return nil }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestVersions checks which versions of a group the API server serves.
func TestVersions(t *testing.T) {
	a := newAPIServer(t)
	discovery := DiscoveryIn(asking(t, a))
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.RequestURI() {
		case "/apis/example.com":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{"version":"v2"},{"version":"v1"}]}`)
		case "/apis/broken.example.com":
			w.WriteHeader(http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
		return true
	})
	for group, want := range map[string]string{"": "[v1] <nil>", "example.com": "[v2 v1] <nil>", "other": "[] <nil>", "../x": "[] <nil>"} {
		if got, err := discovery.Versions(t.Context(), group); fmt.Sprint(got, err) != want {
			t.Errorf("%q: got %v, %v, want %s", group, got, err, want)
		}
	}
	if got, err := discovery.Versions(t.Context(), "broken.example.com"); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}
