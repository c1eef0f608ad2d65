package tracing_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
	"github.com/fastadmit/fastadmit/internal/tracing"
	"github.com/fastadmit/fastadmit/internal/tracing/tracingtest"
)

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	f := func(content string, want ...string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := tracing.Read(file)
		if len(want) == 0 {
			if err != nil || *c.Endpoint != "a:1" || *c.SamplingRatePerMillion != 5 {
				t.Errorf("%s: got %v, %v", content, c, err)
			}
			return
		}
		if got, want := fmt.Sprint(err), file+strings.Join(want, "\n"+file); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", content, got, want)
		}
	}
	const good = "kind: TracingConfiguration\nendpoint: a:1\nsamplingRatePerMillion: 5\n"
	f("apiVersion: apiserver.config.k8s.io/v1\n" + good)
	f("apiVersion: apiserver.config.k8s.io/v1beta1\n" + good)
	f("apiVersion: apiserver.k8s.io/v1alpha1\n" + good)
	f("apiVersion: v1\nkind: Config\nsamplingRatePerMillion: 1000001\nendpoint: http://a:1\n",
		`:2: kind: got "Config", want TracingConfiguration`,
		`:1: apiVersion: got "v1", want apiserver.config.k8s.io/v1 or apiserver.config.k8s.io/v1beta1 or apiserver.k8s.io/v1alpha1`,
		`:3: samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million`,
		`:4: endpoint: Invalid value: "http://a:1": unsupported scheme: http.  Options are none, dns, unix, or unix-abstract.  `+
			`See https://github.com/grpc/grpc/blob/master/doc/naming.md`)
	f("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoints: a\n",
		":3: endpoints: unknown field, did you mean endpoint?")
	f("", ": got an empty file, want a document")
}

// header is the header of a request.
type header map[string]string

// Peek implements tracing.Header.
func (h header) Peek(key string) []byte { return []byte(h[key]) }

const (
	traceID   = "0af7651916cd43dd8448eb211c80319c"
	parentID  = "b7ad6b7169203331"
	sampled   = "00-" + traceID + "-" + parentID + "-01"
	unsampled = "00-" + traceID + "-" + parentID + "-00"
)

// body returns a review of a scale of a Deployment with this name.
func body(name string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"UPDATE",`+
		`"resource":{"group":"apps","version":"v1","resource":"deployments"},"subResource":"scale","namespace":"shop","name":"%s",`+
		`"object":{}}}`, name)
}

// start starts a tracer that sends to a collector.
func start(t *testing.T, set *metrics.Set, more string) (*tracing.Tracer, *tracingtest.Collector) {
	t.Helper()
	collector := tracingtest.Start(t, more)
	c, err := tracing.Read(collector.File)
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := tracing.New(c, "v1.2.3", slog.New(slog.DiscardHandler), set)
	if err != nil {
		t.Fatal(err)
	}
	return tracer, collector
}

// trace traces a review, with one plugin that allows and one that fails. It reports whether the review was traced.
func trace(t *testing.T, tracer *tracing.Tracer, parent, name string) bool {
	t.Helper()
	review := codec.Acquire()
	defer review.Release() // with the tag poison, this overwrites what the spans must not refer to
	if err := review.Decode(body(name)); err != nil {
		t.Fatal(err)
	}
	ctx, span := tracer.Start(t.Context(), header{"traceparent": parent}, "validate", review, time.Now().Add(-time.Second))
	tracer.Plugin("First", admission.Run{Context: ctx, Elapsed: time.Millisecond})
	failed := errors.New("no answer")
	tracer.Plugin("Second", admission.Run{Context: ctx, Outcome: admission.OutcomeErrored, Err: failed})
	span.End(admission.OutcomeErrored, "", failed)
	return span != nil
}

func TestSpans(t *testing.T) {
	tracer, collector := start(t, metrics.NewSet(), "")
	if !trace(t, tracer, sampled, strings.Repeat("n", 1000)) {
		t.Fatal("a sampled review was not traced")
	}
	defer tracer.Close()
	spans, resource := collector.Spans(t, 3)
	if len(spans) != 3 || resource["service.name"] != "fastadmit" || resource["service.version"] != "v1.2.3" {
		t.Fatalf("got %v of %v", spans, resource)
	}
	first, second, review := spans[0], spans[1], spans[2]
	if hex.EncodeToString(review.TraceId) != traceID || hex.EncodeToString(review.ParentSpanId) != parentID ||
		review.Name != "validate" || review.Kind != tracev1.Span_SPAN_KIND_SERVER ||
		review.EndTimeUnixNano-review.StartTimeUnixNano < uint64(time.Second) {
		t.Errorf("got %v", review)
	}
	want := map[string]string{
		"UID": "u1", "operation": "UPDATE", "resource": "apps/v1, Resource=deployments", "subresource": "scale",
		"namespace": "shop", "name": codec.TruncateString(strings.Repeat("n", 1000), 253), "decision": "errored",
	}
	if got := tracingtest.Attributes(review.Attributes); !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	for _, span := range []*tracev1.Span{first, second} {
		if !bytes.Equal(span.ParentSpanId, review.SpanId) || !bytes.Equal(span.TraceId, review.TraceId) {
			t.Errorf("%s is not below the review: %v", span.Name, span)
		}
	}
	if first.Name != "First" || first.EndTimeUnixNano-first.StartTimeUnixNano != uint64(time.Millisecond) || first.Status.GetCode() != 0 {
		t.Errorf("got %v", first)
	}
	if second.Name != "Second" || second.Status.GetMessage() != "no answer" || review.Status.GetMessage() != "no answer" {
		t.Errorf("got %v and %v", second.Status, review.Status)
	}
}

// TestSampled tests which reviews are traced.
func TestSampled(t *testing.T) {
	f := func(more, parent string, want bool) {
		t.Helper()
		tracer, _ := start(t, metrics.NewSet(), more)
		defer tracer.Close()
		if got := trace(t, tracer, parent, "a"); got != want {
			t.Errorf("%q, %q: got %v, want %v", more, parent, got, want)
		}
	}
	const all, none = "samplingRatePerMillion: 1000000\n", ""
	f(none, sampled, true)
	f(none, unsampled, false)
	f(none, "", false)
	f(none, "00-nonsense-01", false)
	f(all, unsampled, false) // kube-apiserver has decided
	f(all, "", true)
	f(all, "00-nonsense-01", true)
	if trace(t, nil, sampled, "a") {
		t.Error("traced without a tracer")
	}
}

// TestSampledByUsers tests that the number of traced reviews is bounded.
func TestSampledByUsers(t *testing.T) {
	set := metrics.NewSet()
	tracer, _ := start(t, set, "")
	defer tracer.Close()
	traced := 0
	const reviews = 10_000
	begin := time.Now()
	for range reviews {
		if trace(t, tracer, sampled, "a") {
			traced++
		}
	}
	most := 100 + int(100*(time.Since(begin).Seconds()+1))
	var page bytes.Buffer
	set.WritePrometheus(&page)
	if traced < 100 || traced > most || page.String() != fmt.Sprintf("fastadmit_traces_dropped_total %d\n", reviews-traced) {
		t.Errorf("traced %d, want 100 to %d, and the rest counted: %s", traced, most, &page)
	}
}

// TestCollectorGone tests that a collector that does not answer delays neither reviews nor the end for long.
func TestCollectorGone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: 192.0.2.1:4317\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := tracing.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	log := new(servertest.Buffer)
	tracer, err := tracing.New(c, "v1", slog.New(slog.NewTextHandler(log, nil)), metrics.NewSet())
	if err != nil || !trace(t, tracer, sampled, "a") {
		t.Fatalf("got %v, or no trace", err)
	}
	tracer.Close()
	if got := log.String(); !strings.Contains(got, "traces are lost") {
		t.Errorf("got the log %q", got)
	}
}

// BenchmarkReview measures what tracing adds to a review with two plugins.
func BenchmarkReview(b *testing.B) {
	collector := tracingtest.Start(b, "")
	c, err := tracing.Read(collector.File)
	if err != nil {
		b.Fatal(err)
	}
	tracer, err := tracing.New(c, "v1", slog.New(slog.DiscardHandler), metrics.NewSet())
	if err != nil {
		b.Fatal(err)
	}
	defer tracer.Close()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body("a")); err != nil {
		b.Fatal(err)
	}
	f := func(name string, tracer *tracing.Tracer, h header) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ctx, span := tracer.Start(b.Context(), h, "validate", review, time.Now())
				tracer.Plugin("First", admission.Run{Context: ctx})
				tracer.Plugin("Second", admission.Run{Context: ctx})
				span.End(admission.OutcomeAllowed, "", nil)
			}
		})
	}
	f("off", nil, header{"traceparent": sampled})
	f("no header", tracer, header{})
	f("not sampled", tracer, header{"traceparent": unsampled})
	f("more than the limit", tracer, header{"traceparent": sampled})
	b.Run("sampled", func(b *testing.B) {
		tracer.Unlimited()
		b.ReportAllocs()
		for b.Loop() {
			ctx, span := tracer.Start(b.Context(), header{"traceparent": sampled}, "validate", review, time.Now())
			tracer.Plugin("First", admission.Run{Context: ctx})
			tracer.Plugin("Second", admission.Run{Context: ctx})
			span.End(admission.OutcomeAllowed, "", nil)
		}
	})
}

// FuzzRead reads any TracingConfiguration. It is read, or refused with an error.
func FuzzRead(f *testing.F) {
	f.Add([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: a:1\nsamplingRatePerMillion: 5\n"))
	f.Add([]byte("endpoint: unix:///a\nsamplingRatePerMillion: -1\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		file := filepath.Join(t.TempDir(), "tracing.yaml")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := tracing.Read(file); err == nil && c.Kind != "TracingConfiguration" {
			t.Errorf("got %+v", c)
		}
	})
}
