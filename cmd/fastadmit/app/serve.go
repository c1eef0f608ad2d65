package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/memory"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/recording"
	"github.com/fastadmit/fastadmit/internal/server"
	"github.com/fastadmit/fastadmit/internal/tracing"
	"github.com/fastadmit/fastadmit/internal/wake"
)

// rulesMax is how long the first registration waits until plugins have read from the cluster
// which reviews they need. Without that, they are registered for all reviews.
const rulesMax = 5 * time.Second

type serveOptions struct {
	selection
	given       config.Server // by flags
	givenRecord config.Record

	settings *config.Server // those of the flags and of the configuration file
	record   *config.Record
	callers  *server.Callers
	managed  managed
	server   *server.Server
	recorder *recording.Recorder // nil if nothing is recorded

	hangup chan os.Signal // SIGHUP, to read all files again
	rules  wake.Signal    // sent when plugins need other reviews
	served *servedCheck
}

func newServeCommand(o *options) *cobra.Command {
	s := newServeOptions(o)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve admission webhooks over HTTPS",
		Long: `Serves admission webhooks over HTTPS. POST /mutate and /validate run all enabled plugins that match
a review. With /fail or /ignore appended, they run only the plugins with that failurePolicy; with
/<Plugin>, only that plugin. The plugin's name may be in lower case, as the path of a webhook's
service requires. serve prints a line when it is ready.

Changes of the configuration files take effect at once, except for settings of the server itself.
SIGHUP makes serve read all files again. After SIGTERM or SIGINT, it answers the calls in flight and
exits with 0. It exits with 1 if it cannot start, as with a wrong file, and with 2 if the command is wrong.`,
		Example: "  fastadmit serve --enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			s.hangup = make(chan os.Signal, 1)
			signal.Notify(s.hangup, syscall.SIGHUP)
			defer signal.Stop(s.hangup)
			signal.Ignore(syscall.SIGPIPE) // the process goes on if the reader of its log ends
			lines := server.NewLogQueue(cmd.ErrOrStderr())
			defer lines.Close()
			defer logLibraries(lines)()
			return s.run(ctx, cmd.OutOrStdout(), lines)
		},
	}
	s.addFlags(cmd)
	return cmd
}

func newServeOptions(o *options) *serveOptions {
	return &serveOptions{selection: selection{options: o, images: true, shadow: newShadowed()}, given: config.DefaultServer(), givenRecord: config.DefaultRecord()}
}

func (o *serveOptions) addFlags(cmd *cobra.Command) {
	o.selection.addFlags(cmd)
	addServerFlags(cmd.Flags(), &o.given)
	addServerFlags(cmd.Flags(), &o.givenRecord)
	completeFiles(cmd, "record-dir")
	completeFiles(cmd, "tracing-config-file", manifestExtensions()...)
}

// use takes the settings of the configuration file and of the flags.
func (o *serveOptions) use(in *selected) (err error) {
	if o.settings, err = serverSettings(o.flags, &o.given, &in.Server); err != nil {
		return err
	}
	if o.record, err = recordSettings(o.flags, &o.givenRecord, &in.Record); err != nil {
		return err
	}
	o.callers = callersOf(o.settings)
	o.managed.settings = o.settings
	return nil
}

// run serves until ctx ends, and then answers the requests in flight.
func (o *serveOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	memory.SetLimit(os.ReadFile)
	log, set := server.NewLog(stderr), metrics.NewSet()
	set.NewGauge(fmt.Sprintf("fastadmit_build_info{version=%q,goversion=%q}", o.options.shownVersion(), runtime.Version()), func() float64 { return 1 })
	o.cluster.log, o.cluster.metrics = log, set
	o.emulated.log, o.emulated.changed = log, wake.NewSignal()
	background, started, end := outlasting(ctx)
	defer end()
	in, err := o.load(background, nil)
	if err != nil {
		return err
	}
	if err := o.use(&in); err != nil {
		return err
	}
	if err := failed(o.callers.Load()); err != nil {
		return err
	}
	if err := failed(o.checkWrites(in.chain)); err != nil {
		return err
	}
	if o.recorder = newRecorder(o.record, log, set); o.recorder != nil {
		defer o.recorder.Close()
	}
	tracer, err := newTracer(o.settings.TracingConfigFile, o.options.shownVersion(), log, set)
	if err != nil {
		return failed(err)
	}
	defer tracer.Close()
	if err := o.newServer(log, set, tracer); err != nil {
		return err
	}
	o.serveSelected(&in)
	o.startPlugins(background, &in)
	o.emulated.start(background, set)
	o.served = newServedCheck(&o.cluster, log, set)
	if err := o.served.start(background, func() []*admission.Plugin { return o.server.Chain().Plugins() }); err != nil {
		return failed(err)
	}
	certificates, err := o.certify(ctx, &in, log, set)
	if err != nil {
		return err
	}
	parts := append([]*part{o.configPart(in)}, certificates.parts...)
	reloader, err := newReloader(log, set, append(parts, &part{name: "callers", files: o.callers.Files, reload: o.reloadCallers})...)
	if err != nil {
		return failed(err)
	}
	go o.watchRules(reloader).run(background, o.hangup)
	ports, about, err := o.listen(certificates)
	if err != nil {
		return failed(err)
	}
	ports.Ready = append(append([]server.Check{o.cluster.check(), o.served.check(), o.emulated.check()}, reloader.checks()...), certificates.checks(ports.Webhooks.Addr())...)
	ports.Describe = o.managed.describe
	started()
	if !o.callers.Authenticates() {
		log.Warn("callers are not authenticated: everybody who reaches the port gets answers; SECURITY.md lists what authenticates them")
	}
	server.NewLog(stdout).Info(fmt.Sprintf("serving on https://%s, %s, %s", ports.Webhooks.Addr(), about, certificates.about))
	err = o.server.Serve(ctx, ports)
	o.stopPlugins(background)
	return failed(err)
}

// newServer creates the server, without plugins.
func (o *serveOptions) newServer(log *slog.Logger, set *metrics.Set, tracer *tracing.Tracer) (err error) {
	o.server, err = server.New(&server.Options{
		Log: log, Metrics: set, Callers: o.callers,
		RequestsMax:              o.settings.MaxRequestsInflight,
		RequestBytesMax:          o.settings.MaxRequestBytesInflight,
		ReviewMemoryMax:          o.settings.MaxReviewMemoryBytes,
		ConnectionsMax:           o.settings.MaxConnections,
		ConnectionsPerAddressMax: o.settings.MaxConnectionsPerAddress,
		ConnectionAgeMax:         o.settings.MaxConnectionAge.Duration,
		Recorder:                 o.recorder,
		Tracer:                   tracer,
		RecentDenials:            int(o.settings.RecentDenials),
	})
	return err
}

// serveSelected makes the server use what was loaded.
func (o *serveOptions) serveSelected(in *selected) {
	o.server.UseWithShadow(in.chain, in.Digest, in.shadow)
	o.server.UseImages(in.ImageReview)
	for _, name := range o.unused {
		o.cluster.log.Warn(report.Unused(name))
	}
}

// listen opens the ports. about describes the ops port.
func (o *serveOptions) listen(c *certificates) (ports *server.Ports, about string, err error) {
	ports = &server.Ports{
		Certificate: c.get, Profiling: o.settings.Profiling,
		ShutdownDelay: o.settings.ShutdownDelayDuration.Duration, ShutdownIdle: o.settings.ShutdownIdleDuration.Duration,
	}
	ports.Webhooks, err = net.Listen("tcp", net.JoinHostPort(o.settings.BindAddress, strconv.Itoa(int(o.settings.SecurePort))))
	if err != nil {
		return nil, "", fmt.Errorf("cannot serve webhooks: %w", err)
	}
	if o.settings.MetricsBindAddress == "" {
		return ports, "no metrics", nil
	}
	ports.Ops, err = net.Listen("tcp", o.settings.MetricsBindAddress)
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("cannot serve metrics: %w", err), ports.Webhooks.Close())
	}
	return ports, fmt.Sprintf("metrics on http://%s", ports.Ops.Addr()), nil
}

// outlasting returns the context for the watches and background tasks of plugins. Before
// started is called, it ends with ctx. After that, it continues when ctx ends, because the
// server still answers reviews then.
func outlasting(ctx context.Context) (background context.Context, started func() bool, end context.CancelFunc) {
	background, end = context.WithCancel(context.WithoutCancel(ctx))
	return background, context.AfterFunc(ctx, end), end
}

// pluginsEndMax is how long plugins may take to end their background tasks. Some delete the
// objects that they wrote about this process, which takes a request to kube-apiserver.
const pluginsEndMax = 2 * time.Second

// stopPlugins ends the background tasks of plugins.
func (o *serveOptions) stopPlugins(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pluginsEndMax)
	defer cancel()
	o.server.Chain().Stop(ctx)
	o.server.Shadow().Close()
	o.shadow.start(ctx, nil, func() {})
}

// startPlugins starts the background tasks of plugins.
func (o *serveOptions) startPlugins(ctx context.Context, in *selected) {
	o.rules = wake.NewSignal()
	in.chain.Start(ctx, nil, o.rules.Send)
	o.shadow.start(ctx, in.shadow, o.rules.Send)
}

// watchRules makes the reloader register again when plugins need other reviews.
func (o *serveOptions) watchRules(r *reloader) *reloader {
	r.changed = o.emulated.changed
	r.rules, r.register = o.rules, func() error { return o.managed.reload(&o.managed.last, o.callers) }
	return r
}

// reloadCallers reads the files of callers again. If the path token changed, it registers
// again.
func (o *serveOptions) reloadCallers(context.Context) error {
	before := o.callers.FirstPathToken()
	if err := o.callers.Load(); err != nil || o.callers.FirstPathToken() == before {
		return err
	}
	return o.managed.reload(&o.managed.last, o.callers)
}

// certificates is the source of the serving certificate.
type certificates struct {
	get    func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	about  string
	parts  []*part
	checks func(net.Addr) []server.Check
}

// certify loads the serving certificate from files or from a Secret, or makes a new one in
// memory.
func (o *serveOptions) certify(ctx context.Context, in *selected, log *slog.Logger, set *metrics.Set) (*certificates, error) {
	if o.settings.CertSecretName != "" {
		waiting, cancel := context.WithTimeout(ctx, rulesMax)
		in.chain.AwaitRules(waiting)
		if in.shadow != nil {
			in.shadow.Chain.AwaitRules(waiting)
		}
		cancel()
		if err := o.managed.start(ctx, o.cluster.kubeconfig, in, o.callers, log, set); err != nil {
			return nil, failed(fmt.Errorf("cannot manage certificates: %w", err))
		}
		return &certificates{
			get:    o.managed.manager.Certificate,
			about:  fmt.Sprintf("certificate in Secret %s/%s", o.settings.CertSecretNamespace, o.settings.CertSecretName),
			checks: o.managed.checks,
		}, nil
	}
	certificate := &server.Certificate{CertFile: o.settings.TLSCertFile, KeyFile: o.settings.TLSPrivateKeyFile, WriteCA: o.settings.WriteCA, Log: log}
	if err := certificate.Load(); err != nil {
		return nil, failed(err)
	}
	set.NewGauge("fastadmit_serving_certificate_expiry_timestamp_seconds", certificate.Expiry)
	return &certificates{
		get:   certificate.Get,
		about: certificate.About(),
		parts: []*part{{
			name: "certificate", files: certificate.Files,
			reload: func(context.Context) error { return certificate.Load() },
			works:  func() error { return certificate.Valid(time.Now()) },
		}},
		checks: func(net.Addr) []server.Check { return nil },
	}, nil
}
