// Package tracingtest has an OpenTelemetry collector for tests.
package tracingtest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector receives spans by OTLP over gRPC.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer

	// File is a TracingConfiguration with the collector's address.
	File string

	mu       sync.Mutex
	spans    []*tracev1.Span
	resource map[string]string
}

// Start starts a collector, which ends with the test. more is added to its File. Tracers that are made after it send their
// spans at once, not only every five seconds.
func Start(t testing.TB, more string) *Collector {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10") // milliseconds
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{File: filepath.Join(t.TempDir(), "tracing.yaml")}
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: " + listener.Addr().String() + "\n" + more
	if err := os.WriteFile(c.File, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); done.Wait() })
	return c
}

// Export implements TraceServiceServer.
func (c *Collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		c.resource = Attributes(of.Resource.Attributes)
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return new(collectorv1.ExportTraceServiceResponse), nil
}

// Spans waits until the collector has count spans, and returns them and the attributes of their resource.
func (c *Collector) Spans(t testing.TB, count int) (spans []*tracev1.Span, resource map[string]string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c.mu.Lock()
		spans, resource = c.spans, c.resource
		c.mu.Unlock()
		if len(spans) >= count {
			return spans, resource
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %d spans, want %d", len(spans), count)
		}
	}
}

// Attributes returns attributes whose values are texts or booleans.
func Attributes(list []*commonv1.KeyValue) map[string]string {
	all := make(map[string]string)
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *commonv1.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		case *commonv1.AnyValue_BoolValue:
			if v.BoolValue {
				all[a.Key] = "true"
			} else {
				all[a.Key] = "false"
			}
		}
	}
	return all
}
