package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/explain"
	"github.com/fastadmit/fastadmit/internal/printable"
	"github.com/fastadmit/fastadmit/internal/recording"
	"github.com/fastadmit/fastadmit/internal/server/status"
)

// ExplainPath is the path of the ops port that explains a decision which the status page shows.
const ExplainPath = "/explain"

// explanationMax is how long the plugins may take for an explanation: the default of timeoutSeconds
// (k8s.io/kubernetes pkg/apis/admissionregistration/v1/defaults.go).
const explanationMax = "10s"

// explainPage answers with the explanation of a denial or a failure that is kept, as text. It makes
// one explanation at a time.
func (s *Server) explainPage(w http.ResponseWriter, r *http.Request) {
	uid := r.URL.Query().Get("uid")
	decision, body, ok := s.recent.Find(uid)
	if !ok {
		http.Error(w, fmt.Sprintf("uid: got %q, want the UID of one of the last %d denials and failures whose review is kept",
			uid, s.recent.Max()), http.StatusNotFound)
		return
	}
	if !s.explaining.TryLock() {
		http.Error(w, "another explanation is being made, try again", http.StatusServiceUnavailable)
		return
	}
	defer s.explaining.Unlock()
	text, err := s.explain(&decision, body)
	if err != nil {
		http.Error(w, printable.Lines("cannot explain: "+err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(text)) // fails if the client is gone
}

// explain asks the plugins once more about a review that was denied or failed, and returns what they
// say. Secrets in the review are replaced. Plugins that write or count, and those that call other
// servers, are not asked.
func (s *Server) explain(d *status.Decision, body []byte) (string, error) {
	e := s.serving.Load().endpoints["/"+d.Endpoint]
	if e == nil {
		return "", fmt.Errorf("the configuration has no plugin for %s any more", d.Endpoint)
	}
	body, replaced, err := recording.Redact(body)
	if err != nil {
		return "", err
	}
	var all []*admission.Explanation
	var leftOut []string
	chain := e.chain.Select(func(p *admission.Plugin, _ *admission.Settings) bool {
		if p.Calls || p.SideEffects != "" {
			leftOut = append(leftOut, p.Name)
			return false
		}
		return true
	})
	chain.Observe = nil
	chain.Explain = func(x *admission.Explanation) { all = append(all, x) }
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		return "", err
	}
	var args fasthttp.Args
	args.Set("timeout", explanationMax)
	callCtx := s.acquireContext(time.Now(), &args, review, body)
	defer callCtx.release()
	if !s.reserve(callCtx) {
		return "", codec.ErrNoMemory
	}
	_, err = chain.Review(callCtx, review, e.phase)
	now, said := "allowed", ""
	if failure, ok := errors.AsType[*admission.FailureError](err); ok {
		now, said = admission.OutcomeErrored.String(), failure.Error()
	} else if err != nil {
		return "", err
	} else if !review.Response.Allowed {
		now, said = admission.OutcomeDenied.String(), review.Response.Status.Message
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %s: %s\n", d.Decision, d.Time.UTC().Format(time.RFC3339), d.Message)
	fmt.Fprintf(&b, "asked again, without the plugins that write, count or call other servers: %s", now)
	switch said {
	case "":
	case d.Message:
		b.WriteString(", as before")
	default:
		b.WriteString(": " + said)
	}
	b.WriteByte('\n')
	if slices.Contains(leftOut, d.Plugin) {
		fmt.Fprintf(&b, "%s, which decided, is one of them\n", d.Plugin)
	}
	if len(replaced) > 0 {
		fmt.Fprintf(&b, "secrets were left out: %s\n", strings.Join(replaced, ", "))
	}
	return printable.Lines(b.String()) + "\n" + explain.Text(all, strings.TrimPrefix(said, d.Plugin+": "), 0), nil
}
