package server

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
	"github.com/fastadmit/fastadmit/internal/server/status"
)

// TestStatusPage tests that the page shows a denial and a failure, to callers on the same machine only.
func TestStatusPage(t *testing.T) {
	var result admission.Result
	decides := func(context.Context, *codec.Review) admission.Result { return result }
	own := []admission.Plugin{{
		Name: "Decides", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: decides}, nil },
	}}
	f := func(recent int, want ...string) {
		t.Helper()
		s := serve(t, "Decides", own, func(s *setup) { s.RecentDenials = recent })
		x := s.Open(t)
		denied, failed := admission.Denied(errors.New("not <b>today</b>")), admission.Errored(errors.New("no backend"))
		for _, result = range []admission.Result{denied, failed} {
			x.Send(servertest.Request("/validate", corpus.MustRead(servertest.PodCreate)))
		}
		code, body := s.Ask(t, "/")
		if code != http.StatusOK {
			t.Errorf("got code %d", code)
		}
		for _, text := range append(want, "<td>Decides<br>", "<td>serving</td>", "<td>Requests in flight</td><td>0 of 1000</td>") {
			if !strings.Contains(body, text) {
				t.Errorf("got no %s in\n%s", text, body)
			}
		}
		describe := func(_ context.Context, p *status.Page) {
			p.Registrations, p.Replicas = []status.Registration{{Name: "registered", Kind: "K"}}, "All are ready."
		}
		handler := newOpsServer(s.server.metrics, nil, nil, false, opsPage{"/{$}", s.server.statusPage(nil, describe)}).Handler
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "127.0.0.1:1234"
		if handler.ServeHTTP(w, r); w.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
			!strings.HasPrefix(w.Header().Get("Content-Security-Policy"), "default-src 'none'") ||
			!strings.Contains(w.Body.String(), "registered<br>") || !strings.Contains(w.Body.String(), " All are ready.</p>") ||
			!strings.Contains(w.Body.String(), "<td>Memory of the process</td>") {
			t.Errorf("got %v", w.Header())
		}
		w, r.RemoteAddr = httptest.NewRecorder(), "192.0.2.1:1234"
		if handler.ServeHTTP(w, r); w.Code != http.StatusForbidden ||
			!strings.HasPrefix(w.Body.String(), "/: got a call from 192.0.2.1:1234") {
			t.Errorf("from another machine: got %d %s", w.Code, w.Body)
		}
	}
	f(1, "admission plugin Decides failed: no backend") // the last one
	f(2, "Decides: not &lt;b&gt;today&lt;/b&gt;", "admission plugin Decides failed: no backend", "CREATE pods")
	f(0, "<code>--recent-denials</code> is 0")
}
