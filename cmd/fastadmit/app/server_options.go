package app

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/config"
)

// serverOptions are the settings of the server, each a flag and a field of the
// configuration file.
type serverOptions struct {
	bindAddress        string
	securePort         int32
	certFile, keyFile  string
	metricsBindAddress string
	shutdownDelay      time.Duration
	profiling          bool
}

func (o *serverOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "address to serve webhooks on")
	flags.Int32Var(&o.securePort, "secure-port", 8443, "port to serve webhooks on; 0 lets the system choose")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "file with the serving certificate and its chain, PEM; made in memory if empty")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "file with the private key of --tls-cert-file, PEM")
	flags.StringVar(&o.metricsBindAddress, "metrics-bind-address", ":8080",
		"address for /metrics, /healthz, /livez and /readyz in plain HTTP; empty for none")
	flags.BoolVar(&o.profiling, "profiling", false, "serve profiles of the process under /debug/pprof/ beside the metrics")
	flags.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 0,
		"how long to go on serving after SIGTERM while /readyz fails, so that endpoints are updated before the port closes")
}

// fill takes from the configuration file what no flag says, and checks all of
// it. What is wrong in the file was refused before.
func (o *serverOptions) fill(flags *pflag.FlagSet, from *config.Server) error {
	take(flags, "bind-address", &o.bindAddress, from.BindAddress)
	take(flags, "secure-port", &o.securePort, from.SecurePort)
	take(flags, "tls-cert-file", &o.certFile, from.TLSCertFile)
	take(flags, "tls-private-key-file", &o.keyFile, from.TLSPrivateKeyFile)
	take(flags, "metrics-bind-address", &o.metricsBindAddress, from.MetricsBindAddress)
	take(flags, "profiling", &o.profiling, from.Profiling)
	if d := from.ShutdownDelayDuration; d != nil {
		take(flags, "shutdown-delay-duration", &o.shutdownDelay, &d.Duration)
	}
	switch {
	case o.securePort < 0 || o.securePort > 65535:
		return fmt.Errorf("--secure-port: got %d, want 0 to 65535", o.securePort)
	case o.shutdownDelay < 0:
		return fmt.Errorf("--shutdown-delay-duration: got %s, want 0s or more", o.shutdownDelay)
	}
	return nil
}

func take[T any](flags *pflag.FlagSet, name string, option, from *T) {
	if from != nil && !flags.Changed(name) {
		*option = *from
	}
}

// asFile returns the options as the configuration file has them.
func (o *serverOptions) asFile() config.Server {
	return config.Server{
		BindAddress:           &o.bindAddress,
		SecurePort:            &o.securePort,
		TLSCertFile:           &o.certFile,
		TLSPrivateKeyFile:     &o.keyFile,
		MetricsBindAddress:    &o.metricsBindAddress,
		ShutdownDelayDuration: &metav1.Duration{Duration: o.shutdownDelay},
		Profiling:             &o.profiling,
	}
}
