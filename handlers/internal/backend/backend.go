// Package backend makes clients of servers that plugins ask, other than the API
// server: those that a kubeconfig names, as kube-apiserver's plugins do
// (k8s.io/apiserver pkg/util/webhook).
package backend

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

// Options say how a server is asked.
type Options struct {
	// Kubeconfig names the server and the credentials in its current context. It names
	// no files but those of a command that prints credentials (exec).
	Kubeconfig []byte
	// Scheme has the types of Version, in which requests are sent.
	Scheme  *runtime.Scheme
	Version schema.GroupVersion
	// AnswerBytesMax is how long an answer may be after it was decompressed.
	AnswerBytesMax int64
}

// New returns a client for the URL of the server. It sends requests as upstream's
// client does: without a limit of its own, and each for 30 s at most.
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

// A limiter lets no answer be longer than bytesMax. client-go reads answers as a
// whole, whatever their length.
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

// WrappedRoundTripper lets client-go find the transport below.
func (l *limiter) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }

// errTooLong is the error of an answer that is too long.
var errTooLong = errors.New("answer too long")

// limited is a body that is an error beyond its limit.
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
		return 0, fmt.Errorf("%w: got more than %d bytes, want at most that", errTooLong, l.most)
	}
	return n, err
}
