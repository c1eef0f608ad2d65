// Package jsonclient contains the configuration and the client of an HTTP server with JSON that a
// plugin calls.
package jsonclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/handlers/internal/answers"
)

// ErrNotFound means that the server answered with code 404.
var ErrNotFound = errors.New("not found")

// Config contains the URL of the server and the credentials. Files are read again when
// they change.
type Config struct {
	URL string `json:"url"` // http or https
	// CAFile contains the CA certificates that verify the server. If it is empty, those
	// of the system are used.
	CAFile string `json:"caFile"`
	// CertFile and KeyFile are the client certificate and its key. Both may be empty.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// BearerTokenFile contains a token to send. It may be empty.
	BearerTokenFile string `json:"bearerTokenFile"`
}

// Validate returns all errors in the fields. at is the path of the Config in its file.
func (c *Config) Validate(at *field.Path) (errs field.ErrorList) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, field.Invalid(at.Child("url"), c.URL, "must be a URL with http or https and a host, and without a query"))
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		errs = append(errs, field.Invalid(at.Child("keyFile"), c.KeyFile, "certFile and keyFile must be given together"))
	}
	for _, f := range []struct{ name, value string }{
		{"caFile", c.CAFile}, {"certFile", c.CertFile}, {"keyFile", c.KeyFile}, {"bearerTokenFile", c.BearerTokenFile},
	} {
		if f.value != "" && !filepath.IsAbs(f.value) {
			errs = append(errs, field.Invalid(at.Child(f.name), f.value, "must be an absolute path"))
		}
	}
	return errs
}

// A Client sends requests to the server. Several goroutines may use it at the same time.
type Client struct {
	url       string
	http      *http.Client
	answerMax int64
}

// New creates a client for a valid Config. answerMax is the maximum length of an answer in
// bytes. A longer answer is an error. New returns an error if a file cannot be read.
func New(c *Config, answerMax int64) (*Client, error) {
	client, err := rest.HTTPClientFor(&rest.Config{
		Host:            c.URL,
		BearerTokenFile: c.BearerTokenFile,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile, NextProtos: answers.Protocols(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for %s: %w", c.URL, err)
	}
	// The operator chooses the server; an answer must not redirect to another one.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{c.URL, client, answerMax}, nil
}

// Get sends a GET request for the path below the URL, with the query. It decodes the JSON
// answer into the value that into points to. It returns ErrNotFound for code 404, and
// another error for all other codes except 200. It does not follow redirects.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	return c.do(request, into)
}

func (c *Client) do(request *http.Request, into any) error {
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, c.answerMax+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: cannot read the answer: %w", c.url, err)
	case response.StatusCode == http.StatusNotFound:
		return ErrNotFound
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: got code %d and %.200q, want 200", c.url, response.StatusCode, body)
	case int64(len(body)) > c.answerMax:
		return fmt.Errorf("%s: got an answer of more than %d bytes, want fewer", c.url, c.answerMax)
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(body, into); err != nil {
		return fmt.Errorf("%s: got %.200q, want JSON: %w", c.url, body, err)
	}
	return nil
}
