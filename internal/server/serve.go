package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/internal/server/status"
)

// finishMax bounds how long requests in flight are waited for at the end: as
// long as any of them can take.
const finishMax = TimeoutMax + 5*time.Second

// Ports are what a server listens on.
type Ports struct {
	// Webhooks is the port that answers reviews, over HTTPS.
	Webhooks net.Listener
	// Certificate returns the serving certificate, as tls.Config.GetCertificate does.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Ops is the port for metrics and health, over HTTP. It may be nil.
	Ops net.Listener
	// Ready are checks of /readyz in addition to the server's own.
	Ready []Check
	// Describe adds to the status page what it says about the registration and the replicas. It may be nil.
	Describe func(ctx context.Context, page *status.Page)
	// Profiling serves the profiles of the process on the ops port, to callers on the same
	// machine.
	Profiling bool
	// ShutdownDelay is how long the server goes on when it is about to end, while /readyz
	// fails.
	ShutdownDelay time.Duration
	// ShutdownIdle is how long at most the server then goes on while there are connections. Each
	// ends with its next answer, and kube-apiserver closes those that it does not use.
	ShutdownIdle time.Duration
}

// Serve answers reviews until ctx ends. Then it goes on for the ShutdownDelay and the ShutdownIdle,
// answers the requests in flight, and returns. It closes the listeners. It must be called once.
func (s *Server) Serve(ctx context.Context, p *Ports) error {
	stopped := make(chan error, 2)
	s.accepting.Store(true)
	if p.Ops != nil {
		ready := append([]Check{s.checkServing()}, p.Ready...)
		ops := newOpsServer(s.metrics, []Check{s.check()}, ready, p.Profiling,
			opsPage{"/{$}", s.statusPage(append([]Check{s.check()}, ready...), p.Describe)}, opsPage{ShadowPath, s.shadowPage},
			opsPage{ExplainPath, s.explainPage})
		defer ops.Close()
		limited := newOpsListener(p.Ops, s.metrics.ops, s.limits.ops, s.log)
		go func() {
			if err := ops.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
				stopped <- err
			}
		}()
	}
	webhooks := s.http()
	connections := s.listen(p.Webhooks, tlsConfig(p.Certificate, s.callers.CAFile != ""), s.limits)
	defer connections.watch()()
	defer connections.Close()
	go func() { stopped <- webhooks.Serve(connections) }()
	select {
	case err := <-stopped:
		return fmt.Errorf("stopped serving: %w", err)
	case <-ctx.Done():
	}
	s.log.Info("ending after the calls in flight", "because", context.Cause(ctx).Error(), "connections", connections.table.open())
	s.accepting.Store(false)
	s.draining.Store(true)
	time.Sleep(p.ShutdownDelay)
	s.awaitIdle(connections.table, p.ShutdownIdle)
	connections.finish()
	return s.finish(webhooks)
}

// checkServing is a check of /readyz.
func (s *Server) checkServing() Check {
	return Check{Name: "serving", Ask: func() (bool, string) { return s.accepting.Load(), "" }}
}

// awaitIdle waits until there are no connections, at most for that time. A server cannot close an
// idle connection of HTTP/1.1 without the risk that a request is on its way (RFC 9112, section 9.5).
// kube-apiserver does not send a review again: net/http retries only if no byte was written.
func (s *Server) awaitIdle(table *connTable, most time.Duration) {
	if most == 0 || table.open() == 0 {
		return
	}
	s.log.Info("waiting until callers close their idle connections", "connections", table.open(), "at most", most.String())
	for end := time.Now().Add(most); table.open() > 0 && time.Now().Before(end); {
		time.Sleep(watchPause)
	}
}

// finish stops accepting and waits for the requests in flight, but for those
// whose plugins do not return.
func (s *Server) finish(webhooks *fasthttp.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), finishMax)
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- webhooks.ShutdownWithContext(ctx) }()
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	for {
		select {
		case err := <-finished:
			if err != nil {
				return fmt.Errorf("cannot finish the requests in flight: %w", err)
			}
			return nil
		case <-ticker.C:
			if stuck := s.stuck.Load(); stuck > 0 && int64(webhooks.GetOpenConnectionsCount()) <= stuck {
				s.log.Warn("stopped before all plugins returned", "calls", stuck)
				return nil
			}
		}
	}
}
