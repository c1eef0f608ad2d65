package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fastadmit/fastadmit/bench"
)

type benchOptions struct {
	target, against benchTarget
	rounds          int

	rate        float64
	arrivals    string
	burst       int
	inFlight    int
	warmUp      time.Duration
	duration    time.Duration
	count       int64
	connections string
	timeout     time.Duration

	sweep    bool
	sweepP99 time.Duration

	recordings    string
	reviewVersion string
	weights       map[string]string
	sizes         []string
	seed          uint64

	expect      string
	patchSample int
	pprofDir    string

	output   string
	htmlFile string
}

// benchTarget are the flags of a webhook to test.
type benchTarget struct {
	name       string
	url        string
	metricsURL string
	pprofURL   string
	pid        int

	caFile, certFile, keyFile string
	token, serverName         string
	insecure                  bool
}

func newBenchCommand() *cobra.Command {
	b := new(benchOptions)
	cmd := &cobra.Command{
		Use:   "bench URL",
		Short: "Load-test any admission webhook as kube-apiserver calls it, and check its answers",
		Long: `Sends recorded or synthetic admission reviews to the webhook at URL, with the connections and headers
of kube-apiserver, and checks every answer. With --rate, requests follow a schedule, and the latency
counts from the time at which a request was due. Without, each of --in-flight connections sends a
request when it has the answer to the last one. Exits with 1 if an answer was wrong.`,
		Example: "  fastadmit bench https://localhost:8443/mutate --insecure-skip-tls-verify --rate 1000\n" +
			"  fastadmit bench https://localhost:8443/mutate --certificate-authority ca.pem --sweep --html report.html\n" +
			"  fastadmit bench https://localhost:8443/mutate --against https://localhost:9443/mutate --rounds 5",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("got %d arguments, want one: the URL of a webhook, such as https://localhost:8443/mutate", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
			b.target.url = args[0]
			return b.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	b.addFlags(cmd)
	return cmd
}

func (b *benchOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Float64Var(&b.rate, "rate", 0, "requests per second (open loop); 0 for a closed loop; with --sweep, the first rate to try")
	flags.StringVar(&b.arrivals, "arrivals", string(bench.Constant), "distribution of the requests of an open loop: constant, poisson")
	flags.IntVar(&b.burst, "burst", 1, "number of requests that an open loop sends at once; the rate stays the same")
	flags.IntVar(&b.inFlight, "in-flight", 0, "requests in flight: the number in a closed loop (1 if 0), the maximum in an open loop (if 0, 1000 with apiserver connections, else 64)")
	flags.DurationVar(&b.warmUp, "warm-up", time.Second, "duration of the load before the measurement starts")
	flags.DurationVar(&b.duration, "duration", 10*time.Second, "duration of the measurement, in each round and at each rate of a sweep; 0 to measure --count requests")
	flags.Int64Var(&b.count, "count", 0, "number of requests to measure; 0 to measure for --duration; if both are set, the first to be reached ends the measurement")
	flags.StringVar(&b.connections, "connections", string(bench.APIServer),
		"connections: apiserver (any number, 25 kept when idle, headers in their own TLS record), keepalive (all kept, one write for each request), oneshot (a new one for each request)")
	flags.DurationVar(&b.timeout, "timeout", 10*time.Second, "maximum time for an answer, at most 30s")

	flags.BoolVar(&b.sweep, "sweep", false, "find the highest rate whose p99 latency is under --sweep-p99")
	flags.DurationVar(&b.sweepP99, "sweep-p99", 10*time.Millisecond, "maximum p99 latency of a sweep")

	flags.StringVar(&b.recordings, "recordings", "", "folder with AdmissionReviews to send, *.json; files named *.allowed.json and "+
		"*.denied.json expect this decision; if empty, bundled recordings of a real kube-apiserver")
	flags.StringVar(&b.reviewVersion, "review-version", "v1", "version of the bundled recordings: v1, v1beta1")
	flags.StringToStringVar(&b.weights, "weights", nil, "how often each kind of recording is sent, as in pods:create=8,pods/status:update=1,configmaps=1")
	flags.StringSliceVar(&b.sizes, "sizes", nil, "send synthetic Pods with reviews of these sizes instead of recordings, as in 1KB,100KB,1MB:update")
	flags.Uint64Var(&b.seed, "seed", 1, "seed for the order, arrival times, uids and names")

	flags.StringVar(&b.expect, "expect", string(bench.Same), "expected decision: same (as in the first answer to the recording), allowed, denied, any")
	flags.IntVar(&b.patchSample, "patch-sample", 100, "check one in this many patches by applying it to its object")

	b.target.addFlags(cmd, "")
	flags.StringVar(&b.pprofDir, "pprof-dir", "", "folder for profiles of the server during the measurement")
	flags.StringVar(&b.against.url, "against", "", "URL of a second webhook; the two are measured in turns and compared")
	flags.IntVar(&b.rounds, "rounds", 0, "number of measurements of each webhook; 0 for 1, or 3 with --against")
	b.against.addFlags(cmd, "against-")

	flags.StringVarP(&b.output, "output", "o", "text", "format: text, json")
	flags.StringVar(&b.htmlFile, "html", "", "file for an HTML page with charts")
}

func (t *benchTarget) addFlags(cmd *cobra.Command, prefix string) {
	flags := cmd.Flags()
	which := "the webhook"
	if prefix != "" {
		which = "the second webhook"
	}
	flags.StringVar(&t.name, prefix+"name", "", "name of "+which+" in reports; if empty, its URL")
	flags.StringVar(&t.metricsURL, prefix+"metrics-url", "", "URL of /metrics of "+which+", for processor time, memory, GC and allocations")
	flags.StringVar(&t.pprofURL, prefix+"pprof-url", "", "URL of net/http/pprof of "+which+"; if empty, /debug/pprof next to the metrics")
	flags.IntVar(&t.pid, prefix+"pid", 0, "process ID of "+which+" on this machine, for processor time and memory")
	flags.StringVar(&t.caFile, prefix+"certificate-authority", "", "file with the CA certificates that verify "+which+", PEM; if empty, those of the system")
	flags.BoolVar(&t.insecure, prefix+"insecure-skip-tls-verify", false, "do not verify the certificate of "+which)
	flags.StringVar(&t.serverName, prefix+"tls-server-name", "", "server name for TLS, which the certificate of "+which+" must have, as in <service>.<namespace>.svc")
	flags.StringVar(&t.certFile, prefix+"client-certificate", "", "file with a client certificate for "+which+", PEM")
	flags.StringVar(&t.keyFile, prefix+"client-key", "", "file with the private key of --"+prefix+"client-certificate, PEM")
	flags.StringVar(&t.token, prefix+"token-file", "", "file with a bearer token for "+which)
}

// run measures and reports.
func (b *benchOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if b.output != "text" && b.output != "json" {
		return fmt.Errorf("--output: got %q, want text or json", b.output)
	}
	configs, err := b.configs()
	if err != nil {
		return err
	}
	if err := b.checkHTML(); err != nil {
		return failed(err)
	}
	show := newBenchProgress(stderr)
	for i := range configs {
		configs[i].Progress = show.progress
	}
	report, err := b.measure(ctx, configs)
	show.clear()
	if err != nil {
		return failed(b.explain(err))
	}
	if hint := b.hint(report); hint != "" {
		fmt.Fprintf(stderr, "fastadmit: %s\n", hint)
	}
	report.Command = strings.Join(os.Args, " ")
	if err := b.write(report, stdout); err != nil {
		return failed(err)
	}
	if wrong := report.Failed(); wrong > 0 {
		return failed(fmt.Errorf("%d requests got a wrong answer or none", wrong))
	}
	return nil
}

// checkHTML checks before the load whether the page can be written.
func (b *benchOptions) checkHTML() error {
	if b.htmlFile == "" {
		return nil
	}
	_, missing := os.Stat(b.htmlFile)
	file, err := os.OpenFile(b.htmlFile, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	if errors.Is(missing, fs.ErrNotExist) {
		err = os.Remove(b.htmlFile)
	}
	return errors.Join(err, file.Close())
}

// explain adds to an error the flag that helps.
func (b *benchOptions) explain(err error) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		return err
	}
	prefix := ""
	if b.against.url != "" && strings.Contains(err.Error(), b.against.url) {
		prefix = "against-"
	}
	return fmt.Errorf("%w; set its CA certificates with --%scertificate-authority, or skip the verification with --%[2]sinsecure-skip-tls-verify", err, prefix)
}

// hint shows how to send only suitable requests if most of them were denied.
func (b *benchOptions) hint(r *bench.Report) string {
	if len(b.weights) > 0 || len(b.sizes) > 0 || len(r.Series) == 0 || len(r.Series[0].Rounds) == 0 {
		return ""
	}
	var requests, denied int64
	allowed := ""
	for _, kind := range r.Series[0].Total().Kinds {
		requests, denied = requests+kind.Requests, denied+kind.Denied
		if kind.Denied < kind.Requests && allowed == "" {
			allowed = kind.Kind
		}
	}
	if denied*2 <= requests {
		return ""
	}
	if allowed == "" {
		allowed = "pods:create"
	}
	return fmt.Sprintf("%d of %d requests were denied, which says little about allowed ones; --weights=%s=1 sends only this recording", denied, requests, allowed)
}

func (b *benchOptions) measure(ctx context.Context, configs []bench.Config) (*bench.Report, error) {
	if !b.sweep {
		rounds := b.rounds
		if rounds == 0 {
			rounds = 1
			if len(configs) > 1 {
				rounds = 3
			}
		}
		series, err := bench.Interleave(ctx, rounds, configs...)
		if err != nil {
			return nil, err
		}
		return bench.NewReport(series), nil
	}
	sweeps, err := bench.FindKnees(ctx, b.sweepP99, configs...)
	if err != nil {
		return nil, err
	}
	report := bench.NewReport(nil)
	report.Sweeps = sweeps
	return report, nil
}

func (b *benchOptions) write(report *bench.Report, stdout io.Writer) error {
	if b.htmlFile != "" {
		file, err := os.Create(b.htmlFile)
		if err != nil {
			return fmt.Errorf("cannot write the page: %w", err)
		}
		defer file.Close()
		if err := report.WriteHTML(file); err != nil {
			return fmt.Errorf("cannot write %s: %w", b.htmlFile, err)
		}
		if err := file.Close(); err != nil {
			return fmt.Errorf("cannot write %s: %w", b.htmlFile, err)
		}
	}
	if b.output == "json" {
		return report.WriteJSON(stdout)
	}
	return report.WriteText(stdout)
}

// configs returns a run for each target.
func (b *benchOptions) configs() ([]bench.Config, error) {
	mix, err := b.mix()
	if err != nil {
		return nil, err
	}
	if b.rounds < 0 {
		return nil, fmt.Errorf("--rounds: got %d, want 1 or more", b.rounds)
	}
	config := bench.Config{
		Model: bench.Model(b.connections), Mix: mix, Timeout: b.timeout,
		Load: bench.Load{
			Rate: b.rate, Arrivals: bench.Arrivals(b.arrivals), Burst: b.burst, InFlight: b.inFlight,
			WarmUp: b.warmUp, Duration: b.duration, Count: b.count,
		},
		Expect: bench.Expect(b.expect), PatchSample: b.patchSample, Seed: b.seed, PprofDir: b.pprofDir,
	}
	targets := []*benchTarget{&b.target}
	if b.against.url != "" {
		targets = append(targets, &b.against)
	}
	configs := make([]bench.Config, len(targets))
	for i, target := range targets {
		configs[i] = config
		if configs[i].Target, err = target.target(); err != nil {
			return nil, failed(err)
		}
		if i > 0 {
			configs[i].PprofDir = ""
			if b.pprofDir != "" && configs[i].Target.PprofURL != "" {
				configs[i].PprofDir = b.pprofDir + "/against"
			}
		}
		if err := configs[i].Check(); err != nil {
			return nil, err
		}
	}
	return configs, nil
}

// mix returns the requests to send.
func (b *benchOptions) mix() (*bench.Mix, error) {
	var recordings []*bench.Recording
	var err error
	switch {
	case b.recordings != "" && len(b.sizes) > 0:
		return nil, errors.New("--recordings and --sizes: got both, want one of them")
	case b.recordings != "":
		recordings, err = bench.ReadDir(os.DirFS(b.recordings))
		err = failed(err)
	case len(b.sizes) > 0:
		recordings, err = synthetic(b.sizes)
	default:
		recordings, err = bench.Bundled(b.reviewVersion)
	}
	if err != nil {
		return nil, err
	}
	weights := make(map[string]float64, len(b.weights))
	for kind, text := range b.weights {
		if weights[kind], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, fmt.Errorf("--weights: got %q for %s, want a number", text, kind)
		}
	}
	return bench.NewMix(recordings, weights, b.seed)
}

func synthetic(sizes []string) ([]*bench.Recording, error) {
	recordings := make([]*bench.Recording, 0, len(sizes))
	for _, text := range sizes {
		number, operation, _ := strings.Cut(strings.ToUpper(text), ":")
		if operation == "" {
			operation = "CREATE"
		}
		size, err := parseBytes(number)
		if err != nil {
			return nil, fmt.Errorf("--sizes: %w", err)
		}
		recording, err := bench.Synthetic(operation, size)
		if err != nil {
			return nil, err
		}
		recordings = append(recordings, recording)
	}
	return recordings, nil
}

// parseBytes reads a size: 1000, 1KB (1024 bytes), 3MB.
func parseBytes(text string) (int, error) {
	scale := 1
	digits := strings.TrimSuffix(strings.TrimSuffix(text, "B"), "I")
	switch {
	case strings.HasSuffix(digits, "K"):
		scale, digits = 1<<10, strings.TrimSuffix(digits, "K")
	case strings.HasSuffix(digits, "M"):
		scale, digits = 1<<20, strings.TrimSuffix(digits, "M")
	}
	number, err := strconv.Atoi(digits)
	if err != nil || number <= 0 || number > bench.SyntheticBytesMax {
		return 0, fmt.Errorf("got %q, want a size as 1500, 20KB or 3MB", text)
	}
	return number * scale, nil
}

// target reads the files that the flags name.
func (t *benchTarget) target() (bench.Target, error) {
	target := bench.Target{Name: t.name, URL: t.url, MetricsURL: t.metricsURL, PprofURL: t.pprofURL, PID: t.pid}
	if target.PprofURL == "" && t.metricsURL != "" {
		target.PprofURL = strings.TrimSuffix(t.metricsURL, "/metrics") + "/debug/pprof"
	}
	config := &tls.Config{InsecureSkipVerify: t.insecure, ServerName: t.serverName}
	if t.serverName != "" {
		target.Host = t.serverName + ":443" // as kube-apiserver calls a service
	}
	if t.caFile != "" {
		pem, err := os.ReadFile(t.caFile)
		if err != nil {
			return target, fmt.Errorf("cannot read the CA certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return target, fmt.Errorf("found no certificate in %s, want PEM", t.caFile)
		}
	}
	if t.certFile != "" || t.keyFile != "" {
		pair, err := tls.LoadX509KeyPair(t.certFile, t.keyFile)
		if err != nil {
			return target, fmt.Errorf("cannot load the client certificate from %q and %q: %w", t.certFile, t.keyFile, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if t.token != "" {
		token, err := os.ReadFile(t.token)
		if err != nil {
			return target, fmt.Errorf("cannot read the token: %w", err)
		}
		target.Token = strings.TrimSpace(string(token))
	}
	target.TLS = config
	return target, nil
}
