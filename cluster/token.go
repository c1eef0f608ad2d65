package cluster

import (
	"bytes"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/internal/files"
)

const bearer = "Bearer "

// useFreshToken makes clients read the tokenFile for each request. client-go reads it once a minute, so
// requests would fail for that long if the old token is refused at once.
func useFreshToken(config *rest.Config) {
	if config.BearerTokenFile != "" {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &freshToken{next, config.BearerTokenFile} })
	}
}

// A freshToken replaces the bearer token of requests by that in a file.
type freshToken struct {
	http.RoundTripper
	file string
}

// RoundTrip implements http.RoundTripper. If the file cannot be read, it sends what client-go has read.
func (t *freshToken) RoundTrip(request *http.Request) (*http.Response, error) {
	const header = "Authorization"
	text, err := files.Read(t.file)
	if token := string(bytes.TrimSpace(text)); err == nil && token != "" && strings.HasPrefix(request.Header.Get(header), bearer) {
		request = request.Clone(request.Context()) // which a RoundTripper must not change
		request.Header.Set(header, bearer+token)
	}
	return t.RoundTripper.RoundTrip(request)
}

// WrappedRoundTripper returns the inner transport, for client-go.
func (t *freshToken) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
