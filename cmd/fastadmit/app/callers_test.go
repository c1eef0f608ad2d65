package app

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/corpus"
)

// An authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	pair := a.sign("authority", x509.ExtKeyUsageAny, time.Hour)
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

// sign makes a certificate, for itself the first time.
func (a *authority) sign(name string, usage x509.ExtKeyUsage, life time.Duration) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: a.cert == nil,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func certPEM(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

func keyPEM(t *testing.T, pair tls.Certificate) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// TestClientCertificates lets in who has the right certificate, and tells
// others over HTTP why not.
func TestClientCertificates(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	write(t, ca, certPEM(ours.cert))
	var s *running
	f := func(code int, message string, pairs ...tls.Certificate) {
		t.Helper()
		config := clientTLS.Clone()
		config.Certificates = pairs
		conn, err := tls.Dial("tcp", s.address, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		x := exchangeOn(t, conn)
		response, body := x.send(request("/validate", corpus.MustRead(podCreate)))
		if response.StatusCode != code || !bytes.Contains(body, []byte(message)) {
			t.Errorf("got %s %s, want %d with %q", response.Status, body, code, message)
		}
		x.answers(code != http.StatusOK)
	}
	client := x509.ExtKeyUsageClientAuth
	apiserver := ours.sign("kube-apiserver", client, time.Hour)

	s = serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--client-ca-file="+ca, "--client-allowed-names=kube-apiserver,other")
	f(200, `"uid"`, apiserver)
	f(401, "client certificate: got none, want one")
	f(401, "certificate signed by unknown authority", theirs.sign("kube-apiserver", client, time.Hour))
	f(401, "certificate has expired", ours.sign("kube-apiserver", client, -time.Minute))
	f(401, "incompatible key usage", ours.sign("kube-apiserver", x509.ExtKeyUsageServerAuth, time.Hour))
	f(403, `client certificate: \"kubelet\" is not one of --client-allowed-names`, ours.sign("kubelet", client, time.Hour))
	metrics := s.get(t, "/metrics", 200)
	for _, line := range []string{`fastadmit_refused_requests_total{code="401"} 4`, `fastadmit_refused_requests_total{code="403"} 1`, "fastadmit_requests_in_flight 0"} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in %s", line, metrics)
		}
	}

	// Another authority, from one moment to the next.
	write(t, ca, certPEM(theirs.cert))
	until(t, "reloaded", func() bool {
		return strings.Contains(s.get(t, "/metrics", 200), "fastadmit_config_reload_successes_total 1\n")
	})
	f(401, "unknown authority", apiserver)
	f(200, `"uid"`, theirs.sign("other", client, time.Hour))
	write(t, ca, "nonsense")
	until(t, "a change was refused", func() bool {
		return strings.Contains(s.get(t, "/readyz?verbose", 200), "callers ok: a change was refused, the previous version stays in use: cannot load the credentials of callers: "+ca+": got no certificate")
	})
	f(200, `"uid"`, theirs.sign("other", client, time.Hour))

	write(t, ca, certPEM(ours.cert))
	s = serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--client-ca-file="+ca)
	f(200, `"uid"`, ours.sign("anybody", client, time.Hour))
}

// TestCredentials lets in who has a token or a password.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	tokens, passwords := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "passwords.csv")
	write(t, tokens, "secret,kube-apiserver,1\nsecret2,kube-apiserver,2,\"a,b\"\n")
	write(t, passwords, "pass,kube-apiserver,1\n")
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--token-auth-file="+tokens, "--basic-auth-file="+passwords)
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	f := func(code int, authorization string) {
		t.Helper()
		var headers []string
		if authorization != "" {
			headers = []string{"Authorization: " + authorization}
		}
		x := s.open(t)
		response, body := x.send(request("/validate", corpus.MustRead(podCreate), append(headers, "Content-Type: application/json")...))
		if response.StatusCode != code || code != 200 && !bytes.Contains(body, []byte(`"reason":"Unauthorized"`)) || bytes.Contains(body, []byte("secret")) {
			t.Errorf("%q: got %s %s, want %d", authorization, response.Status, body, code)
		}
	}
	f(200, "Bearer secret")
	f(200, "Bearer secret2")
	f(200, basic("kube-apiserver:pass"))
	f(401, "")
	f(401, "Bearer secret3")
	f(401, "Bearer ")
	f(401, "secret")
	f(401, basic("kube-apiserver:secret"))
	f(401, basic("pass:kube-apiserver"))
	if !strings.Contains(s.get(t, "/metrics", 200), `fastadmit_refused_requests_total{code="401"} 6`) {
		t.Error("strangers are not counted")
	}

	// Nothing is read of a body without credentials: it need not even be sent.
	x := s.open(t)
	response, _ := x.send([]byte("POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n"))
	if response.StatusCode != http.StatusUnauthorized || !response.Close {
		t.Errorf("without a body: got %s", response.Status)
	}

	write(t, tokens, "new,kube-apiserver,1\n")
	until(t, "reloaded", func() bool {
		return strings.Contains(s.get(t, "/metrics", 200), "fastadmit_config_reload_successes_total 1\n")
	})
	f(401, "Bearer secret")
	f(200, "Bearer new")

	refused := func(name, content, want string) {
		t.Helper()
		write(t, tokens, content)
		_, errs, code := execute("", "serve", "--enable-admission-plugins=AlwaysPullImages", name+"="+tokens)
		if code != 1 || !strings.Contains(errs, want) || strings.Contains(errs, "hidden") {
			t.Errorf("%q: got exit code %d, %s, want %q", content, code, errs, want)
		}
	}
	refused("--token-auth-file", "", "tokens.csv: got no line, want at least one with token,user,uid")
	refused("--token-auth-file", "a,b,c\nhidden,x\n", "tokens.csv:2: got 2 fields, want token,user,uid")
	refused("--basic-auth-file", ",user,1\n", "tokens.csv:1: got 3 fields, want password,user,uid, the first two of them not empty")
	refused("--token-auth-file", "a\"b,c,d", "tokens.csv: ")
	refused("--client-ca-file", "hidden", "tokens.csv: got no certificate")
	_, errs, code := execute("", "serve", "--enable-admission-plugins=AlwaysPullImages", "--client-allowed-names=x")
	if code != 1 || !strings.Contains(errs, "--client-allowed-names needs --client-ca-file") {
		t.Errorf("got exit code %d, %s", code, errs)
	}
}

// TestCertificateReload replaces the serving certificate, by a broken one too.
func TestCertificateReload(t *testing.T) {
	a := newAuthority(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(name string, life time.Duration) {
		pair := a.sign(name, x509.ExtKeyUsageServerAuth, life)
		write(t, certFile, certPEM(pair.Leaf))
		write(t, keyFile, keyPEM(t, pair))
	}
	put("first", time.Hour)
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile)
	served := func() string { return s.dial(t).ConnectionState().PeerCertificates[0].Subject.CommonName }
	old := s.open(t)
	old.answers(false)
	if got := served(); got != "first" {
		t.Fatalf("got %q", got)
	}
	put("second", 2*time.Hour)
	until(t, "the second is served", func() bool { return served() == "second" })
	until(t, "its expiry is known", func() bool {
		want := fmt.Sprintf("fastadmit_serving_certificate_expiry_timestamp_seconds %d", time.Now().Add(2*time.Hour).Unix())
		return strings.Contains(s.get(t, "/metrics", 200), want[:len(want)-3])
	})
	write(t, keyFile, "nonsense")
	until(t, "a change was refused", func() bool {
		return strings.Contains(s.get(t, "/readyz?verbose", 200), "certificate ok: a change was refused, the previous version stays in use: cannot load the serving certificate")
	})
	if got := served(); got != "second" {
		t.Errorf("got %q after a broken change", got)
	}
	old.answers(false)
}

// TestConstantTime reads how credentials and path tokens are compared: the loop neither
// branches nor ends early, and both are compared by it. Times on a machine that others use
// would not show it.
func TestConstantTime(t *testing.T) {
	for file, wants := range map[string][]string{
		"callers.go": {
			"\tfor _, want := range credentials {\n\t\tfound |= subtle.ConstantTimeCompare(got[:], want[:])\n\t}\n\treturn found == 1\n}\n",
			"\tif l.credentials != nil && !contains(l.credentials, header.Peek(fasthttp.HeaderAuthorization)) {\n",
		},
		"pathtokens.go": {"\treturn contains(p.hashes, segment)\n"},
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !bytes.Contains(source, []byte(want)) {
				t.Errorf("%s: got another comparison of credentials, want\n%s", file, want)
			}
		}
	}
}
