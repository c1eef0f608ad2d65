package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Valid returns why kube-apiserver refuses the certificate at that time, nil if it is between its dates. The first time, the
// reason is logged too: when the certificate is loaded, or while it is served.
//
// The time is this machine's, because serve may not know an API server. If this machine's clock is wrong, only this replica
// becomes unready. Managed certificates are not checked here: they go by the API server's clock (certs.Manager.Ready).
// Certificates of the chain are not checked either: kube-apiserver may verify the certificate without one that has expired.
func (c *Certificate) Valid(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.valid(now)
}

func (c *Certificate) valid(now time.Time) error {
	reason := outdated(c.pair.Load().Leaf, now)
	if reason == "" {
		c.logged = ""
		return nil
	}
	remedy := "put a new certificate and its key into the files, which are read again when they change, or correct the clock"
	if c.CertFile == "" {
		remedy = "restart fastadmit, which makes a new one"
	}
	text := fmt.Sprintf("the %s %s, so kube-apiserver refuses it: %s", c.source(), reason, remedy)
	if c.logged != text {
		c.logged = text
		c.Log.Warn(text, "now", now.UTC().Format(time.RFC3339))
	}
	return errors.New(text)
}

// outdated says how a time is not between the dates of a certificate. It is empty if it is.
func outdated(leaf *x509.Certificate, now time.Time) string {
	switch {
	case now.After(leaf.NotAfter):
		return "expired at " + leaf.NotAfter.UTC().Format(time.RFC3339)
	case now.Before(leaf.NotBefore):
		return "is not valid before " + leaf.NotBefore.UTC().Format(time.RFC3339)
	}
	return ""
}

// replace puts a certificate from files into use, and logs why kube-apiserver will refuse it.
func (c *Certificate) replace(pair *tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pair.Store(pair)
	c.logged = "" // so that each reload says it
	_ = c.valid(time.Now())
	if leaf := pair.Leaf; len(leaf.DNSNames) == 0 && len(leaf.IPAddresses) == 0 {
		c.Log.Warn("the " + c.source() + " has no subject alternative names, so kube-apiserver refuses it: " +
			"issue it with the host that kube-apiserver calls as a DNS name, such as fastadmit.fastadmit.svc")
	}
}
