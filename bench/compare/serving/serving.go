// Package serving is the contenders' common part: their flags, the line that they print when they
// serve, and the metrics of their memory and processor time. The flags and the line are those of
// "fastadmit serve".
package serving

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/VictoriaMetrics/metrics"
)

// Options are the settings of a contender.
type Options struct {
	// Scenario is "validate", "mutate", "ten" or "policy".
	Scenario string
	// CertFile and KeyFile are PEM files with the certificate of all contenders.
	CertFile, KeyFile string
	// Answer is a file with the floor's answer. Others have none.
	Answer string
}

// Flags reads the options from the command line.
func Flags() Options {
	var o Options
	flag.StringVar(&o.Scenario, "scenario", "validate", "validate, mutate, ten or policy")
	flag.StringVar(&o.CertFile, "tls-cert-file", "", "file with the serving certificate, PEM")
	flag.StringVar(&o.KeyFile, "tls-private-key-file", "", "file with its key, PEM")
	flag.StringVar(&o.Answer, "answer", "", "file with the answer of the floor")
	flag.Parse()
	return o
}

// Listen opens a port on loopback that the system chooses, and a second one for /metrics, and
// prints the addresses.
func Listen() net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ops, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { metrics.WriteProcessMetrics(w) })
	go func() { log.Fatal(http.Serve(ops, mux)) }()
	fmt.Printf("serving on https://%s, metrics on http://%s\n", ln.Addr(), ops.Addr())
	return ln
}

// TLS returns the TLS settings of fastadmit's server with the certificate.
func (o *Options) TLS() *tls.Config {
	certificate, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		log.Fatal(err)
	}
	return &tls.Config{
		Certificates:           []tls.Certificate{certificate},
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true,
	}
}

// HTTP serves a handler with net/http. It does not return.
func (o *Options) HTTP(handler http.Handler) {
	log.Fatal(http.Serve(tls.NewListener(Listen(), o.TLS()), handler))
}
