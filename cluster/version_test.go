package cluster

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

func TestVersionAsker(t *testing.T) {
	f := func(answer, want string) {
		t.Helper()
		connections := make(map[string]bool)
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			connections[r.RemoteAddr] = true
			if r.URL.Path != "/version" {
				t.Errorf("got a request for %s", r.URL.Path)
			}
			_, _ = io.WriteString(w, answer)
		}))
		defer api.Close()
		asker, err := NewVersionAsker(&rest.Config{Host: api.URL})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := asker.Ask(t.Context()); got != want || (err != nil) != (want == "") {
				t.Errorf("%s: got %q, %v, want %q", answer, got, err, want)
			}
		}
		if len(connections) != 2 {
			t.Errorf("got %d connections for two questions, want 2", len(connections))
		}
	}
	f(`{"major":"1","minor":"33"}`, "1.33")
	f(`{"major":"1","minor":"34+"}`, "1.34")
	f(`{"major":"1","minor":"37","emulationMajor":"1","emulationMinor":"35"}`, "1.35")
	f(`no JSON`, "")
}
