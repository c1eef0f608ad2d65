package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"slices"
	"testing"
	"time"
)

func TestIssue(t *testing.T) {
	now := time.Now().Truncate(time.Second) // the precision of certificates
	ca, signer, err := newAuthority(30*time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	if !ca.IsCA || !ca.MaxPathLenZero || ca.KeyUsage != x509.KeyUsageCertSign || !ca.NotAfter.Equal(now.Add(30*time.Hour)) ||
		!due(ca).Equal(now.Add(20*time.Hour)) {
		t.Errorf("got %+v", ca)
	}
	f := func(life, wantLife, wantDue time.Duration, hosts ...string) {
		t.Helper()
		pair, err := newLeaf(ca, signer, hosts, life, now)
		if err != nil {
			t.Fatal(err)
		}
		leaf := pair.Leaf
		if !leaf.NotAfter.Equal(now.Add(wantLife)) || !due(leaf).Equal(now.Add(wantDue)) {
			t.Errorf("%s: got a life until %s, due at %s, want %s and %s later", life, leaf.NotAfter, due(leaf), wantLife, wantDue)
		}
		if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature ||
			!slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
			t.Errorf("got a leaf for %v, %v", leaf.KeyUsage, leaf.ExtKeyUsage)
		}
		for _, key := range []any{ca.PublicKey, leaf.PublicKey} {
			if ec, ok := key.(*ecdsa.PublicKey); !ok || ec.Curve != elliptic.P256() {
				t.Errorf("got a key %T, want ECDSA P-256", key)
			}
		}
		for _, host := range hosts {
			for _, clock := range []time.Time{now.Add(-time.Hour), now, leaf.NotAfter} { // behind, right, ahead
				if root, err := verifyChain([]*x509.Certificate{leaf}, []*x509.Certificate{ca}, host, clock); err != nil ||
					!root.Equal(ca) {
					t.Errorf("%s at %s: %v", host, clock, err)
				}
			}
			if _, err := verifyChain([]*x509.Certificate{leaf}, []*x509.Certificate{ca}, host, leaf.NotAfter.Add(time.Second)); err == nil {
				t.Errorf("%s is valid after its life", host)
			}
		}
	}
	f(3*time.Hour, 3*time.Hour, 2*time.Hour, serviceHost, "192.0.2.1", "2001:db8::1")
	f(60*time.Hour, 30*time.Hour, 20*time.Hour, serviceHost) // not longer than that of the CA
}

// TestSurplusIsBounded has a bundle with all CAs of a system.
func TestSurplusIsBounded(t *testing.T) {
	for _, n := range []int{surplusMax - 1, surplusMax, surplusMax + 1} {
		m := &Manager{o: Options{Propagation: time.Minute}, surplus: make(map[identity]time.Time), clock: clock{machine: time.Now}}
		now := time.Now()
		cas := make([]*x509.Certificate, 1+n)
		for i := range cas {
			var err error
			if cas[i], _, err = newAuthority(time.Hour, now); err != nil {
				t.Fatal(err)
			}
		}
		m.known = &state{cas: cas[:1]}
		got, want := parseBundle(m.bundle(encodeBundle(cas), now)), cas[:1+min(n, surplusMax)]
		if !equal(got, want...) {
			t.Errorf("%d more: got %d CAs, want %d", n, len(got), len(want))
		}
	}
}
