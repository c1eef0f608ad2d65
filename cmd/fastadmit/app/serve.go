package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/valyala/fasthttp"
)

// finishMax bounds how long requests in flight are waited for at the end: as
// long as any of them can take.
const finishMax = budgetMax + 5*time.Second

type serveOptions struct {
	selection
	bindAddress        string
	securePort         int
	certFile, keyFile  string
	metricsBindAddress string
	shutdownDelay      time.Duration
	profiling          bool
}

func newServeCommand(o *options) *cobra.Command {
	s := &serveOptions{selection: selection{options: o}}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve admission webhooks over HTTPS",
		Long: "Serves POST /mutate and /validate with all enabled plugins that match a review, and\n" +
			"/mutate/<Plugin> and /validate/<Plugin> with that one, also in lower case, which is how the\n" +
			"path of a webhook's service has to be written. Prints a line when it is ready.",
		Example: "  fastadmit serve --enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return s.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	s.addFlags(flags)
	flags.StringVar(&s.bindAddress, "bind-address", "0.0.0.0", "address to serve webhooks on")
	flags.IntVar(&s.securePort, "secure-port", 8443, "port to serve webhooks on; 0 lets the system choose")
	flags.StringVar(&s.certFile, "tls-cert-file", "", "file with the serving certificate and its chain, PEM; made in memory if empty")
	flags.StringVar(&s.keyFile, "tls-private-key-file", "", "file with the private key of --tls-cert-file, PEM")
	flags.StringVar(&s.metricsBindAddress, "metrics-bind-address", ":8080",
		"address for /metrics, /healthz, /livez and /readyz in plain HTTP; empty for none")
	flags.BoolVar(&s.profiling, "profiling", false, "serve profiles of the process under /debug/pprof/ beside the metrics")
	flags.DurationVar(&s.shutdownDelay, "shutdown-delay-duration", 0,
		"how long to go on serving after SIGTERM while /readyz fails, so that endpoints are updated before the port closes")
	return cmd
}

// run serves until ctx ends, then finishes what is in flight.
func (o *serveOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if o.securePort < 0 || o.securePort > 65535 {
		return fmt.Errorf("--secure-port: got %d, want 0 to 65535", o.securePort)
	}
	chain, err := o.chain()
	if err != nil {
		return err
	}
	certificate, about, err := loadCertificate(o.certFile, o.keyFile)
	if err != nil {
		return err
	}
	log := newLog(stderr)
	server := newServer(chain, log)
	ln, err := net.Listen("tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(o.securePort)))
	if err != nil {
		return failed(fmt.Errorf("cannot serve webhooks: %w", err))
	}
	defer ln.Close()

	var ready atomic.Bool
	stopped := make(chan error, 2)
	ops, opsAddress, err := o.startOps(server.metrics, &ready, stopped)
	if err != nil {
		return failed(err)
	}
	defer ops.Close()

	webhooks, connections := server.http(), server.listen(ln, tlsConfig(certificate))
	go func() { stopped <- webhooks.Serve(connections) }()
	ready.Store(true)
	fmt.Fprintf(stdout, "fastadmit: serving on https://%s, %s, %s\n", ln.Addr(), opsAddress, about)

	select {
	case err := <-stopped:
		return failed(fmt.Errorf("stopped serving: %w", err))
	case <-ctx.Done():
	}
	ready.Store(false)
	time.Sleep(o.shutdownDelay)
	connections.finish()
	return failed(finish(webhooks))
}

// startOps starts the ops server, unless it has no address.
func (o *serveOptions) startOps(m *serverMetrics, ready *atomic.Bool, stopped chan<- error) (*http.Server, string, error) {
	ops := newOpsServer(m, ready, o.profiling)
	if o.metricsBindAddress == "" {
		return ops, "no metrics", nil
	}
	ln, err := net.Listen("tcp", o.metricsBindAddress)
	if err != nil {
		return nil, "", fmt.Errorf("cannot serve metrics: %w", err)
	}
	go func() {
		if err := ops.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			stopped <- err
		}
	}()
	return ops, fmt.Sprintf("metrics on http://%s", ln.Addr()), nil
}

// finish stops accepting and waits for the requests in flight.
func finish(webhooks *fasthttp.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), finishMax)
	defer cancel()
	if err := webhooks.ShutdownWithContext(ctx); err != nil {
		return fmt.Errorf("cannot finish the requests in flight: %w", err)
	}
	return nil
}
