package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
	"github.com/fastadmit/fastadmit/internal/tracing"
	"github.com/fastadmit/fastadmit/internal/tracing/tracingtest"
)

// TestTracing sends reviews of which the first one is sampled. Only that one has spans, and its plugins see them.
func TestTracing(t *testing.T) {
	collector := tracingtest.Start(t, "")
	configuration, err := tracing.Read(collector.File)
	if err != nil {
		t.Fatal(err)
	}
	var tracer *tracing.Tracer
	var seen []trace.SpanContext
	denies := func(ctx context.Context, _ *codec.Review) admission.Result {
		seen = append(seen, trace.SpanContextFromContext(ctx))
		return admission.Denied(errors.New("no"))
	}
	s := serve(t, "Denies,AlwaysAdmit", []admission.Plugin{{
		Name: "Denies", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: denies}, nil },
	}}, func(s *setup) {
		if tracer, err = tracing.New(configuration, "v1", slog.New(slog.DiscardHandler), s.Metrics); err != nil {
			t.Fatal(err)
		}
		s.Tracer = tracer
	})
	x := s.Open(t)
	for _, flags := range []string{"01", "00"} {
		response, body := x.Send(servertest.Request("/validate", corpus.MustRead(servertest.PodCreate),
			"Content-Type: application/json", "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"+flags))
		if response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"allowed":false`)) {
			t.Errorf("got %s %s", response.Status, body)
		}
	}
	defer tracer.Close()
	spans, _ := collector.Spans(t, 3)
	if len(spans) != 3 || spans[0].Name != "AlwaysAdmit" || spans[1].Name != "Denies" || spans[2].Name != "validate" {
		t.Fatalf("got %v", spans)
	}
	if got := tracingtest.Attributes(spans[2].Attributes); got["decision"] != "denied" || got["plugin"] != "Denies" {
		t.Errorf("got %v", got)
	}
	if id := seen[0].SpanID(); !bytes.Equal(id[:], spans[2].SpanId) || seen[1].IsValid() {
		t.Errorf("the plugin saw %v, want the span of the sampled review, and then none", seen)
	}
}
