package server

import (
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestCertificateValid checks a certificate at several times while it is served.
func TestCertificateValid(t *testing.T) {
	log := new(servertest.Buffer)
	c := &Certificate{Log: NewLog(log)}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	leaf := c.pair.Load().Leaf
	f := func(now time.Time, want string, lines int) {
		t.Helper()
		got := ""
		if err := c.Valid(now); err != nil {
			got = err.Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("at %s: got %q, want %q", now, got, want)
		}
		if n := strings.Count(log.String(), "so kube-apiserver refuses it"); n != lines {
			t.Errorf("at %s: got %d lines, want %d in the log\n%s", now, n, lines, log)
		}
	}
	const refused = ", so kube-apiserver refuses it: restart fastadmit, which makes a new one"
	expired := "the certificate made in memory expired at " + leaf.NotAfter.UTC().Format(time.RFC3339) + refused
	early := "the certificate made in memory is not valid before " + leaf.NotBefore.UTC().Format(time.RFC3339) + refused
	f(leaf.NotBefore, "", 0)
	f(leaf.NotAfter, "", 0)
	f(leaf.NotAfter.Add(time.Second), expired, 1)
	f(leaf.NotAfter.Add(time.Minute), expired, 1) // once
	f(leaf.NotBefore.Add(-time.Second), early, 2)
	f(leaf.NotBefore, "", 2)
	f(leaf.NotAfter.Add(time.Second), expired, 3)
}
