package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
	"github.com/fastadmit/fastadmit/internal/server/status"
)

// secretCreate is a review of a Secret with the UID "a b&c".
const secretCreate = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a b&c","operation":"CREATE",
"kind":{"group":"","version":"v1","kind":"Secret"},"resource":{"group":"","version":"v1","resource":"secrets"},
"requestKind":{"group":"","version":"v1","kind":"Secret"},"requestResource":{"group":"","version":"v1","resource":"secrets"},
"namespace":"n","name":"s","userInfo":{"username":"u"},"object":{"apiVersion":"v1","kind":"Secret","data":{"key":"aHVudGVyMg=="}}}}`

// TestExplain tests the explanation of a denial: it asks the plugins that have no effect elsewhere, without the secrets
// of the review, and counts nothing.
func TestExplain(t *testing.T) {
	asked := make(chan struct{})
	blocked := make(chan struct{})
	var blocks, wrote, decided int
	decide := func(review *codec.Review) admission.Result {
		return admission.Denied(errors.New("got " + review.Object.Get("data", "key").JSON()))
	}
	own := []admission.Plugin{{
		Name: "Writes", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true, SideEffects: "NoneOnDryRun",
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: func(context.Context, *codec.Review) admission.Result {
				wrote++
				return admission.Result{}
			}}, nil
		},
	}, {
		Name: "Decides", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{
				Validate: func(_ context.Context, review *codec.Review) admission.Result {
					decided++
					return decide(review)
				},
				Explain: func(_ context.Context, review *codec.Review, x *admission.Explanation) admission.Result {
					if blocks--; blocks == 0 {
						asked <- struct{}{}
						<-blocked
					}
					x.AddPolicy(admission.PolicyExplanation{Policy: "values\u202e", Asked: true, Outcome: "denied", Why: "it has a key"})
					return decide(review)
				},
			}, nil
		},
	}}
	s := serve(t, "Writes,Decides", own, func(s *setup) { s.RecentDenials = 10 })
	x := s.Open(t)
	x.Send(servertest.Request("/validate", []byte(secretCreate)))
	path := "/explain?uid=" + url.QueryEscape("a b&c")
	if _, page := s.Ask(t, "/"); !strings.Contains(page, `<a href="explain?uid=a%20b%26c">explain</a>`) {
		t.Errorf("got no link in\n%s", page)
	}
	code, got := s.Ask(t, path)
	_, after, _ := strings.Cut(got, "\n")
	want := `asked again, without the plugins that write, count or call other servers: denied: Decides: got ""
secrets were left out: request.object.data.key

validate:
  Decides: denied
    asked: its rule * of */* */* selects CREATE of v1 secrets
    policy values\u202e: denied
      asked: it has a key
`
	if code != http.StatusOK || after != want {
		t.Errorf("got %d\n%s\nwant\n%s", code, after, want)
	}
	if !strings.HasPrefix(got, "denied at 20") || wrote != 1 || decided != 1 {
		t.Errorf("got %s, and %d and %d calls, want one of each", got, wrote, decided)
	}
	_, series := s.Ask(t, "/metrics")
	const metric = `fastadmit_plugin_decisions_total{plugin="Decides",phase="validate",decision="denied"} 1`
	if !strings.Contains(series, metric) {
		t.Errorf("got no %s in\n%s", metric, series)
	}
	if code, got := s.Ask(t, "/explain?uid=other"); code != http.StatusNotFound ||
		got != "uid: got \"other\", want the UID of one of the last 10 denials and failures whose review is kept\n" {
		t.Errorf("got %d %s", code, got)
	}
	blocks = 1
	first := make(chan int)
	go func() {
		code, _ := s.Ask(t, path)
		first <- code
	}()
	<-asked
	if code, got := s.Ask(t, path); code != http.StatusServiceUnavailable {
		t.Errorf("while another one is made: got %d %s", code, got)
	}
	close(blocked)
	if code := <-first; code != http.StatusOK {
		t.Errorf("got %d", code)
	}
	if _, err := s.server.explain(&status.Decision{Endpoint: "validate/Gone"}, nil); err == nil ||
		err.Error() != "the configuration has no plugin for validate/Gone any more" {
		t.Errorf("got %v", err)
	}
	s.server.Use(new(admission.Chain), "")
	if code, got := s.Ask(t, path); code != http.StatusOK || !strings.Contains(got, "call other servers: allowed\n") {
		t.Errorf("without plugins: got %d %s", code, got)
	}
}
