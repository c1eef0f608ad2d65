// The command volumelabels tells fastadmit's plugin PersistentVolumeLabel the zones and
// regions of disks of AWS and Google Cloud. It is the server of the plugin's endpoint:
//
//	GET /labels?provider=gce&id=disk-1&zone=europe-west4-a
//
// answers {"labels": {...}}, or with code 404 if there is no such disk. It has the
// credentials that fastadmit then needs not have.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // authorities for an image without files
)

const (
	// headerMax is how many bytes of a request are read: two names of nameMax bytes, escaped,
	// have 6 KB, and a token a few.
	headerMax = 16 << 10
	// requestTimeout is how long a client may take to send a request, which is one packet.
	requestTimeout = 5 * time.Second
	// idleTimeout is how long a connection is kept for the next request.
	idleTimeout = 2 * time.Minute
	// startTimeout is how long credentials and the metadata server may take.
	startTimeout = 30 * time.Second
)

// A program is the program with its settings from the flags.
type program struct {
	listen                      string
	providers                   string
	gce                         gceConfig
	gceZones                    string
	limits                      limits
	certFile, keyFile, clientCA string
	tokenFile                   string
}

func main() {
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr, nil); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "volumelabels:", err)
		os.Exit(1) //nolint:gocritic // stop has nothing to undo
	}
}

// run serves until ctx is done, and then finishes open requests. If ready is not nil, run calls it
// with the address once it listens.
func run(ctx context.Context, args []string, out io.Writer, ready func(net.Addr)) error {
	c, err := parse(args, out)
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	clouds, err := c.clouds(starting)
	if err != nil {
		return err
	}
	s, err := newServer(clouds, c.limits, access{c.tokenFile, c.clientCA != ""})
	if err != nil {
		return err
	}
	listener, err := c.listener(ctx)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: s.handler(), MaxHeaderBytes: headerMax, IdleTimeout: idleTimeout,
		ReadTimeout: requestTimeout, WriteTimeout: requestTimeout + c.limits.timeout + requestTimeout,
		ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn),
	}
	slog.Info("serving", "address", listener.Addr().String(), "providers", c.providers, "tls", c.certFile != "")
	if c.tokenFile == "" && c.clientCA == "" {
		slog.Warn("callers are not authenticated: set --bearer-token-file or --client-ca-file")
	}
	if ready != nil {
		ready(listener.Addr())
	}
	ended := make(chan error, 1)
	go func() { ended <- serve(server, listener, c.tls()) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), server.WriteTimeout)
	defer cancel()
	return server.Shutdown(stopping)
}

func serve(server *http.Server, listener net.Listener, c *tls.Config) error {
	if c == nil {
		return server.Serve(listener)
	}
	server.TLSConfig = c
	return server.ServeTLS(listener, "", "")
}

func parse(args []string, out io.Writer) (*program, error) {
	c := new(program)
	flags := flag.NewFlagSet("volumelabels", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8080", "`address` to listen at")
	flags.StringVar(&c.providers, "providers", "", "clouds to query: aws, gce, or aws,gce")
	flags.StringVar(&c.gce.project, "gce-project", "", "project of the disks (default: that of the machine)")
	flags.StringVar(&c.gce.region, "gce-region", "", "region of the disks (default: that of the machine)")
	flags.StringVar(&c.gceZones, "gce-zones", "", "zones of the disks, comma-separated (default: all of the region)")
	flags.StringVar(&c.gce.endpoint, "gce-endpoint", "", "`URL` of the Compute Engine API, for Private Service Connect (default: "+
		"the usual one)")
	flags.Int64Var(&c.limits.inFlight, "max-requests-inflight", 64, "maximum of requests in flight; further ones get code 503")
	flags.DurationVar(&c.limits.timeout, "timeout", 8*time.Second, "maximum time of the requests to a cloud for one disk, "+
		"including retries")
	flags.DurationVar(&c.limits.age, "cache-ttl", time.Minute, "how long the labels of a disk are cached; 0 for no cache")
	flags.StringVar(&c.certFile, "tls-cert-file", "", "certificate of the server; without it, the server uses plain HTTP")
	flags.StringVar(&c.keyFile, "tls-private-key-file", "", "private key of --tls-cert-file")
	flags.StringVar(&c.clientCA, "client-ca-file", "", "CA certificates of client certificates that are accepted")
	flags.StringVar(&c.tokenFile, "bearer-token-file", "", "file with the bearer token that is accepted")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return c, c.validate(flags.Args())
}

func (c *program) validate(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("got argument %q, want flags only", rest[0])
	case c.providers == "":
		return errors.New("--providers is missing, want aws, gce, or aws,gce")
	case (c.certFile == "") != (c.keyFile == ""):
		return errors.New("--tls-cert-file and --tls-private-key-file must be given together")
	case c.certFile == "" && (c.clientCA != "" || c.tokenFile != ""):
		return errors.New("--client-ca-file and --bearer-token-file need --tls-cert-file: without TLS a token can be read by others")
	case c.limits.inFlight < 1 || c.limits.timeout <= 0 || c.limits.age < 0:
		return errors.New("--max-requests-inflight and --timeout must be more than 0, and --cache-ttl not less")
	}
	for zone := range strings.SplitSeq(c.gceZones, ",") {
		if zone == "" && c.gceZones == "" {
			break
		}
		if !gceName.MatchString(zone) {
			return fmt.Errorf("--gce-zones: got zone %q, want one such as europe-west4-a", zone)
		}
		c.gce.zones = append(c.gce.zones, zone)
	}
	if c.clientCA != "" {
		if _, err := c.certificates(); err != nil {
			return err
		}
	}
	if c.tokenFile != "" {
		if _, err := readToken(c.tokenFile); err != nil {
			return err
		}
	}
	if c.certFile != "" {
		_, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
		return err
	}
	return nil
}

func (c *program) clouds(ctx context.Context) (map[string]cloud, error) {
	clouds := make(map[string]cloud)
	for name := range strings.SplitSeq(c.providers, ",") {
		var known cloud
		var err error
		switch name {
		case "aws":
			known, err = newAmazon(ctx)
		case "gce":
			known, err = newGoogle(ctx, c.gce)
		default:
			err = fmt.Errorf("--providers: got %q, want aws or gce", name)
		}
		if err != nil {
			return nil, err
		}
		clouds[name] = known
	}
	return clouds, nil
}

func (c *program) listener(ctx context.Context) (net.Listener, error) {
	var l net.ListenConfig
	return l.Listen(ctx, "tcp", c.listen)
}

// tls returns the TLS settings of the server, nil for HTTP. Files are read at each handshake, so
// that replaced ones take effect.
func (c *program) tls() *tls.Config {
	if c.certFile == "" {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		certificate, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
		if err != nil {
			return nil, err
		}
		settings := &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{certificate},
		}
		if c.clientCA != "" {
			settings.ClientAuth = tls.VerifyClientCertIfGiven // the kubelet's probes have no credentials
			if settings.ClientCAs, err = c.certificates(); err != nil {
				return nil, err
			}
		}
		return settings, nil
	}}
}

func (c *program) certificates() (*x509.CertPool, error) {
	content, err := os.ReadFile(c.clientCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s: got no certificate, want at least one in PEM", c.clientCA)
	}
	return pool, nil
}
