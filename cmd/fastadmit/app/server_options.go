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
	flags.StringVar(&o.certificate.certFile, "tls-cert-file", "", "file with the serving certificate and its chain, PEM; made in memory if empty")
	flags.StringVar(&o.certificate.keyFile, "tls-private-key-file", "", "file with the private key of --tls-cert-file, PEM")
	flags.StringVar(&o.metricsBindAddress, "metrics-bind-address", ":8080",
		"address for /metrics, /healthz, /livez and /readyz in plain HTTP; empty for none")
	flags.BoolVar(&o.profiling, "profiling", false, "serve profiles of the process under /debug/pprof/ beside the metrics, to callers on the same machine")
	flags.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", 0,
		"how long to go on serving after SIGTERM while /readyz fails, so that endpoints are updated before the port closes")
	flags.Int64Var(&o.requestsMax, "max-requests-inflight", requestsInFlightMax,
		"how many requests may be in flight; the others get 429 with Retry-After, after which kube-apiserver tries again")
	flags.Int64Var(&o.requestBytesMax, "max-request-bytes-inflight", bytesInFlightMax,
		"how many bytes of memory the bodies of requests in flight may take, in the same way; a body takes a power of two")
	flags.Int64Var(&o.reviewMemoryMax, "max-review-memory-bytes", 0,
		"how much memory reviews of more than 64 KiB, and smaller ones that take a lot, may take beside their bodies; the others get 429;\n"+
			"0 for three eighths of what the container has")
	flags.DurationVar(&o.connectionAgeMax, "max-connection-age", connectionAgeMax,
		"after about how long an answer closes its connection, so that calls spread over replicas; 0 for never")
	flags.Int64Var(&o.connectionsMax, "max-connections", 0,
		"how many connections may be open; a new one takes the place of a stranger's, then of one that is unused; 0 for as many as\n"+
			"there are file descriptors and memory for")
	flags.Int64Var(&o.connectionsAtOneMax, "max-connections-per-address", 0,
		"how many of them strangers at one address may have; a stranger has had no review answered; 0 for a quarter of all")
	flags.StringVar(&o.callers.caFile, "client-ca-file", "",
		"file with certificates, PEM, one of which must have signed the client certificate of whoever calls")
	flags.StringSliceVar(&o.callers.allowedNames, "client-allowed-names", nil,
		"common names of client certificates that may call; empty for all that --client-ca-file signed")
	flags.StringVar(&o.callers.tokenFile, "token-auth-file", "",
		"file with bearer tokens that may call, a line of token,user,uid for each")
	flags.StringVar(&o.callers.basicFile, "basic-auth-file", "",
		"file with passwords that may call, a line of password,user,uid for each")
	flags.StringVar(&o.callers.pathTokenFile, "path-token-file", "",
		"file with path tokens, one on each line: secret first segments of the path, one of which whoever calls must know; fastadmit registers itself with the first")
	flags.BoolVar(&o.unauthenticatedWrites, "allow-unauthenticated-writes", false,
		"run plugins that write to the cluster although nothing says who may call: whoever reaches the port can make them write")
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
		return errors.New("--cert-secret-name goes without --tls-cert-file")
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
