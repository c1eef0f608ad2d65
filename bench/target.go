package bench

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"
	"time"
)

// userAgent is the User-Agent that kube-apiserver sends to webhooks
// (k8s.io/apiserver/pkg/util/webhook/authentication.go).
const userAgent = "kube-apiserver-admission"

// Target describes a webhook.
type Target struct {
	// Name is the name in reports. The default is the URL.
	Name string
	// URL is the address of the webhook, as in a webhook configuration: https, and
	// without user, query or fragment.
	URL string
	// Host is the Host header. The default is the host of the URL. For a service,
	// kube-apiserver sends "<service>.<namespace>.svc:<port>".
	Host string
	// Token, if set, is sent as a bearer token.
	Token string
	// TLS determines how the server is verified, and contains the client certificate.
	// Nil means the CAs of the system. TLS sessions are never resumed.
	TLS *tls.Config

	// MetricsURL, if set, is the URL of the server's metrics, in the Prometheus text
	// format.
	MetricsURL string
	// PID, if not 0, is the process ID of the server on this machine. Its CPU time and
	// memory are read from the kernel. It works only on Linux.
	PID int
	// PprofURL is the URL of the server's net/http/pprof handlers, usually
	// ".../debug/pprof". It is needed for Config.PprofDir.
	PprofURL string

	address string // host:port
	path    string // the path in the request line
}

// complete fills in defaults and returns what is wrong.
func (t *Target) complete() error {
	if t.Name == "" {
		t.Name = t.URL
	}
	parsed, err := url.Parse(t.URL)
	if err != nil {
		return fmt.Errorf("cannot read the URL of the webhook: %w", err)
	}
	if parsed.Scheme != "https" || parsed.Host == "" || parsed.RawQuery != "" || parsed.Fragment != "" || parsed.User != nil {
		return fmt.Errorf("got %q as the URL of the webhook, want https://HOST[:PORT][/PATH] without user, query or fragment", t.URL)
	}
	if t.Host == "" {
		t.Host = parsed.Host
	}
	port := parsed.Port()
	if port == "" {
		port = "443"
	}
	t.address = net.JoinHostPort(parsed.Hostname(), port)
	t.path = (&url.URL{Path: path.Join("/", parsed.Path)}).RequestURI()

	config := new(tls.Config)
	if t.TLS != nil {
		config = t.TLS.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = parsed.Hostname()
	}
	config.ClientSessionCache = nil
	config.NextProtos = []string{"http/1.1"}
	if config.MinVersion == 0 {
		config.MinVersion = tls.VersionTLS12
	}
	t.TLS = config
	return nil
}

// A head makes the header blocks of requests. They differ only in the Content-Length.
type head struct{ before, after string }

// newHead returns the headers that kube-apiserver sends, in its order: the Content-Length comes
// before the sorted headers, Accept-Encoding after them.
func newHead(target *Target, timeout time.Duration, model Model) head {
	seconds := (timeout + time.Second - 1) / time.Second // as kube-apiserver rounds
	h := head{
		before: "POST " + target.path + "?timeout=" + strconv.Itoa(int(seconds)) + "s HTTP/1.1\r\n" +
			"Host: " + target.Host + "\r\nUser-Agent: " + userAgent + "\r\nContent-Length: ",
		after: "\r\nAccept: application/json, */*\r\n",
	}
	if target.Token != "" {
		h.after += "Authorization: Bearer " + target.Token + "\r\n"
	}
	h.after += "Content-Type: application/json\r\nAccept-Encoding: gzip\r\n"
	if model == OneShot {
		h.after += "Connection: close\r\n"
	}
	h.after += "\r\n"
	return h
}

// bytesMax is the maximum length of a header block.
func (h head) bytesMax() int { return len(h.before) + len("18446744073709551615") + len(h.after) }

// appendTo appends the headers of a request with a body of this length.
func (h head) appendTo(dst []byte, length int) []byte {
	dst = append(dst, h.before...)
	dst = strconv.AppendInt(dst, int64(length), 10)
	return append(dst, h.after...)
}
