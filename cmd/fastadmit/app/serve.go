package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/admission"
)

// finishMax bounds how long requests in flight are waited for at the end: as
// long as any of them can take.
const finishMax = budgetMax + 5*time.Second

// rulesMax bounds how long registration waits at the start for what plugins follow of
// the cluster to know which reviews they want. Until they know, they want all.
const rulesMax = 5 * time.Second

type serveOptions struct {
	selection
	serverOptions

	hangup chan os.Signal // SIGHUP, to read all files again
	rules  chan struct{}  // says that plugins want other reviews to be sent
}

func newServeCommand(o *options) *cobra.Command {
	s := &serveOptions{selection: selection{options: o, images: true}}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve admission webhooks over HTTPS",
		Long: `Serves admission webhooks over HTTPS. POST /mutate and /validate run all enabled plugins that match
a review. With /fail or /ignore appended, they run only the plugins with that failurePolicy; with
/<Plugin>, only that plugin. The plugin's name may be in lower case, as the path of a webhook's
service requires. serve prints a line when it is ready.

Changes of the configuration files take effect at once, except for settings of the server itself.
SIGHUP makes serve read all files again. After SIGTERM or SIGINT, it answers the calls in flight and
exits.`,
		Example: "  fastadmit serve --enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			s.hangup = make(chan os.Signal, 1)
			signal.Notify(s.hangup, syscall.SIGHUP)
			defer signal.Stop(s.hangup)
			signal.Ignore(syscall.SIGPIPE) // that nobody reads the log any more does not end the process
			lines := newLogQueue(cmd.ErrOrStderr())
			defer lines.close()
			return s.run(ctx, cmd.OutOrStdout(), lines)
		},
	}
	s.selection.addFlags(cmd)
	s.serverOptions.addFlags(cmd.Flags())
	return cmd
}

// run serves until ctx ends, then finishes what is in flight.
func (o *serveOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	limitMemory(os.ReadFile)
	log := newLog(stderr)
	server := newServer(new(admission.Chain), &o.callers, log)
	o.cluster.log, o.cluster.metrics = log, server.metrics.set
	server.metrics.build(o.options.shownVersion())
	background, started, end := outlasting(ctx)
	defer end()
	in, err := o.load(background, nil)
	if err != nil {
		return err
	}
	server.useSelected(&in)
	if err := o.fill(o.flags, &in.Server); err != nil {
		return err
	}
	o.callers.managed = o.managed.makesPathToken(&o.callers)
	if err := failed(o.callers.load()); err != nil {
		return err
	}
	if err := failed(o.checkWrites(in.chain)); err != nil {
		return err
	}
	limits, err := o.limits()
	if err != nil {
		return err
	}
	server.load.requestsMax, server.load.bytesMax = o.requestsMax, o.requestBytesMax
	server.memory = newMemory(cmp.Or(o.reviewMemoryMax, reviewMemory()))
	server.timeouts.maxAge = o.connectionAgeMax
	o.startPlugins(background, &in)
	serve, err := o.certificates(ctx, &in, server)
	if err != nil {
		return err
	}
	parts := append([]*part{o.configPart(server, in)}, serve.parts...)
	reloader, err := newReloader(server, append(parts, &part{name: "callers", files: o.callers.files, reload: o.reloadCallers})...)
	if err != nil {
		return failed(err)
	}
	go o.watchRules(reloader).run(background, o.hangup)
	ln, err := net.Listen("tcp", net.JoinHostPort(o.bindAddress, strconv.Itoa(int(o.securePort))))
	if err != nil {
		return failed(fmt.Errorf("cannot serve webhooks: %w", err))
	}
	defer ln.Close()
	var serving atomic.Bool
	stopped := make(chan error, 2)
	ops, opsAddress, err := o.startOps(server, limits.ops, append(o.checks(&serving, reloader), serve.checks(ln.Addr())...), stopped)
	if err != nil {
		return failed(err)
	}
	defer ops.Close()

	webhooks := server.http()
	connections := server.listen(ln, tlsConfig(serve.get, o.callers.caFile != ""), limits)
	defer connections.watch()()
	go func() { stopped <- webhooks.Serve(connections) }()
	serving.Store(true)
	started()
	fmt.Fprintf(stdout, "fastadmit: serving on https://%s, %s, %s\n", ln.Addr(), opsAddress, serve.about)

	select {
	case err := <-stopped:
		return failed(fmt.Errorf("stopped serving: %w", err))
	case <-ctx.Done():
	}
	serving.Store(false)
	return failed(o.drain(background, server, connections, webhooks))
}

// outlasting returns the context of what plugins follow and do beside reviews. It goes on
// when ctx ends, for reviews are answered after that; but until started is called, nothing
// is, and it ends with ctx.
func outlasting(ctx context.Context) (background context.Context, started func() bool, end context.CancelFunc) {
	background, end = context.WithCancel(context.WithoutCancel(ctx))
	return background, context.AfterFunc(ctx, end), end
}

// drain answers what still comes, and then ends what plugins do beside reviews.
func (o *serveOptions) drain(ctx context.Context, server *server, connections *listener, webhooks *fasthttp.Server) error {
	server.draining.Store(true)
	time.Sleep(o.shutdownDelay)
	connections.finish()
	err := server.finish(webhooks)
	ctx, cancel := context.WithTimeout(ctx, pluginsEndMax)
	defer cancel()
	server.serving.Load().chain.Stop(ctx)
	return err
}

// pluginsEndMax is how long plugins may take to end what they do beside reviews: some
// delete what they wrote about this process, which takes a request to kube-apiserver.
const pluginsEndMax = 2 * time.Second

// startPlugins begins what plugins do beside reviews.
func (o *serveOptions) startPlugins(ctx context.Context, in *selected) {
	o.rules = make(chan struct{}, 1)
	in.chain.Start(ctx, nil, o.ringRules)
}

// watchRules has what plugins want to be sent registered when that changes.
func (o *serveOptions) watchRules(r *reloader) *reloader {
	r.rules, r.register = o.rules, func() error { return o.managed.reload(&o.managed.last, &o.callers) }
	return r
}

// ringRules says that plugins want other reviews to be sent.
func (o *serveOptions) ringRules() {
	select {
	case o.rules <- struct{}{}:
	default: // it is not looked at yet
	}
}

// reloadCallers reads anew who may call. What fastadmit registers may have
// another path token then.
func (o *serveOptions) reloadCallers(context.Context) error {
	before := o.callers.firstPathToken()
	if err := o.callers.load(); err != nil || o.callers.firstPathToken() == before {
		return err
	}
	return o.managed.reload(&o.managed.last, &o.callers)
}

// certificates are what is served, and what goes with it.
type certificates struct {
	get    func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	about  string
	parts  []*part
	checks func(net.Addr) []check
}

// certificates makes the certificates ready: those of files, those that are kept in a Secret, or one in memory.
func (o *serveOptions) certificates(ctx context.Context, in *selected, server *server) (*certificates, error) {
	if o.managed.secretName != "" {
		waiting, cancel := context.WithTimeout(ctx, rulesMax)
		in.chain.AwaitRules(waiting)
		cancel()
		if err := o.managed.start(ctx, o.cluster.kubeconfig, in, &o.callers, server.log, server.metrics.set); err != nil {
			return nil, failed(fmt.Errorf("cannot manage certificates: %w", err))
		}
		return &certificates{
			get:    o.managed.manager.Certificate,
			about:  fmt.Sprintf("certificate in Secret %s/%s", o.managed.secretNamespace, o.managed.secretName),
			checks: o.managed.checks,
		}, nil
	}
	if err := o.certificate.load(); err != nil {
		return nil, err
	}
	server.metrics.set.NewGauge("fastadmit_serving_certificate_expiry_timestamp_seconds", o.certificate.expiry)
	return &certificates{
		get:    o.certificate.get,
		about:  o.certificate.about(),
		parts:  []*part{{name: "certificate", files: o.certificate.files, reload: func(context.Context) error { return o.certificate.load() }}},
		checks: func(net.Addr) []check { return nil },
	}, nil
}

// checks are what /readyz looks at.
func (o *serveOptions) checks(serving *atomic.Bool, reloader *reloader) []check {
	checks := []check{
		{name: "serving", ask: func() (bool, string) { return serving.Load(), "" }},
		{name: "cluster", ask: func() (bool, string) {
			if err := o.cluster.ready(); err != nil {
				return false, err.Error()
			}
			return true, ""
		}},
	}
	return append(checks, reloader.checks()...)
}

// startOps starts the ops server, unless it has no address.
func (o *serveOptions) startOps(server *server, most int64, ready []check, stopped chan<- error) (*http.Server, string, error) {
	ops := newOpsServer(server.metrics, []check{server.check()}, ready, o.profiling)
	if o.metricsBindAddress == "" {
		return ops, "no metrics", nil
	}
	ln, err := net.Listen("tcp", o.metricsBindAddress)
	if err != nil {
		return nil, "", fmt.Errorf("cannot serve metrics: %w", err)
	}
	limited := newOpsListener(ln, server.metrics.ops, most, server.log)
	go func() {
		if err := ops.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			stopped <- err
		}
	}()
	return ops, fmt.Sprintf("metrics on http://%s", ln.Addr()), nil
}

// finish stops accepting and waits for the requests in flight, but for those
// whose plugins do not return.
func (s *server) finish(webhooks *fasthttp.Server) error {
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
