package app

import (
	"crypto/x509"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestRefusedCertificates serves certificates that kube-apiserver refuses, and replaces them.
func TestRefusedCertificates(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	authority := servertest.NewAuthority(t)
	publish := func(life time.Duration, change ...func(*x509.Certificate)) *x509.Certificate {
		t.Helper()
		pair := authority.Sign("fastadmit", x509.ExtKeyUsageServerAuth, life, change...)
		servertest.WriteFile(t, keyFile, servertest.KeyPEM(t, pair))
		servertest.WriteFile(t, certFile, servertest.CertPEM(pair.Leaf))
		return pair.Leaf
	}
	later := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }
	date := func(date time.Time) string { return date.UTC().Format(time.RFC3339) }
	const remedy = ", so kube-apiserver refuses it: put a new certificate and its key into the files, which are read again when they " +
		"change, or correct the clock"

	leaf := publish(-time.Minute)
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile)
	is := func(code int, want string) {
		t.Helper()
		servertest.Until(t, want, func() bool {
			got, about := s.Ask(t, "/readyz?verbose")
			return got == code && strings.Contains(about, want)
		})
	}
	logged := func(want string) { // lines are written in their order, but later than answers
		t.Helper()
		servertest.Until(t, want, func() bool { return strings.Contains(s.Log.String(), want) })
	}
	expired := "the certificate from " + certFile + " expired at " + date(leaf.NotAfter) + remedy
	is(http.StatusServiceUnavailable, "[-]certificate failed: "+expired+"\n")
	logged(expired)

	servertest.WriteFile(t, certFile, "no certificate")
	is(http.StatusServiceUnavailable, "[-]certificate failed: "+expired+"\n    a change was refused, the previous version stays in use: ")
	publish(time.Hour)
	is(http.StatusOK, "[+]certificate ok\n")

	leaf = publish(2*time.Hour, later)
	early := "the certificate from " + certFile + " is not valid before " + date(leaf.NotBefore) + remedy
	is(http.StatusServiceUnavailable, "[-]certificate failed: "+early+"\n")
	logged(early)

	publish(time.Hour, func(c *x509.Certificate) { c.IPAddresses = nil })
	is(http.StatusOK, "[+]certificate ok\n")
	logged("the certificate from " + certFile + " has no subject alternative names, so kube-apiserver refuses it: issue it with the host")
	for _, once := range []string{expired, early} {
		if n := strings.Count(s.Log.String(), once); n != 1 {
			t.Errorf("got %d times %q, want it once in the log\n%s", n, once, s.Log)
		}
	}
}
