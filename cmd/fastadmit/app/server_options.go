package app

import (
	"errors"
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
	certificate        certificate
	metricsBindAddress string
	shutdownDelay      time.Duration
	profiling          bool
	requestsMax        int64
	requestBytesMax    int64
	reviewMemoryMax    int64
	connectionAgeMax   time.Duration
	connectionsMax     int64
	callers            callers

	connectionsAtOneMax   int64 // of strangers at one address
	unauthenticatedWrites bool

	managed managed
}

func (o *serverOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.bindAddress, "bind-address", "0.0.0.0", "address to serve webhooks on")
	flags.Int32Var(&o.securePort, "secure-port", 8443, "port to serve webhooks on; 0 lets the system choose")
	flags.StringVar(&o.certificate.certFile, "tls-cert-file", "", "file with the serving certificate and its chain, PEM; if empty, a self-signed one is generated in memory")
	flags.StringVar(&o.certificate.keyFile, "tls-private-key-file", "", "file with the private key of --tls-cert-file, PEM")
	flags.StringVar(&o.metricsBindAddress, "metrics-bind-address", ":8080",
		"address for /metrics, /healthz, /livez and /readyz over plain HTTP; if empty, they are not served")
	flags.BoolVar(&o.profiling, "profiling", false, "serve profiles of the process under /debug/pprof/ on the metrics port, to callers on the same machine")
	flags.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 0,
		"time to keep serving after SIGTERM while /readyz fails, so that endpoints are updated before the port closes")
	flags.Int64Var(&o.requestsMax, "max-requests-inflight", requestsInFlightMax,
		"maximum of requests in flight; further requests get 429 with Retry-After, and kube-apiserver retries")
	flags.Int64Var(&o.requestBytesMax, "max-request-bytes-inflight", bytesInFlightMax,
		"maximum memory, in bytes, for the bodies of requests in flight, each rounded up to a power of two; further requests get 429")
	flags.Int64Var(&o.reviewMemoryMax, "max-review-memory-bytes", 0,
		"maximum memory, in bytes, for large reviews (more than 64 KiB, or with many elements), in addition to their bodies; further ones get 429;\n"+
			"0 for three eighths of the container's memory limit")
	flags.DurationVar(&o.connectionAgeMax, "max-connection-age", connectionAgeMax,
		"age at which a connection is closed after an answer, so that calls spread over replicas; 0 for never")
	flags.Int64Var(&o.connectionsMax, "max-connections", 0,
		"maximum of open connections; then a new one replaces one without an answered review, or else an idle one; 0 for as many as\n"+
			"file descriptors and memory allow")
	flags.Int64Var(&o.connectionsAtOneMax, "max-connections-per-address", 0,
		"maximum of open connections from one address that have had no review answered; 0 for a quarter of --max-connections")
	flags.StringVar(&o.callers.caFile, "client-ca-file", "",
		"file with PEM certificates of CAs; callers must present a client certificate of one of them")
	flags.StringSliceVar(&o.callers.allowedNames, "client-allowed-names", nil,
		"common names of client certificates that are accepted; if empty, all that --client-ca-file signed")
	flags.StringVar(&o.callers.tokenFile, "token-auth-file", "",
		"file with the bearer tokens of callers, one line of token,user,uid for each")
	flags.StringVar(&o.callers.basicFile, "basic-auth-file", "",
		"file with the passwords of callers, one line of password,user,uid for each")
	flags.StringVar(&o.callers.pathTokenFile, "path-token-file", "",
		"file with path tokens, one on each line: secret first segments of the path, of which callers must send one; fastadmit registers the first")
	flags.BoolVar(&o.unauthenticatedWrites, "allow-unauthenticated-writes", false,
		"run plugins that write to the cluster without authenticating callers: anybody who reaches the port can make them write")
	o.managed.addFlags(flags)
}

// fill takes from the configuration file what no flag says, and checks all of
// it. What is wrong in the file was refused before.
func (o *serverOptions) fill(flags *pflag.FlagSet, from *config.Server) error {
	take(flags, "bind-address", &o.bindAddress, from.BindAddress)
	take(flags, "secure-port", &o.securePort, from.SecurePort)
	take(flags, "tls-cert-file", &o.certificate.certFile, from.TLSCertFile)
	take(flags, "tls-private-key-file", &o.certificate.keyFile, from.TLSPrivateKeyFile)
	take(flags, "metrics-bind-address", &o.metricsBindAddress, from.MetricsBindAddress)
	take(flags, "profiling", &o.profiling, from.Profiling)
	if d := from.ShutdownDelayDuration; d != nil {
		take(flags, "shutdown-delay-duration", &o.shutdownDelay, &d.Duration)
	}
	if d := from.MaxConnectionAge; d != nil {
		take(flags, "max-connection-age", &o.connectionAgeMax, &d.Duration)
	}
	take(flags, "max-requests-inflight", &o.requestsMax, from.MaxRequestsInflight)
	take(flags, "max-request-bytes-inflight", &o.requestBytesMax, from.MaxRequestBytesInflight)
	take(flags, "max-connections", &o.connectionsMax, from.MaxConnections)
	take(flags, "max-connections-per-address", &o.connectionsAtOneMax, from.MaxConnectionsPerAddress)
	take(flags, "max-review-memory-bytes", &o.reviewMemoryMax, from.MaxReviewMemoryBytes)
	take(flags, "client-ca-file", &o.callers.caFile, from.ClientCAFile)
	take(flags, "cert-secret-name", &o.managed.secretName, from.CertSecretName)
	take(flags, "cert-secret-namespace", &o.managed.secretNamespace, from.CertSecretNamespace)
	take(flags, "managed-path-token", &o.managed.pathToken, from.ManagedPathToken)
	take(flags, "webhook-owner", &o.managed.owner, from.WebhookOwner)
	take(flags, "event-deployment", &o.managed.deployment, from.EventDeployment)
	take(flags, "token-auth-file", &o.callers.tokenFile, from.TokenAuthFile)
	take(flags, "basic-auth-file", &o.callers.basicFile, from.BasicAuthFile)
	take(flags, "path-token-file", &o.callers.pathTokenFile, from.PathTokenFile)
	take(flags, "allow-unauthenticated-writes", &o.unauthenticatedWrites, from.AllowUnauthenticatedWrites)
	if from.ClientAllowedNames != nil {
		take(flags, "client-allowed-names", &o.callers.allowedNames, &from.ClientAllowedNames)
	}
	if from.WebhookConfigurations != nil {
		take(flags, "webhook-configurations", &o.managed.registered, &from.WebhookConfigurations)
	}
	switch {
	case o.securePort < 0 || o.securePort > 65535:
		return fmt.Errorf("--secure-port: got %d, want 0 to 65535", o.securePort)
	case o.shutdownDelay < 0:
		return fmt.Errorf("--shutdown-delay-duration: got %s, want 0s or more", o.shutdownDelay)
	case o.managed.secretName != "" && o.certificate.certFile != "":
		return errors.New("--cert-secret-name cannot be used with --tls-cert-file")
	case o.connectionAgeMax < 0:
		return fmt.Errorf("--max-connection-age: got %s, want 0s or more", o.connectionAgeMax)
	case o.requestsMax < 1:
		return fmt.Errorf("--max-requests-inflight: got %d, want 1 or more", o.requestsMax)
	case o.reviewMemoryMax < 0:
		return fmt.Errorf("--max-review-memory-bytes: got %d, want 0 or more", o.reviewMemoryMax)
	case o.requestBytesMax < 1:
		return fmt.Errorf("--max-request-bytes-inflight: got %d, want 1 or more", o.requestBytesMax)
	case o.connectionsMax < 0:
		return fmt.Errorf("--max-connections: got %d, want 0 or more", o.connectionsMax)
	case o.connectionsAtOneMax < 0:
		return fmt.Errorf("--max-connections-per-address: got %d, want 0 or more", o.connectionsAtOneMax)
	}
	_, _, err := o.managed.others()
	return err
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
		TLSCertFile:           &o.certificate.certFile,
		TLSPrivateKeyFile:     &o.certificate.keyFile,
		MetricsBindAddress:    &o.metricsBindAddress,
		ShutdownDelayDuration: &metav1.Duration{Duration: o.shutdownDelay},
		Profiling:             &o.profiling,

		MaxRequestsInflight:     &o.requestsMax,
		MaxRequestBytesInflight: &o.requestBytesMax,
		MaxReviewMemoryBytes:    &o.reviewMemoryMax,
		MaxConnectionAge:        &metav1.Duration{Duration: o.connectionAgeMax},

		MaxConnections:           &o.connectionsMax,
		MaxConnectionsPerAddress: &o.connectionsAtOneMax,

		CertSecretName:      &o.managed.secretName,
		CertSecretNamespace: &o.managed.secretNamespace,
		WebhookOwner:        &o.managed.owner,
		EventDeployment:     &o.managed.deployment,
		ManagedPathToken:    &o.managed.pathToken,

		WebhookConfigurations: append([]string{}, o.managed.registered...),

		ClientCAFile:       &o.callers.caFile,
		ClientAllowedNames: append([]string{}, o.callers.allowedNames...),
		TokenAuthFile:      &o.callers.tokenFile,
		BasicAuthFile:      &o.callers.basicFile,
		PathTokenFile:      &o.callers.pathTokenFile,

		AllowUnauthenticatedWrites: &o.unauthenticatedWrites,
	}
}
