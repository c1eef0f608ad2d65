package server

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// A running is a server with plugins that serves.
type running struct {
	servertest.Client
	server *Server
	stop   context.CancelFunc
	done   chan error
}

// A setup has the options of a server.
type setup struct {
	Options
	Ports
	settings map[string]admission.Settings // by plugin
}

// serve starts a server with plugins of the table, given as names with commas, and with own
// ones. It stops when the test ends.
func serve(t testing.TB, names string, own []admission.Plugin, set ...func(*setup)) *running {
	t.Helper()
	s := &running{Client: servertest.Client{Log: new(servertest.Buffer)}, done: make(chan error, 1)}
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	var certificate Certificate
	if err := certificate.Load(); err != nil {
		t.Fatal(err)
	}
	with := &setup{
		Options: Options{
			Log: NewLog(s.Log), Metrics: metrics.NewSet(), Callers: new(Callers),
			RequestsMax: RequestsInFlightMax, ConnectionAgeMax: ConnectionAgeMax,
		},
		Ports:    Ports{Webhooks: listen(), Ops: listen(), Certificate: certificate.Get},
		settings: make(map[string]admission.Settings),
	}
	for _, f := range set {
		f(with)
	}
	if err := with.Callers.Load(); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.server, err = New(&with.Options); err != nil {
		t.Fatal(err)
	}
	enabled := make(map[string]admission.Enabled)
	for name := range strings.SplitSeq(names, ",") {
		enabled[name] = admission.Enabled{Settings: with.settings[name]}
	}
	chain, err := admission.NewChain(append(handlers.InTree(handlers.DefaultOptions()), own...), enabled, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.server.Use(chain, "")
	s.Address, s.Ops = with.Webhooks.Addr().String(), "http://"+with.Ops.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.done <- s.server.Serve(ctx, &with.Ports) }()
	t.Cleanup(func() { s.end(t) })
	return s
}

// newTestServer returns a server with the chain that does not listen yet.
func newTestServer(chain *admission.Chain, callers *Callers, log *slog.Logger) *Server {
	s, err := New(&Options{
		Log: log, Metrics: metrics.NewSet(), Callers: callers,
		RequestsMax: RequestsInFlightMax, ConnectionAgeMax: ConnectionAgeMax,
	})
	if err != nil {
		panic(err) // only the number of connections can be wrong
	}
	s.Use(chain, "")
	return s
}

// end stops the server, and fails the test if that returns an error.
func (s *running) end(t testing.TB) {
	t.Helper()
	s.stop()
	select {
	case err := <-s.done:
		if err != nil {
			t.Errorf("the server ended with %v", err)
		}
		s.done <- nil
	case <-time.After(5 * time.Minute):
		t.Error("the server did not end")
	}
}
