package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/VictoriaMetrics/metrics"
)

// TestProfilesAreLocal asks for profiles from elsewhere: port 8080 is open to
// whoever scrapes.
func TestProfilesAreLocal(t *testing.T) {
	handler := newOpsServer(newServerMetrics(metrics.NewSet(), new(load)), nil, nil, true).Handler
	f := func(from, path string, want int) {
		t.Helper()
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.RemoteAddr = from
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, request)
		if response.Code != want {
			t.Errorf("%s from %q: got %d %s, want %d", path, from, response.Code, response.Body, want)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		for _, here := range []string{"127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "[::ffff:127.0.0.1]:1"} {
			f(here, path, http.StatusOK)
		}
		for _, elsewhere := range []string{"10.0.0.1:1", "[fd00::1]:1", "[::ffff:10.0.0.1]:1", "192.0.2.1:1", "", "@", "localhost:1"} {
			f(elsewhere, path, http.StatusForbidden)
		}
	}
	f("10.0.0.1:1", "/debug/pprof/profile", http.StatusForbidden)
	f("10.0.0.1:1", "/debug/pprof/trace", http.StatusForbidden)
	f("10.0.0.1:1", "/metrics", http.StatusOK)
}

// TestHealthInforms has a check fail that the endpoint does not fail by.
func TestHealthInforms(t *testing.T) {
	works := Check{Name: "works", Ask: func() (bool, string) { return true, "" }}
	fails := Check{Name: "fails", Ask: func() (bool, string) { return false, "a\nb" }}
	informs := fails
	informs.Informs = "it is so"
	f := func(path string, code int, want string, checks ...Check) {
		t.Helper()
		response := httptest.NewRecorder()
		health(checks)(response, httptest.NewRequest(http.MethodGet, path, nil))
		if got := response.Body.String(); response.Code != code || got != want {
			t.Errorf("%s: got %d %q, want %d %q", path, response.Code, got, code, want)
		}
	}
	const informed = "[-]fails failed without affecting readiness, because it is so: a\n    b\n"
	f("/readyz", 200, "ok\n", works, informs)
	f("/readyz?verbose", 200, "[+]works ok\n"+informed+"ok\n", works, informs)
	f("/readyz", 503, informed+"[-]fails failed: a\n    b\nfailed\n", informs, fails)
}
