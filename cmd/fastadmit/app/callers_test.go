package app

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestClientCertificates accepts callers with a valid certificate. Others get
// an HTTP error with the reason.
func TestClientCertificates(t *testing.T) {
	ours, theirs := servertest.NewAuthority(t), servertest.NewAuthority(t)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	servertest.WriteFile(t, ca, servertest.CertPEM(ours.Cert))
	var s *running
	f := func(code int, message string, pairs ...tls.Certificate) {
		t.Helper()
		config := servertest.TLS.Clone()
		config.Certificates = pairs
		conn, err := tls.Dial("tcp", s.Address, config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		x := servertest.Over(t, conn)
		response, body := x.Send(servertest.Request("/validate", corpus.MustRead(servertest.PodCreate)))
		if response.StatusCode != code || !bytes.Contains(body, []byte(message)) {
			t.Errorf("got %s %s, want %d with %q", response.Status, body, code, message)
		}
		x.Answers(code != http.StatusOK)
	}
	client := x509.ExtKeyUsageClientAuth
	apiserver := ours.Sign("kube-apiserver", client, time.Hour)

	s = serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--client-ca-file="+ca, "--client-allowed-names=kube-apiserver,other")
	f(200, `"uid"`, apiserver)
	f(401, "client certificate: got none, want one")
	f(401, "certificate signed by unknown authority", theirs.Sign("kube-apiserver", client, time.Hour))
	f(401, "certificate has expired", ours.Sign("kube-apiserver", client, -time.Minute))
	f(401, "incompatible key usage", ours.Sign("kube-apiserver", x509.ExtKeyUsageServerAuth, time.Hour))
	f(403, `client certificate: \"kubelet\" is not one of --client-allowed-names`, ours.Sign("kubelet", client, time.Hour))
	metrics := s.Get(t, "/metrics", 200)
	for _, line := range []string{`fastadmit_refused_requests_total{code="401"} 4`,
		`fastadmit_refused_requests_total{code="403"} 1`, "fastadmit_requests_in_flight 0"} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in %s", line, metrics)
		}
	}

	// The authority is replaced while the server runs.
	servertest.WriteFile(t, ca, servertest.CertPEM(theirs.Cert))
	servertest.Until(t, "reloaded", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_config_reload_successes_total 1\n")
	})
	f(401, "unknown authority", apiserver)
	f(200, `"uid"`, theirs.Sign("other", client, time.Hour))
	servertest.WriteFile(t, ca, "nonsense")
	servertest.Until(t, "a change was refused", func() bool {
		return strings.Contains(s.Get(t, "/readyz?verbose", 200),
			"callers ok: a change was refused, the previous version stays in use: cannot load the credentials of callers: "+
				"--client-ca-file: "+ca+": got no certificate")
	})
	f(200, `"uid"`, theirs.Sign("other", client, time.Hour))

	servertest.WriteFile(t, ca, servertest.CertPEM(ours.Cert))
	s = serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--client-ca-file="+ca)
	f(200, `"uid"`, ours.Sign("anybody", client, time.Hour))
}

// TestCredentials accepts callers with a token or a password.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	tokens, passwords := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "passwords.csv")
	servertest.WriteFile(t, tokens, "secret,kube-apiserver,1\nsecret2,kube-apiserver,2,\"a,b\"\n")
	servertest.WriteFile(t, passwords, "pass,kube-apiserver,1\n")
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--token-auth-file="+tokens, "--basic-auth-file="+passwords)
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	f := func(code int, authorization string) {
		t.Helper()
		var headers []string
		if authorization != "" {
			headers = []string{"Authorization: " + authorization}
		}
		x := s.Open(t)
		response, body := x.Send(servertest.Request("/validate", corpus.MustRead(servertest.PodCreate),
			append(headers, "Content-Type: application/json")...))
		if response.StatusCode != code || code != 200 && !bytes.Contains(body, []byte(`"reason":"Unauthorized"`)) ||
			bytes.Contains(body, []byte("secret")) {
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
	if !strings.Contains(s.Get(t, "/metrics", 200), `fastadmit_refused_requests_total{code="401"} 6`) {
		t.Error("strangers are not counted")
	}

	// Without credentials, the server does not read the body: the client need
	// not even send it.
	x := s.Open(t)
	response, _ := x.Send([]byte("POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " +
		"30000000\r\n\r\n"))
	if response.StatusCode != http.StatusUnauthorized || !response.Close {
		t.Errorf("without a body: got %s", response.Status)
	}

	servertest.WriteFile(t, tokens, "new,kube-apiserver,1\n")
	servertest.Until(t, "reloaded", func() bool {
		return strings.Contains(s.Get(t, "/metrics", 200), "fastadmit_config_reload_successes_total 1\n")
	})
	f(401, "Bearer secret")
	f(200, "Bearer new")

	refused := func(name, content, want string) {
		t.Helper()
		servertest.WriteFile(t, tokens, content)
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

// TestCertificateReload replaces the serving certificate, first by a valid and
// then by a broken one.
func TestCertificateReload(t *testing.T) {
	a := servertest.NewAuthority(t)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(name string, life time.Duration) {
		pair := a.Sign(name, x509.ExtKeyUsageServerAuth, life)
		servertest.WriteFile(t, certFile, servertest.CertPEM(pair.Leaf))
		servertest.WriteFile(t, keyFile, servertest.KeyPEM(t, pair))
	}
	put("first", time.Hour)
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile)
	served := func() string { return s.Dial(t).ConnectionState().PeerCertificates[0].Subject.CommonName }
	old := s.Open(t)
	old.Answers(false)
	if got := served(); got != "first" {
		t.Fatalf("got %q", got)
	}
	put("second", 2*time.Hour)
	servertest.Until(t, "the second is served", func() bool { return served() == "second" })
	servertest.Until(t, "its expiry is known", func() bool {
		want := fmt.Sprintf("fastadmit_serving_certificate_expiry_timestamp_seconds %d", time.Now().Add(2*time.Hour).Unix())
		return strings.Contains(s.Get(t, "/metrics", 200), want[:len(want)-3])
	})
	servertest.WriteFile(t, keyFile, "nonsense")
	servertest.Until(t, "a change was refused", func() bool {
		return strings.Contains(s.Get(t, "/readyz?verbose", 200),
			"certificate ok: a change was refused, the previous version stays in use: cannot load the serving certificate")
	})
	if got := served(); got != "second" {
		t.Errorf("got %q after a broken change", got)
	}
	old.Answers(false)
}
