package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestProfilesAreLocal requests profiles, and the page of the shadow, from another machine: port 8080 is open to metrics
// scrapers.
func TestProfilesAreLocal(t *testing.T) {
	page := opsPage{ShadowPath, func(http.ResponseWriter, *http.Request) {}}
	handler := newOpsServer(newServerMetrics(metrics.NewSet(), new(load)), nil, nil, true, page).Handler
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
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol", ShadowPath} {
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

// TestHealthInforms has a failing check that does not make the endpoint fail.
func TestHealthInforms(t *testing.T) {
	works := Check{Name: "works", Ask: func() (bool, string) { return true, "" }}
	fails := Check{Name: "fails", Ask: func() (bool, string) { return false, "a\nb" }}
	informs := fails
	informs.Informs = "it is so"
	f := func(path string, code int, want string, checks ...Check) {
		t.Helper()
		response, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		request.RemoteAddr = "127.0.0.1:1"
		health(checks)(response, request)
		if got := response.Body.String(); response.Code != code || got != want {
			t.Errorf("%s: got %d %q, want %d %q", path, response.Code, got, code, want)
		}
	}
	const informed = "[-]fails failed without affecting readiness, because it is so: a\n    b\n"
	f("/readyz", 200, "ok\n", works, informs)
	f("/readyz?verbose", 200, "[+]works ok\n"+informed+"ok\n", works, informs)
	f("/readyz", 503, informed+"[-]fails failed: a\n    b\nfailed\n", informs, fails)
}

// TestHealthWithholds asks from another machine, which learns which checks fail, but not why.
func TestHealthWithholds(t *testing.T) {
	const secret = "cannot read tokens.csv: got hunter2"
	checks := []Check{
		{Name: "fails", Ask: func() (bool, string) { return false, secret }},
		{Name: "informs", Ask: func() (bool, string) { return false, secret }, Informs: "it is so"},
		{Name: "works", Ask: func() (bool, string) { return true, secret }},
	}
	for from, withheld := range map[string]bool{"10.0.0.1:1": true, "[fd00::1]:1": true, "": true, "127.0.0.1:1": false, "[::1]:1": false} {
		response, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/readyz?verbose", nil)
		request.RemoteAddr = from
		request.Host = "127.0.0.1" // what a stranger can claim
		request.Header = http.Header{"X-Forwarded-For": {"127.0.0.1"}, "X-Real-Ip": {"::1"}, "Forwarded": {"for=127.0.0.1"}}
		health(checks)(response, request)
		shown, want := strings.Count(response.Body.String(), secret), len(checks)
		if withheld {
			want = 0
		}
		if shown != want || response.Code != 503 || !strings.Contains(response.Body.String(), "[-]fails failed: ") {
			t.Errorf("from %q: got %d, %d reasons in %s, want 503 and %d", from, response.Code, shown, response.Body, want)
		}
	}
}

// TestProbesDuringMetrics has many clients wait for the page of metrics: one page is made at
// a time, and probes are answered meanwhile.
func TestProbesDuringMetrics(t *testing.T) {
	const clients = 20
	var making, most atomic.Int64
	goOn := make(chan struct{})
	set := metrics.NewSet()
	set.NewGauge("slow", func() float64 {
		most.Store(max(most.Load(), making.Add(1)))
		defer making.Add(-1)
		<-goOn
		return 0
	})
	live := Check{Name: "live", Ask: func() (bool, string) { return true, "" }}
	handler := newOpsServer(newServerMetrics(set, new(load)), []Check{live}, nil, false).Handler
	ask := func(path string) *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
		return response
	}
	var pages sync.WaitGroup
	for range clients {
		pages.Go(func() {
			if response := ask("/metrics"); !strings.Contains(response.Body.String(), "slow 0\n") {
				t.Errorf("got %d %s, want the page", response.Code, response.Body)
			}
		})
	}
	servertest.Until(t, "a page is being made", func() bool { return making.Load() > 0 })
	if response := ask("/livez"); response.Code != http.StatusOK {
		t.Errorf("a probe: got %d %s", response.Code, response.Body)
	}
	close(goOn)
	pages.Wait()
	if got := most.Load(); got != 1 {
		t.Errorf("got %d pages at a time, want 1", got)
	}
}

// TestScrapersShareAPage has many clients ask while a page is made. They all get the next one, so a
// scraper does not wait for a page of each of them.
func TestScrapersShareAPage(t *testing.T) {
	const clients = 100
	var made atomic.Int64
	goOn := make(chan struct{})
	set := metrics.NewSet()
	set.NewGauge("made", func() float64 {
		n := made.Add(1)
		<-goOn
		return float64(n)
	})
	pages := newMetricsPages(newServerMetrics(set, new(load)))
	ask := func() string {
		response := httptest.NewRecorder()
		pages.serve(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return response.Body.String()
	}
	var asked sync.WaitGroup
	asked.Go(func() {
		if page := ask(); !strings.Contains(page, "made 1\n") {
			t.Errorf("the first: got %s, want page 1", page)
		}
	})
	servertest.Until(t, "a page is being made", func() bool { return made.Load() > 0 })
	var came atomic.Int64
	for range clients {
		asked.Go(func() {
			came.Add(1)
			if page := ask(); !strings.Contains(page, "made 2\n") && !strings.Contains(page, "made 3\n") {
				t.Errorf("got %s, want page 2, or 3 if the client came late", page)
			}
		})
	}
	servertest.Until(t, "all have come", func() bool { return came.Load() == clients })
	close(goOn)
	asked.Wait()
	if got := made.Load(); got > 3 {
		t.Errorf("got %d pages for %d clients, want at most 3", got, clients)
	}
}

// TestPagesRest asks for pages all the time: most of the time, none is made.
func TestPagesRest(t *testing.T) {
	const took, long = 10 * time.Millisecond, 500 * time.Millisecond
	var made int
	set := metrics.NewSet()
	set.NewGauge("made", func() float64 {
		made++
		time.Sleep(took)
		return 0
	})
	pages := newMetricsPages(newServerMetrics(set, new(load)))
	begin := time.Now()
	for time.Since(begin) < long || made < 2 {
		pages.serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}
	if most := int(time.Since(begin)/((1+pageRests)*took)) + 1; made > most {
		t.Errorf("got %d pages in %s, want at most %d", made, time.Since(begin), most)
	}
}

// TestPagePanics has a gauge that panics once: others who wait for the same page get an error, and the
// next page is made.
func TestPagePanics(t *testing.T) {
	var calls atomic.Int64
	set := metrics.NewSet()
	set.NewGauge("fails", func() float64 {
		if calls.Add(1) == 1 {
			panic("once")
		}
		return 0
	})
	pages := newMetricsPages(newServerMetrics(set, new(load)))
	ask := func() *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		pages.serve(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return response
	}
	pages.making <- struct{}{} // a page is being made
	var asked sync.WaitGroup
	asked.Go(func() {
		defer func() {
			if recover() == nil {
				t.Error("got no panic, want that of the gauge, which net/http recovers")
			}
		}()
		ask()
	})
	servertest.Until(t, "somebody waits for the next page", func() bool {
		pages.mu.Lock()
		defer pages.mu.Unlock()
		return pages.next != nil
	})
	page := pages.next // nobody takes it before the page being made is complete
	<-pages.making
	asked.Wait()
	if <-page.done; page.content != nil {
		t.Errorf("got the page %s, want none", page.content)
	}
	response := httptest.NewRecorder()
	pages.answer(response, httptest.NewRequest(http.MethodGet, "/metrics", nil), page)
	if response.Code != http.StatusInternalServerError {
		t.Errorf("who waited: got %d, want 500", response.Code)
	}
	if response := ask(); !strings.Contains(response.Body.String(), "fails 0\n") {
		t.Errorf("got %d %s, want the page", response.Code, response.Body)
	}
}

// TestProbesKeepTheirConnection opens more connections than the ops port may have: one that
// has carried a probe is not evicted.
func TestProbesKeepTheirConnection(t *testing.T) {
	s := serve(t, "AlwaysAdmit", nil)
	address := strings.TrimPrefix(s.Ops, "http://")
	x := servertest.Over(t, servertest.DialTCP(t, address))
	probe := []byte("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
	if response, body := x.Send(probe); response.StatusCode != http.StatusOK {
		t.Fatalf("got %s %s", response.Status, body)
	}
	servertest.Crowd(t, address, 2*opsConnectionsMax)
	servertest.Until(t, "connections were closed", func() bool {
		return !strings.Contains(s.Get(t, "/metrics", 200), `fastadmit_connections_shed_total{port="ops",reason="full"} 0`)
	})
	if response, body := x.Send(probe); response.StatusCode != http.StatusOK {
		t.Errorf("after the crowd: got %s %s", response.Status, body)
	}
}
