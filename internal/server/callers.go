package server

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/files"
)

// Callers are who may call the webhooks. A caller must have each of a client certificate,
// an Authorization header and a path token that is configured. Without any, everybody
// may call.
type Callers struct {
	// CAFile has the certificates of the CAs that sign client certificates, in PEM.
	CAFile string
	// AllowedNames are the common names of accepted client certificates; empty for all.
	AllowedNames []string
	// TokenFile and BasicFile are files of kube-apiserver's flags --token-auth-file and
	// --basic-auth-file.
	TokenFile, BasicFile string
	// PathTokenFile has a path token on each line.
	PathTokenFile string
	// Managed says that managed registration makes the path tokens, see AcceptPathTokens.
	Managed bool

	loaded atomic.Pointer[callersLoaded]
}

type callersLoaded struct {
	roots       *x509.CertPool // nil if certificates are not asked for
	credentials []credential   // of all files, nil if not asked for
	paths       *pathTokens    // nil if not asked for
}

// A credential is the hash of an Authorization header's value, or of a path
// token: comparing hashes takes the same time whatever is in them.
type credential [sha256.Size]byte

// Files returns the names of the files that Load reads.
func (c *Callers) Files() []string {
	return slices.DeleteFunc([]string{c.CAFile, c.TokenFile, c.BasicFile, c.PathTokenFile}, func(file string) bool { return file == "" })
}

// Load reads the files. After an error, what was loaded before stays in use.
func (c *Callers) Load() error {
	var next callersLoaded
	var errs []error
	if c.CAFile != "" {
		content, err := files.Read(c.CAFile)
		next.roots = x509.NewCertPool()
		if err == nil && !next.roots.AppendCertsFromPEM(content) {
			err = fmt.Errorf("%s: got no certificate, want at least one in PEM", c.CAFile)
		}
		errs = append(errs, ofFlag("client-ca-file", err))
	} else if len(c.AllowedNames) > 0 {
		errs = append(errs, errors.New("--client-allowed-names needs --client-ca-file"))
	}
	// The files are those that kube-apiserver's flags of the same names take.
	tokens, err := readCredentials(c.TokenFile, "token,user,uid", func(record []string) string { return "Bearer " + record[0] })
	errs = append(errs, ofFlag("token-auth-file", err))
	passwords, err := readCredentials(c.BasicFile, "password,user,uid", func(record []string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(record[1]+":"+record[0]))
	})
	errs = append(errs, ofFlag("basic-auth-file", err))
	next.paths, err = readPathTokens(c.PathTokenFile)
	if c.Managed {
		next.paths = new(pathTokens) // none is known yet
	}
	errs = append(errs, ofFlag("path-token-file", err))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cannot load the credentials of callers: %w", err)
	}
	next.credentials = slices.Concat(tokens, passwords)
	c.loaded.Store(&next)
	return nil
}

// ofFlag says which flag names a file. The field of the configuration has the same meaning.
func ofFlag(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s: %w", name, err)
}

// readCredentials reads a file with a credential in each line; "" gives nil.
func readCredentials(file, format string, header func(record []string) string) ([]credential, error) {
	if file == "" {
		return nil, nil
	}
	content, err := files.Read(file)
	if err != nil {
		return nil, err
	}
	reader := csv.NewReader(bytes.NewReader(content))
	reader.FieldsPerRecord = -1
	records, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all := make([]credential, 0, len(records))
	for i, record := range records {
		if len(record) < 3 || record[0] == "" || record[1] == "" {
			return nil, fmt.Errorf("%s:%d: got %d fields, want %s, the first two of them not empty", file, i+1, len(record), format)
		}
		all = append(all, sha256.Sum256([]byte(header(record))))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: got no line, want at least one with %s", file, format)
	}
	return all, nil
}

// knows reports whether a request has the credentials and the path token that
// are asked for.
func (c *Callers) knows(header *fasthttp.RequestHeader) bool {
	loaded := c.loaded.Load()
	if loaded.credentials == nil && loaded.paths == nil {
		return true
	}
	return loaded.missing(header) == ""
}

// missing returns what a request lacks that is asked for, "" if nothing. It does
// not say how it differs from what is wanted.
func (l *callersLoaded) missing(header *fasthttp.RequestHeader) string {
	if l.credentials != nil && !contains(l.credentials, header.Peek(fasthttp.HeaderAuthorization)) {
		return "Authorization: want a token or password of --token-auth-file or --basic-auth-file"
	}
	if l.paths != nil && !l.paths.has(header.RequestURI()) {
		return "path: want a path token before /mutate or /validate, as in the webhook configuration that fastadmit or fastadmit manifests makes"
	}
	return ""
}

// contains reports whether the text is one of the credentials. It takes the same
// time for each text of a length, and does not stop at the one that fits.
func contains(credentials []credential, text []byte) bool {
	got := sha256.Sum256(text)
	found := 0
	for _, want := range credentials {
		found |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return found == 1
}

// provenBy reports whether a connection that check has nothing against shows
// all that is asked for, before there is a request.
func (c *Callers) provenBy(state *tls.ConnectionState) bool {
	loaded := c.loaded.Load()
	return loaded.roots != nil && loaded.credentials == nil && loaded.paths == nil && len(state.PeerCertificates) > 0
}

// check returns why whoever is at the other end of a connection may not call,
// nil if they may.
func (c *Callers) check(state *tls.ConnectionState) *codec.Status {
	loaded := c.loaded.Load()
	if loaded.roots == nil {
		return nil
	}
	unknown := func(why string) *codec.Status {
		return &codec.Status{Code: http.StatusUnauthorized, Reason: "Unauthorized", Message: "client certificate: " + why}
	}
	if len(state.PeerCertificates) == 0 {
		return unknown("got none, want one")
	}
	options := x509.VerifyOptions{
		Roots: loaded.roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, certificate := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(certificate)
	}
	certificate := state.PeerCertificates[0]
	if _, err := certificate.Verify(options); err != nil {
		return unknown(err.Error())
	}
	if name := certificate.Subject.CommonName; len(c.AllowedNames) > 0 && !slices.Contains(c.AllowedNames, name) {
		return &codec.Status{Code: http.StatusForbidden, Reason: "Forbidden",
			Message: fmt.Sprintf("client certificate: %q is not one of --client-allowed-names", name)}
	}
	return nil
}
