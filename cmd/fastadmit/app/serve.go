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
	serverOptions
}

func newServeCommand(o *options) *cobra.Command {
	s := &serveOptions{selection: selection{options: o}}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve admission webhooks over HTTPS",
		Long: "Serves POST /mutate and /validate with all enabled plugins that match a review, the same\n" +
			"with /fail or /ignore behind it for those with that failurePolicy, and with /<Plugin> for\n" +
			"that one, also in lower case, which is how the path of a webhook's service has to be\n" +
			"written. Prints a line when it is ready. Changes of the configuration files take effect at\n" +
			"once, but for what is about the server itself.",
		Example: "  fastadmit serve --enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			return s.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.selection.addFlags(cmd.Flags())
	s.serverOptions.addFlags(cmd.Flags())
	return cmd
}

// run serves until ctx ends, then finishes what is in flight.
func (o *serveOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	in, err := o.load(nil)
	if err != nil {
		return err
	}
	if err := o.fill(o.flags, &in.Server); err != nil {
		return err
	}
	if err := errors.Join(o.certificate.load(), failed(o.callers.load())); err != nil {
		return err
	}
	limitMemory()
	log := newLog(stderr)
	server := newServer(in.chain, &o.callers, log)
	server.load.requestsMax, server.load.bytesMax = o.requestsMax, o.requestBytesMax
	server.timeouts.maxAge = o.connectionAgeMax
	server.metrics.set.NewGauge("fastadmit_serving_certificate_expiry_timestamp_seconds", o.certificate.expiry)
	if err := o.follow(ctx, in.Loaded, false, log, server.metrics.set); err != nil {
		return failed(err)
	}
	reloader, err := newReloader(server,
		o.configPart(server, in),
		&part{name: "certificate", files: o.certificate.files, reload: func(context.Context) error { return o.certificate.load() }},
		&part{name: "callers", files: o.callers.files, reload: func(context.Context) error { return o.callers.load() }},
	)
	if err != nil {
		return failed(err)
	}
	go reloader.run(ctx)
	ln, err := net.Listen("tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(int(o.securePort))))
	if err != nil {
		return failed(fmt.Errorf("cannot serve webhooks: %w", err))
	}
	defer ln.Close()

	var serving atomic.Bool
	stopped := make(chan error, 2)
	ops, opsAddress, err := o.startOps(server.metrics, o.checks(&serving, reloader), stopped)
	if err != nil {
		return failed(err)
	}
	defer ops.Close()

	webhooks, connections := server.http(), server.listen(ln, o.certificate.config(o.callers.caFile != ""))
	go func() { stopped <- webhooks.Serve(connections) }()
	serving.Store(true)
	fmt.Fprintf(stdout, "fastadmit: serving on https://%s, %s, %s\n", ln.Addr(), opsAddress, o.certificate.about())

	select {
	case err := <-stopped:
		return failed(fmt.Errorf("stopped serving: %w", err))
	case <-ctx.Done():
	}
	serving.Store(false)
	server.draining.Store(true)
	time.Sleep(o.shutdownDelay)
	connections.finish()
	return failed(finish(webhooks))
}

// checks are what /readyz looks at.
func (o *serveOptions) checks(serving *atomic.Bool, reloader *reloader) []check {
	checks := []check{
		{"serving", func() (bool, string) { return serving.Load(), "" }},
		{"cluster", func() (bool, string) {
			if err := o.namespaces.ready(); err != nil {
				return false, err.Error()
			}
			return true, ""
		}},
	}
	return append(checks, reloader.checks()...)
}

// startOps starts the ops server, unless it has no address.
func (o *serveOptions) startOps(m *serverMetrics, ready []check, stopped chan<- error) (*http.Server, string, error) {
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
