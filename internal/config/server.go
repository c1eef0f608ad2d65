package config

import (
	"fmt"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/server"
)

// Server are the settings of the server. Each is a field of the configuration file and a
// flag of serve. The tag flag has the name of the flag, usage its help, which also
// describes the field, and min the least value of a number or a duration.
type Server struct {
	BindAddress           string          `json:"bindAddress" flag:"bind-address" usage:"address to serve webhooks on"`
	SecurePort            int32           `json:"securePort" flag:"secure-port" min:"0" usage:"port to serve webhooks on; 0 lets the system choose"`
	TLSCertFile           string          `json:"tlsCertFile" flag:"tls-cert-file" usage:"file with the serving certificate and its chain, PEM; if empty, a self-signed one is generated in memory"`
	TLSPrivateKeyFile     string          `json:"tlsPrivateKeyFile" flag:"tls-private-key-file" usage:"file with the private key of --tls-cert-file, PEM"`
	WriteCA               string          `json:"writeCA" flag:"write-ca" usage:"file that the self-signed certificate is written to, PEM, for clients such as curl; without --tls-cert-file and --cert-secret-name only"`
	MetricsBindAddress    string          `json:"metricsBindAddress" flag:"metrics-bind-address" usage:"address for /metrics, /healthz, /livez and /readyz over plain HTTP; if empty, they are not served"`
	ShutdownDelayDuration metav1.Duration `json:"shutdownDelayDuration" flag:"shutdown-delay-duration" min:"0" usage:"time to keep serving after SIGTERM while /readyz fails, so that endpoints are updated before the port closes"`
	ShutdownIdleDuration  metav1.Duration `json:"shutdownIdleDuration" flag:"shutdown-idle-duration" min:"0" usage:"maximum time to wait then until callers have closed their idle connections, as kube-apiserver does after 90s: a request that is sent while an idle connection is closed is lost"`
	Profiling             bool            `json:"profiling" flag:"profiling" usage:"serve profiles of the process under /debug/pprof/ on the metrics port, to callers on the same machine"`

	RecentDenials int32 `json:"recentDenials" flag:"recent-denials" min:"0" usage:"how many of the last denials and failures the status page on the metrics port shows and explains, to callers on the same machine; it keeps the names of objects and users, and reviews of at most 1 MiB in all; 0 for none"`

	TracingConfigFile string `json:"tracingConfigFile" flag:"tracing-config-file" usage:"file with a TracingConfiguration, as kube-apiserver has it: the OpenTelemetry collector that gets spans of reviews and plugins; if empty, none are made"`

	MaxRequestsInflight     int64           `json:"maxRequestsInflight" flag:"max-requests-inflight" min:"1" usage:"maximum of requests in flight; further requests get 429 with Retry-After, and kube-apiserver retries"`
	MaxRequestBytesInflight int64           `json:"maxRequestBytesInflight" flag:"max-request-bytes-inflight" min:"0" usage:"maximum memory, in bytes, for the bodies of requests in flight, each rounded up to a power of two, and large headers; further requests get 429;\n0 for a fifth of the memory"`
	MaxReviewMemoryBytes    int64           `json:"maxReviewMemoryBytes" flag:"max-review-memory-bytes" min:"0" usage:"maximum memory, in bytes, for large reviews (more than 64 KiB, or with many elements), in addition to their bodies; further ones get 429;\n0 for a quarter of the memory"`
	MaxConnectionAge        metav1.Duration `json:"maxConnectionAge" flag:"max-connection-age" min:"0" usage:"age at which a connection is closed after an answer, so that calls spread over replicas; 0 for never"`

	MaxConnections           int64 `json:"maxConnections" flag:"max-connections" min:"0" usage:"maximum of open connections; then a new one replaces one without an answered review, or else an idle one; 0 for as many as\nfile descriptors and memory allow"`
	MaxConnectionsPerAddress int64 `json:"maxConnectionsPerAddress" flag:"max-connections-per-address" min:"0" usage:"maximum of open connections from one address that have had no review answered; 0 for half of --max-connections"`

	CertSecretName      string `json:"certSecretName" flag:"cert-secret-name" usage:"Secret for certificates, shared by all replicas; fastadmit issues and renews them, and registers the webhook configurations"`
	CertSecretNamespace string `json:"certSecretNamespace" flag:"cert-secret-namespace" usage:"namespace of --cert-secret-name; if empty, the pod's namespace"`
	WebhookOwner        string `json:"webhookOwner" flag:"webhook-owner" usage:"ClusterRole that owns the webhook configurations and the Secret, so that they are deleted with it"`
	EventDeployment     string `json:"eventDeployment" flag:"event-deployment" usage:"Deployment, in the namespace of the Secret, that gets an Event if the registration fails; if empty, no Events"`
	ManagedPathToken    bool   `json:"managedPathToken" flag:"managed-path-token" usage:"if fastadmit registers itself and no other flag authenticates callers: generate a path token, keep it in --cert-secret-name, register it, and refuse calls without it"`

	WebhookConfigurations []string `json:"webhookConfigurations" flag:"webhook-configurations" usage:"webhook configurations that you apply, as mutating/<name> or validating/<name>: fastadmit only sets the caBundle of its webhooks in them, and creates none"`

	ClientCAFile       string   `json:"clientCAFile" flag:"client-ca-file" usage:"file with PEM certificates of CAs; callers must present a client certificate of one of them"`
	ClientAllowedNames []string `json:"clientAllowedNames" flag:"client-allowed-names" usage:"common names of client certificates that are accepted; if empty, all that --client-ca-file signed"`
	TokenAuthFile      string   `json:"tokenAuthFile" flag:"token-auth-file" usage:"file with the bearer tokens of callers, one line of token,user,uid for each"`
	BasicAuthFile      string   `json:"basicAuthFile" flag:"basic-auth-file" usage:"file with the passwords of callers, one line of password,user,uid for each"`
	PathTokenFile      string   `json:"pathTokenFile" flag:"path-token-file" usage:"file with path tokens, one on each line: secret first segments of the path, of which callers must send one; fastadmit registers the first"`

	AllowUnauthenticatedWrites bool `json:"allowUnauthenticatedWrites" flag:"allow-unauthenticated-writes" usage:"run plugins that write to the cluster without authenticating callers: anybody who reaches the port can make them write"`
}

// DefaultServer returns the default settings of the server.
func DefaultServer() Server {
	return Server{
		BindAddress:           "0.0.0.0",
		SecurePort:            8443,
		MetricsBindAddress:    ":8080",
		MaxRequestsInflight:   server.RequestsInFlightMax,
		MaxConnectionAge:      metav1.Duration{Duration: server.ConnectionAgeMax},
		RecentDenials:         server.RecentDenials,
		ManagedPathToken:      true,
		WebhookConfigurations: []string{},
		ClientAllowedNames:    []string{},
	}
}

// Fault is a setting of the server that is out of range.
type Fault struct {
	Field, Flag string // its names in the file and on the command line
	Text        string // the value and the allowed values
}

// Faults returns the settings that are out of range.
func (s *Server) Faults() []Fault { return faults(s) }

// faults returns the fields of a struct that are out of range.
func faults(settings any) (faults []Fault) {
	for f, v := range reflect.ValueOf(settings).Elem().Fields() {
		least, err := strconv.ParseInt(f.Tag.Get("min"), 10, 64)
		if err != nil {
			continue // it has no range
		}
		text := ""
		switch d, ok := v.Interface().(metav1.Duration); {
		case ok && int64(d.Duration) < least:
			text = fmt.Sprintf("got %s, want %ds or more", d.Duration, least)
		case f.Name == "SecurePort" && (v.Int() < least || v.Int() > 65535):
			text = fmt.Sprintf("got %d, want 0 to 65535", v.Int())
		case !ok && v.Int() < least:
			text = fmt.Sprintf("got %d, want %d or more", v.Int(), least)
		}
		if text != "" {
			faults = append(faults, Fault{f.Tag.Get("json"), f.Tag.Get("flag"), text})
		}
	}
	return faults
}
