// Package kubeconfigclient creates clients for the servers that plugins call, other than the API
// server. A kubeconfig file describes the server, as for the plugins of kube-apiserver
// (k8s.io/apiserver pkg/util/webhook).
package kubeconfigclient

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// requestTimeout is the longest time that a request may take, with its answer:
// upstream's.
const requestTimeout = 30 * time.Second

// Options configure a client.
type Options struct {
	// Kubeconfig is a kubeconfig file. Its current context selects the server and the
	// credentials. It must contain certificates and tokens, not the names of files. Only
	// a credential command (exec) may use files.
	Kubeconfig []byte
	// Scheme contains the types of Version. Requests are encoded in Version.
	Scheme  *runtime.Scheme
	Version schema.GroupVersion
	// AnswerBytesMax is the maximum length of a decompressed answer, in bytes. A longer
	// answer is an error.
	AnswerBytesMax int64
}

// New returns a client for the server. Like the client of kube-apiserver, it has no rate
// limit, and a request may take 30 s. The error says that Kubeconfig is invalid.
func New(o Options) (rest.Interface, error) {
	kubeconfig, err := clientcmd.Load(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, "", new(clientcmd.ConfigOverrides), nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = requestTimeout
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // it would write them to stderr
	config.ContentType = runtime.ContentTypeJSON
	codec := serializer.NewCodecFactory(o.Scheme).LegacyCodec(o.Version)
	config.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &limiter{next, o.AnswerBytesMax} })
	return rest.UnversionedRESTClientFor(config)
}

// A limiter refuses answers that are longer than bytesMax. client-go reads whole answers of
// any length.
type limiter struct {
	http.RoundTripper
	bytesMax int64
}

// RoundTrip implements http.RoundTripper.
func (l *limiter) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if response != nil && response.Body != nil {
		response.Body = &limited{response.Body, l.bytesMax, l.bytesMax}
	}
	return response, err
}

// WrappedRoundTripper returns the inner transport, for client-go.
func (l *limiter) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// errTooLong is the error of an answer that is too long.
var errTooLong = errors.New("answer too long")

// limited is a body with a limit, beyond which Read returns an error.
type limited struct {
	io.ReadCloser
	left, most int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (n int, err error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err = l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("%w: got more than %d bytes, the maximum", errTooLong, l.most)
	}
	return n, err
}
