// Package tracing sends spans of reviews to an OpenTelemetry collector: one for a review, and below it one for each
// plugin that ran. The span of a review is a child of the span in which kube-apiserver calls the webhook. The
// configuration is kube-apiserver's TracingConfiguration.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	basetracing "k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/strictyaml"
)

const (
	// reviewsPerSecond is the maximum of traced reviews per second, on average and at once. A user of the cluster can
	// have every request sampled: kube-apiserver without tracing passes on the traceparent of its clients.
	reviewsPerSecond = 100

	// attributeBytesMax is the maximum length of an attribute in bytes, that of a name in Kubernetes.
	attributeBytesMax = 253

	// flushMax is how long the last spans may take to be sent when the process ends.
	flushMax = 2 * time.Second
)

// Configuration is kube-apiserver's TracingConfiguration (k8s.io/apiserver pkg/apis/apiserver/v1).
type Configuration struct {
	metav1.TypeMeta                 `json:",inline"`
	tracingapi.TracingConfiguration `json:",inline"`
}

const kind = "TracingConfiguration"

// The versions have the same fields.
var versions = []string{"apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"}

// Read reads a configuration file. The error has all errors in it.
func Read(file string) (*Configuration, error) {
	content, err := files.Read(file)
	if err != nil {
		return nil, err
	}
	document, err := strictyaml.Parse(file, content)
	if err != nil {
		return nil, err
	}
	c := new(Configuration)
	errs, decoded := document.Decode(c)
	if decoded {
		if c.Kind != kind {
			errs = append(errs, document.Errorf("kind", "got %q, want %s", c.Kind, kind))
		}
		if !slices.Contains(versions, c.APIVersion) {
			errs = append(errs, document.Errorf("apiVersion", "got %q, want %s", c.APIVersion, strings.Join(versions, " or ")))
		}
		for _, fault := range tracingapi.ValidateTracingConfiguration(&c.TracingConfiguration, nil, nil) {
			errs = append(errs, document.Locate(fault)...)
		}
	}
	return c, strictyaml.Join(errs...)
}

// A Tracer makes the spans of a server. A nil Tracer makes none.
type Tracer struct {
	provider basetracing.TracerProvider
	tracer   trace.Tracer
	// starts is true if reviews are sampled for which kube-apiserver sends no span.
	starts  bool
	limiter *rate.Limiter
	dropped *metrics.Counter
}

// New returns a Tracer. It connects to the collector in the background, and goes on trying. version is that of
// fastadmit. Failures to send spans go to log.
func New(c *Configuration, version string, log *slog.Logger, set *metrics.Set) (*Tracer, error) {
	host, _ := os.Hostname() // the pod's name
	provider, err := basetracing.NewProvider(context.Background(), &c.TracingConfiguration, nil, []resource.Option{
		resource.WithAttributes(semconv.ServiceName("fastadmit"), semconv.ServiceVersion(version), semconv.ServiceInstanceID(host)),
		resource.WithFromEnv(),
	})
	if err != nil {
		return nil, fmt.Errorf("cannot send traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces are lost", "error", err.Error()) }))
	return &Tracer{
		provider: provider, tracer: provider.Tracer("github.com/fastadmit/fastadmit"),
		starts:  c.SamplingRatePerMillion != nil && *c.SamplingRatePerMillion > 0,
		limiter: rate.NewLimiter(reviewsPerSecond, reviewsPerSecond),
		dropped: set.NewCounter("fastadmit_traces_dropped_total"),
	}, nil
}

// Close sends the last spans. It returns after flushMax if the collector does not take them.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushMax)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// A Header reads the header of a request. Peek returns nil if the header is not there.
type Header interface{ Peek(key string) []byte }

// Span is the span of a review. A nil Span is one that is not sampled.
type Span struct{ span trace.Span }

// Start starts the span of a review that began at start, if it is sampled. The context that it returns has the
// span; it is ctx if the review is not sampled.
func (t *Tracer) Start(ctx context.Context, header Header, endpoint string, review *codec.Review, start time.Time) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	parent := header.Peek("traceparent")
	if !t.starts && !mayBeSampled(parent) {
		return ctx, nil
	}
	remote := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": string(parent), "tracestate": string(header.Peek("tracestate")),
	})
	of := trace.SpanContextFromContext(remote)
	if of.IsValid() && !of.IsSampled() || !of.IsValid() && !t.starts {
		return ctx, nil
	}
	traced, span := t.tracer.Start(remote, endpoint, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(start))
	if !span.IsRecording() {
		return ctx, nil
	}
	if !t.limiter.Allow() {
		t.dropped.Inc()
		return ctx, nil
	}
	span.SetAttributes(attributes(review)...)
	return traced, &Span{span}
}

// mayBeSampled returns false for most of what is not sampled, without parsing it: the last digit of a traceparent has the
// flag (W3C Trace Context, section 3.2.2.5).
func mayBeSampled(parent []byte) bool {
	return len(parent) > 0 && strings.IndexByte("02468ace", parent[len(parent)-1]) < 0
}

// attributes describe a review with the keys that kube-apiserver uses in its spans of webhooks (k8s.io/apiserver
// pkg/admission/plugin/webhook).
func attributes(review *codec.Review) []attribute.KeyValue {
	resource := review.Resource()
	return []attribute.KeyValue{
		text("UID", review.UID()),
		text("operation", string(review.Operation())),
		text("resource", strings.TrimPrefix(resource.Group+"/"+resource.Version+", Resource="+resource.Resource, "/")),
		text("subresource", review.SubResource()),
		text("namespace", review.Namespace()),
		text("name", review.Name()),
	}
}

// text returns an attribute. It copies the value, which may be a view of a review, and truncates it.
func text(key, value string) attribute.KeyValue {
	return attribute.String(key, strings.Clone(codec.TruncateString(strings.ToValidUTF8(value, "\uFFFD"), attributeBytesMax)))
}

// End ends the span of a review.
func (s *Span) End(outcome admission.Outcome, deniedBy string, err error) {
	if s == nil {
		return
	}
	s.span.SetAttributes(attribute.String("decision", outcome.String()))
	if outcome == admission.OutcomeDenied {
		s.span.SetAttributes(text("plugin", deniedBy))
	}
	if err != nil {
		s.span.SetStatus(codes.Error, text("", err.Error()).Value.AsString())
	}
	s.span.End()
}

// Plugin makes the span of a plugin's run that has just ended, if its review is sampled.
func (t *Tracer) Plugin(name string, run admission.Run) {
	if t == nil {
		return
	}
	of := trace.SpanFromContext(run.Context)
	if !of.IsRecording() {
		return
	}
	end := time.Now()
	_, span := t.tracer.Start(run.Context, name, trace.WithTimestamp(end.Add(-run.Elapsed)), trace.WithAttributes(
		attribute.String("decision", run.Outcome.String()), attribute.Bool("reinvocation", admission.IsReinvocation(run.Context))))
	if run.Err != nil {
		description := run.Err.Error()
		if run.Outcome == admission.OutcomePanicked {
			description = "it panicked, see the log of fastadmit"
		}
		span.SetStatus(codes.Error, text("", description).Value.AsString())
	}
	span.End(trace.WithTimestamp(end))
}
