package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
)

// startRegistered starts replicas and waits until they are registered.
func (s *stand) startRegistered(n int, o Options) {
	s.t.Helper()
	for range n {
		o := o
		o.Metrics = s.options().Metrics
		s.start(o)
	}
	s.settle(20 * time.Second)
	for _, r := range s.replicas {
		if err := r.ready(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// leaf returns the serving certificate of a replica.
func (r *replica) leaf() *x509.Certificate {
	r.stand.t.Helper()
	pair, err := r.Certificate(nil)
	if err != nil {
		r.stand.t.Fatal(err)
	}
	return pair.Leaf
}

// registered returns the bundle of all webhooks.
func (s *stand) registered() []*x509.Certificate {
	s.t.Helper()
	var first []byte
	for _, kind := range configurationKinds {
		for _, w := range s.webhooks(kind.resource) {
			if first == nil {
				first = w.ClientConfig.CABundle
			}
			if !bytes.Equal(w.ClientConfig.CABundle, first) {
				s.t.Errorf("%s has another bundle", w.Name)
			}
		}
	}
	return parseBundle(first)
}

// ca returns the current CA.
func (s *stand) ca() *x509.Certificate {
	s.t.Helper()
	state, err := parseState(s.secret(), nil, time.Now())
	if err != nil {
		s.t.Fatal(err)
	}
	return state.cas[0]
}

func equal(cas []*x509.Certificate, want ...*x509.Certificate) bool {
	return slices.EqualFunc(cas, want, (*x509.Certificate).Equal)
}

// TestRace has ten replicas start at once.
func TestRace(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(10, s.options())
		lines := 0
		for _, r := range s.replicas {
			if !r.leaf().Equal(s.replicas[0].leaf()) {
				t.Errorf("%s serves another leaf", r.address)
			}
			lines += len(r.log.lines("wrote the Secret"))
		}
		if n := s.count("create", "secrets"); n != 1 || s.count("update", "secrets") != 0 || lines != 1 {
			t.Errorf("got %d Secrets created, %d updates, %d lines, want one", n, s.count("update", "secrets"), lines)
		}
	})
}

// TestRegistration checks the order: a leaf, readiness, a connection through the Service,
// and only then the configurations. They are deleted with their owner.
func TestRegistration(t *testing.T) {
	inStand(t, func(s *stand) {
		s.cutOff.Store(true)
		r := s.start(s.options())
		s.settle(time.Minute)
		if err := r.ready(); err != nil {
			t.Errorf("not ready before it is registered: %v", err)
		}
		if got := s.webhooks(mutating.resource); got != nil {
			t.Errorf("got %v before the Service was reached, want none", got)
		}
		if got := r.log.lines("cannot be reached as kube-apiserver would"); len(got) != 2 {
			t.Errorf("got %q, want a line for each configuration", got)
		}
		if got := r.metric(`fastadmit_certificate_failures_total{resource="service"}`); got == "0" {
			t.Error("no failure was counted")
		}
		if got := r.metric(`fastadmit_certificate_expiry_timestamp_seconds{resource="registered"}`); got != "0" {
			t.Errorf("got expiry %s of what is not registered, want 0", got)
		}
		s.cutOff.Store(false)
		s.settle(20 * time.Second)
		if !equal(s.registered(), s.ca()) {
			t.Errorf("got bundles %v, want the CA", s.registered())
		}
		for _, kind := range configurationKinds {
			object, err := s.get(kind.resource, "fastadmit.io")
			if err != nil {
				t.Fatal(err)
			}
			owner, err := s.get("clusterroles", "owner")
			if err != nil {
				t.Fatal(err)
			}
			if got := object.GetOwnerReferences(); len(got) != 1 || got[0].UID != owner.GetUID() || got[0].Kind != "ClusterRole" ||
				got[0].Name != "owner" {
				t.Errorf("got owners %v, want the ClusterRole", got)
			}
		}
		for resource, want := range map[string]int64{"ca": s.ca().NotAfter.Unix(), "leaf": r.leaf().NotAfter.Unix(),
			"registered": s.ca().NotAfter.Unix()} {
			series := fmt.Sprintf("fastadmit_certificate_expiry_timestamp_seconds{resource=%q}", resource)
			if got := r.metric(series); got != fmt.Sprint(want) {
				t.Errorf("got expiry %s of %s, want %d", got, resource, want)
			}
		}

		// After they were deleted, they are created again, but not without an owner.
		s.remove(mutating.resource, "fastadmit.io")
		s.settle(20 * time.Second)
		if s.webhooks(mutating.resource) == nil {
			t.Error("the configuration is not back")
		}
		s.remove("clusterroles", "owner")
		s.remove(mutating.resource, "fastadmit.io")
		s.settle(time.Minute)
		if s.webhooks(mutating.resource) != nil {
			t.Error("the configuration is back without its owner")
		}
	})
}

// TestRenewal has API servers with fresh and with old caches call while CA and leaf change.
func TestRenewal(t *testing.T) {
	if testing.Short() {
		t.Skip("calls for eleven hours; TestOrder has one change of the CA")
	}
	inStand(t, func(s *stand) {
		s.startRegistered(3, s.options())
		api := s.callers(0, DefaultPropagation-5*time.Second)
		cas, leaves := make(map[identity]bool), make(map[identity]bool)
		for range 9 * 60 {
			api.call(time.Minute, 30*time.Second)
			cas[identify(s.ca())] = true
			for _, r := range s.replicas {
				leaves[identify(r.leaf())] = true
				if err := r.ready(); err != nil {
					t.Errorf("%s: %v", time.Now(), err)
				}
			}
		}
		api.check()
		// Within six hours, there is a new CA every four hours, and a leaf of 100 minutes
		// every 67.
		if len(cas) != 3 || len(leaves) < 6 {
			t.Errorf("got %d CAs and %d leaves, want 3 and at least 6", len(cas), len(leaves))
		}
		if got := s.registered(); len(got) != 2 || !got[0].Equal(s.ca()) {
			t.Errorf("got %d CAs in the bundles, want the new one and that before it", len(got))
		}
		for _, line := range s.replicas[0].log.lines("level=WARN") {
			if !strings.Contains(line, "cannot be reached as") { // expected at the start
				t.Error(line)
			}
		}
		api.call(2*time.Hour, time.Minute) // until the earlier CA has expired, and before the next one
		api.check()
		if got := s.registered(); !equal(got, s.ca()) {
			t.Errorf("got %d CAs in the bundles, want one", len(got))
		}
	})
}

// TestOrder checks each step of a change of the CA.
func TestOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector, which finds nothing here that it does not find in TestRestarts")
	}
	inStand(t, func(s *stand) {
		s.startRegistered(2, s.options())
		before := s.ca()
		s.settle(time.Until(due(before)) - time.Second)
		if !s.ca().Equal(before) {
			t.Fatal("the CA was renewed too early")
		}
		s.settle(3 * time.Second)
		after := s.ca()
		if after.Equal(before) {
			t.Fatal("the CA was not renewed at two thirds of its life")
		}
		if !equal(s.registered(), after, before) {
			t.Errorf("got bundles %v, want both", s.registered())
		}
		s.settle(DefaultPropagation - 5*time.Second)
		for _, r := range s.replicas {
			if issuer, err := verifyChain([]*x509.Certificate{r.leaf()}, s.registered(), serviceHost, time.Now()); err != nil ||
				!issuer.Equal(before) {
				t.Errorf("%s serves a leaf of the new CA before all can know it: %v", r.address, err)
			}
		}
		s.settle(10 * time.Second)
		for _, r := range s.replicas {
			if issuer, err := verifyChain([]*x509.Certificate{r.leaf()}, s.registered(), serviceHost, time.Now()); err != nil ||
				!issuer.Equal(after) {
				t.Errorf("%s does not serve a leaf of the new CA: %v", r.address, err)
			}
		}
		s.settle(time.Until(before.NotAfter) - time.Second)
		if !equal(s.registered(), after, before) {
			t.Error("the old CA left before it expired")
		}
		s.settle(3 * time.Second)
		if !equal(s.registered(), s.ca()) {
			t.Error("the old CA did not leave when it expired")
		}
	})
}

// TestSecretIsLost has the Secret deleted or spoiled while API servers call.
func TestSecretIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector, which finds nothing here that it does not find in TestRestarts")
	}
	f := func(name string, spoil func(data map[string][]byte) map[string][]byte, sameCA bool, want string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			inStand(t, func(s *stand) {
				s.startRegistered(3, s.options())
				ca := s.ca()
				api := s.callers(0, DefaultPropagation-5*time.Second)
				api.call(2*time.Minute, time.Minute)
				if data := spoil(s.secret()); data == nil {
					s.remove("secrets", "certs")
				} else {
					s.putSecret(data)
				}
				api.call(10*time.Second, time.Second)
				api.call(6*time.Minute, 15*time.Second)
				api.check()
				if _, err := parseState(s.secret(), []string{serviceHost}, time.Now()); err != nil {
					t.Errorf("it is not repaired: %v", err)
				}
				if got := s.ca().Equal(ca); got != sameCA {
					t.Errorf("got the same CA: %t, want %t", got, sameCA)
				}
				if !equal(s.registered(), s.ca()) {
					t.Errorf("got %d CAs in the bundles, want one", len(s.registered()))
				}
				repairs, lines := 0, 0
				for _, r := range s.replicas {
					if !r.leaf().Equal(s.replicas[0].leaf()) {
						t.Errorf("%s serves another leaf", r.address)
					}
					if r.metric("fastadmit_certificate_repairs_total") != "0" {
						repairs++
					}
					lines += len(r.log.lines(want))
				}
				if repairs != 1 || lines != 1 {
					t.Errorf("got %d repairs and %d lines with %q, want one", repairs, lines, want)
				}
			})
		})
	}
	with := func(key string, value []byte) func(map[string][]byte) map[string][]byte {
		return func(data map[string][]byte) map[string][]byte {
			data[key] = value
			return data
		}
	}
	made := func(life time.Duration, hosts ...string) func(map[string][]byte) map[string][]byte {
		return func(data map[string][]byte) map[string][]byte {
			return secretData(t, DefaultCALife, life, hosts...)
		}
	}
	f("deleted", func(map[string][]byte) map[string][]byte { return nil }, true, "repaired the Secret")
	f("emptied", func(map[string][]byte) map[string][]byte { return map[string][]byte{} }, true, "repaired the Secret")
	f("CA is garbage", with(caCertificates, []byte("garbage")), true, "failed to find any PEM data")
	f("CA key is garbage", with(caKey, []byte("garbage")), true, "failed to find any PEM data")
	f("CA key of another", with(caKey, secretData(t, time.Hour, time.Hour, "a")[caKey]), true, "private key does not match public key")
	f("leaf is garbage", with(corev1.TLSCertKey, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")), true,
		"tls.crt and tls.key")
	f("leaf key of another", with(corev1.TLSPrivateKeyKey, secretData(t, time.Hour, time.Hour, "a")[corev1.TLSPrivateKeyKey]), true,
		"private key does not match public key")
	f("leaf is no CA's", with(caCertificates, secretData(t, time.Hour, time.Hour, "a")[caCertificates]), true, "private key does not match")
	f("leaf of a CA of its own", func(data map[string][]byte) map[string][]byte {
		other := secretData(t, time.Hour, time.Hour, serviceHost)
		data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = other[corev1.TLSCertKey], other[corev1.TLSPrivateKeyKey]
		return data
	}, true, "signed by unknown authority")
	f("other names", made(time.Hour, "elsewhere.svc"), false, "not "+serviceHost)
	f("expired leaf", made(-time.Minute, serviceHost), false, "has expired")
	f("made by a clock that was ahead", func(map[string][]byte) map[string][]byte {
		return secretDataOf(t, time.Now().AddDate(1, 0, 0), DefaultCALife, time.Hour, serviceHost)
	}, true, "the CA is not valid before")
	f("expired CA", func(map[string][]byte) map[string][]byte { return secretData(t, -time.Minute, time.Hour, serviceHost) }, true,
		"the CA expired")
	f("the leaf as its CA", func(data map[string][]byte) map[string][]byte {
		data[caCertificates], data[caKey] = data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]
		return data
	}, true, "the first certificate is not a CA")
}

// TestClockWasAhead starts with certificates and a path token that were made when the clock was a
// year ahead.
func TestClockWasAhead(t *testing.T) {
	inStand(t, func(s *stand) {
		ahead := time.Now().AddDate(1, 0, 0)
		data := secretDataOf(t, ahead, DefaultCALife, time.Hour, serviceHost)
		old := token{pathtoken.New(), ahead}
		data[pathTokensKey] = encodeTokens([]token{old})
		s.create("secrets", &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "fastadmit", Name: "certs"}, Data: data})
		s.startRegistered(2, s.withTokens())
		api := s.callers(0)
		api.call(10*time.Minute, 15*time.Second)
		api.check()
		have, err := parseTokens(s.secret()[pathTokensKey])
		if err != nil || len(have) != 1 || have[0].text == old.text {
			t.Errorf("got %d path tokens, %v, want a new one", len(have), err)
		}
	})
}

// TestClocksDiffer has replicas whose clocks are years ahead or behind, and one whose clock jumps.
// They follow the clock of the API server: no certificate is replaced that is valid, and no call
// fails.
func TestClocksDiffer(t *testing.T) {
	inStand(t, func(s *stand) {
		const year = 365 * 24 * time.Hour
		var jump atomic.Int64
		is := func(ahead time.Duration) func() time.Duration { return func() time.Duration { return ahead } }
		s.ahead = []func() time.Duration{is(0), is(year), is(-year), func() time.Duration { return time.Duration(jump.Load()) }}
		o := s.withTokens()
		s.startRegistered(4, o)
		leaf := s.replicas[0].leaf()
		api := s.callers(0, DefaultPropagation-5*time.Second)
		api.call(2*time.Minute, time.Minute)
		for _, to := range []time.Duration{time.Hour, -time.Hour, year, -year, 0} {
			jump.Store(int64(to))
			api.call(6*time.Minute, 15*time.Second)
		}
		api.check()
		for i, r := range s.replicas {
			if !r.leaf().Equal(leaf) {
				t.Errorf("replica %d serves another leaf, want that of the start", i)
			}
			if n := len(r.log.lines("the clock of this machine differs")); n != []int{0, 1, 1, 1}[i] {
				t.Errorf("replica %d: got %d lines about its clock", i, n)
			}
		}
	})
}

// TestSecretMayNotBeCreated deletes the Secret where fastadmit may not create one, as with the rules
// of the chart. Replicas continue to serve, log what to do, and write what they serve into an empty
// Secret.
func TestSecretMayNotBeCreated(t *testing.T) {
	forbidden := func(verb, resource string) error {
		if verb != "create" || resource != "secrets" {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rule"))
	}
	inStand(t, func(s *stand) {
		empty := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "fastadmit", Name: "certs"}}
		s.create("secrets", empty)
		s.refuseIf(forbidden)
		s.startRegistered(2, s.options())
		ca, leaf := s.ca(), s.replicas[0].leaf()
		api := s.callers(0, DefaultPropagation-5*time.Second)
		api.call(2*time.Minute, time.Minute)
		s.remove("secrets", "certs")
		api.call(5*time.Minute, 15*time.Second)
		api.check()
		const want = "there is no Secret certs, and fastadmit may not create one: create it without data"
		for _, r := range s.replicas {
			if len(r.log.lines(want)) != 1 {
				t.Errorf("got %d lines with %q, want one", len(r.log.lines(want)), want)
			}
		}
		s.refuseIf(nil)
		s.create("secrets", empty)
		s.refuseIf(forbidden)
		s.settle(2 * time.Minute)
		if !s.ca().Equal(ca) || !s.replicas[0].leaf().Equal(leaf) || !s.replicas[1].leaf().Equal(leaf) {
			t.Error("the Secret was filled with other certificates than were served")
		}
	})
}

// secretData returns data for the Secret as another tool could write them.
func secretData(t *testing.T, caLife, leafLife time.Duration, hosts ...string) map[string][]byte {
	t.Helper()
	return secretDataOf(t, time.Now(), caLife, leafLife, hosts...)
}

// secretDataOf is secretData of a clock.
func secretDataOf(t *testing.T, now time.Time, caLife, leafLife time.Duration, hosts ...string) map[string][]byte {
	t.Helper()
	ca, signer, err := newAuthority(caLife, now)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := newLeaf(ca, signer, hosts, leafLife, now)
	if err != nil {
		t.Fatal(err)
	}
	data := make(map[string][]byte)
	if err := (&state{cas: []*x509.Certificate{ca}, signer: signer, leaf: leaf}).put(data); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSecretIsReplaced has a user replace the CA and the leaf, because the old ones are no
// longer trusted.
func TestSecretIsReplaced(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(3, s.options())
		before := s.ca()
		api := s.callers(0, DefaultPropagation-5*time.Second)
		api.call(2*time.Minute, time.Minute)
		s.putSecret(secretData(t, 24*time.Hour, 12*time.Hour, serviceHost))
		after := s.ca()
		api.call(30*time.Second, 5*time.Second)
		if !equal(s.registered(), after, before) {
			t.Errorf("got %d CAs in the bundles, want both", len(s.registered()))
		}
		api.call(2*time.Minute, 5*time.Second)
		for _, r := range s.replicas {
			if r.leaf().CheckSignatureFrom(after) != nil {
				t.Errorf("%s does not serve the new leaf", r.address)
			}
		}
		api.call(2*time.Minute, 5*time.Second)
		if !equal(s.registered(), after) {
			t.Errorf("got %d CAs in the bundles, want the new one only", len(s.registered()))
		}
		api.check()
		for _, r := range s.replicas {
			if got := r.log.lines("repaired"); got != nil || s.count("update", "secrets") != 1 {
				t.Errorf("got %q and %d updates, want that it was taken as it is", got, s.count("update", "secrets"))
			}
		}
	})
}

// TestRestarts replaces all replicas, one after the other, at the worst time.
func TestRestarts(t *testing.T) {
	inStand(t, func(s *stand) {
		restarts := 6
		if testing.Short() {
			restarts = 3
		}
		s.startRegistered(3, s.options())
		api := s.callers(0, DefaultPropagation-5*time.Second)
		api.call(time.Until(due(s.ca())), 5*time.Minute)
		for range restarts {
			s.replicas[0].stop()
			s.start(s.options())
			s.settle(time.Second)
			api.call(30*time.Second, 5*time.Second)
		}
		api.call(5*time.Minute, 5*time.Second)
		api.check()
		for _, r := range s.replicas {
			if r.leaf().CheckSignatureFrom(s.ca()) != nil {
				t.Errorf("%s does not serve a leaf of the new CA", r.address)
			}
		}
	})
}

// TestLateWakeUp has no replica run until all certificates have expired.
func TestLateWakeUp(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.options())
		s.replicas[0].stop()
		s.settle(24 * time.Hour)
		s.startRegistered(2, s.options())
		if !equal(s.registered(), s.ca()) {
			t.Errorf("got %d CAs in the bundles, want the new one only", len(s.registered()))
		}
		api := s.callers(0)
		api.call(time.Minute, 5*time.Second)
		api.check()
	})
}

// TestHostsDiffer has replicas of two versions with different host names.
func TestHostsDiffer(t *testing.T) {
	inStand(t, func(s *stand) {
		first, second := s.options(), s.options()
		first.Hosts = []string{serviceHost, "a.svc", "192.0.2.1"}
		second.Hosts = []string{serviceHost, "b.svc"}
		s.start(first)
		s.start(second)
		s.settle(10 * time.Minute)
		for _, host := range []string{serviceHost, "a.svc", "b.svc", "192.0.2.1"} {
			for _, r := range s.replicas {
				if err := r.leaf().VerifyHostname(host); err != nil {
					t.Error(err)
				}
			}
		}
		if n := s.count("update", "secrets"); n != 1 {
			t.Errorf("got %d updates, want one that settles it", n)
		}
	})
}

// TestAPIServerIsAway checks that nothing changes while the API server is away.
func TestAPIServerIsAway(t *testing.T) {
	inStand(t, func(s *stand) {
		s.away()
		r := s.start(s.options())
		s.settle(time.Minute)
		if err := r.ready(); err == nil || !strings.Contains(err.Error(), "none yet: cannot read Secret certs: ") {
			t.Errorf("got %v, want not ready and why", err)
		}
		if _, err := r.Certificate(nil); err == nil {
			t.Error("got a certificate that no other replica can know")
		}
		if got := r.log.lines("resource=secret"); len(got) != 1 {
			t.Errorf("got %q, want the fault once", got)
		}
		s.refuseIf(nil)
		s.settle(time.Minute)
		if err := r.ready(); err != nil {
			t.Error(err)
		}
		if got := r.log.lines("managed again"); len(got) != 3 {
			t.Errorf("got %q, want one line for each resource", got)
		}
		leaf := r.leaf()
		s.away()
		s.settle(time.Until(due(leaf)) + 10*time.Minute)
		if err := r.ready(); err != nil || !r.leaf().Equal(leaf) {
			t.Errorf("got %v without the API server, want ready with the same leaf", err)
		}
		s.refuseIf(nil)
		s.settle(15 * time.Second)
		if r.leaf().Equal(leaf) {
			t.Error("the leaf was not renewed when the API server was back")
		}
	})
}

// TestReady checks what makes a replica not ready, and that it becomes ready again.
func TestReady(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.options())
		r := s.replicas[0]
		fails := func(want string) {
			t.Helper()
			s.settle(2 * time.Second)
			if err := r.ready(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
		// Another owner takes over the field, and ours is not allowed to.
		s.refuseIf(func(verb, resource string) error {
			if verb == "patch" {
				return apierrors.NewForbidden(groupResource(resource), "fastadmit.io", errors.New("no"))
			}
			return nil
		})
		other := configurations("a")[1:]
		setAll(other, encodeBundle(parseBundle(secretData(t, time.Hour, time.Hour, "a")[caCertificates])))
		s.applyAs("gitops", true, other...)
		fails("not valid for " + serviceHost + " by the caBundle: x509: certificate signed by unknown authority")
		if got := r.metric(`fastadmit_certificate_expiry_timestamp_seconds{resource="registered"}`); got != "0" {
			t.Errorf("got expiry %s of a bundle that does not verify, want 0", got)
		}
		s.refuseIf(nil)
		s.settle(15 * time.Second)
		if err := r.ready(); err != nil {
			t.Error(err)
		}

		// The served certificate is read from the server, not from memory.
		r.ln.Close()
		s.settle(2 * time.Second)
		fails("cannot call itself: dial pod-0:8443: connection refused")
	})
}

// TestReadyIsAskedOften has many concurrent probes.
func TestReadyIsAskedOften(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.options())
		r := s.replicas[0]
		s.settle(2 * time.Second)
		calls := 0
		dial := r.o.Dial
		r.o.Dial = func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			calls++
			return dial(ctx, network, address)
		}
		for range 100 {
			if err := r.ready(); err != nil {
				t.Fatal(err)
			}
		}
		if calls != 1 {
			t.Errorf("got %d calls in no time, want 1", calls)
		}
	})
}

func setAll(objects []runtime.Object, bundle []byte) {
	for _, o := range objects {
		switch o := o.(type) {
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			for i := range o.Webhooks {
				o.Webhooks[i].ClientConfig.CABundle = bundle
			}
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			for i := range o.Webhooks {
				o.Webhooks[i].ClientConfig.CABundle = bundle
			}
		}
	}
}

// applyAs applies objects as another field manager. It returns the last error.
func (s *stand) applyAs(manager string, force bool, objects ...runtime.Object) (last error) {
	s.t.Helper()
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			s.t.Fatal(err)
		}
		resource := mutating.resource
		if strings.Contains(string(text), validating.kind) {
			resource = validating.resource
		}
		if _, err := s.apply(resource, "fastadmit.io", text, manager, force); err != nil {
			last = err
		}
	}
	return last
}

// TestAllIsReplaced has a user replace the Secret and the bundles at once: the served
// certificate is no longer trusted, so the replicas do not wait.
func TestAllIsReplaced(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(2, s.options())
		data := secretData(t, 24*time.Hour, 12*time.Hour, serviceHost)
		s.putSecret(data)
		bundles := configurations("a")
		setAll(bundles, data[caCertificates])
		if err := s.applyAs("human", true, bundles...); err != nil {
			t.Fatal(err)
		}
		s.settle(5 * time.Second)
		for _, r := range s.replicas {
			if r.leaf().CheckSignatureFrom(s.ca()) != nil {
				t.Errorf("%s serves what is not trusted any more", r.address)
			}
			if err := r.ready(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSecretOfOthers has a Secret that cert-manager manages.
func TestSecretOfOthers(t *testing.T) {
	inStand(t, func(s *stand) {
		theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "certs", Annotations: map[string]string{certManager: "web"}}}
		theirs.Data = secretData(t, time.Hour, time.Hour, serviceHost)
		delete(theirs.Data, caKey)
		s.create("secrets", theirs)
		r := s.start(s.options())
		s.settle(time.Minute)
		const want = `cannot manage Secret certs: it belongs to cert-manager's Certificate "web"; `
		if err := r.ready(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
		if n := s.count("update", "secrets"); n != 0 {
			t.Errorf("got %d updates, want none", n)
		}
	})
}

// TestWatchIsRefused checks that changes are noticed without a watch, and that the missing
// watch is logged.
func TestWatchIsRefused(t *testing.T) {
	inStand(t, func(s *stand) {
		s.refuseIf(func(verb, resource string) error {
			if verb == "watch" {
				return apierrors.NewForbidden(groupResource(resource), "", errors.New("no"))
			}
			return nil
		})
		s.startRegistered(1, s.options())
		r := s.replicas[0]
		if got := r.log.lines("cannot watch"); len(got) != 3 || !strings.Contains(got[0], "forbidden") {
			t.Errorf("got %q, want a line for each of what is watched", got)
		}
		s.remove("secrets", "certs")
		s.settle(resync + time.Second)
		if s.secret() == nil {
			t.Error("the Secret is not back")
		}
	})
}

// TestConfigurationIsUnread checks that a configuration that cannot be read does not count
// as one with the new CA.
func TestConfigurationIsUnread(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.options())
		s.replicas[0].stop()
		s.settle(time.Until(due(s.ca())) + time.Minute)
		s.refuseIf(func(_, resource string) error {
			if resource == mutating.resource {
				return apierrors.NewForbidden(groupResource(resource), "fastadmit.io", errors.New("no"))
			}
			return nil
		})
		r := s.start(s.options())
		s.settle(10 * time.Minute)
		state, err := parseState(s.secret(), nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if state.issuer.Equal(state.cas[0]) || r.leaf().CheckSignatureFrom(state.cas[0]) == nil {
			t.Error("a leaf of the new CA was made, which not all are known to trust")
		}
		s.refuseIf(nil)
		s.settle(15*time.Second + DefaultPropagation)
		if r.leaf().CheckSignatureFrom(s.ca()) != nil {
			t.Error("no leaf of the new CA was made when all could be read")
		}
	})
}

// TestLeafIsRenewedBlindly has a leaf due while a configuration cannot be read: it is
// renewed, because a new one by the same CA is trusted wherever the old one is.
func TestLeafIsRenewedBlindly(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector, which finds nothing here that it does not find in TestRestarts")
	}
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.options())
		before := s.replicas[0].leaf()
		s.replicas[0].stop()
		s.refuseIf(func(_, resource string) error {
			if resource == mutating.resource {
				return apierrors.NewForbidden(groupResource(resource), "fastadmit.io", errors.New("no"))
			}
			return nil
		})
		s.start(s.options())
		s.start(s.options())
		s.settle(time.Until(due(before)) + 15*time.Second)
		for _, r := range s.replicas {
			if r.leaf().Equal(before) {
				t.Errorf("%s serves the leaf that is due", r.address)
			}
		}
	})
}

// TestSecretCannotBeWritten has an immutable Secret with invalid data.
func TestSecretCannotBeWritten(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.options())
		r := s.replicas[0]
		leaf := r.leaf()
		data := s.secret()
		data[caKey] = nil
		s.putSecret(data)
		s.refuseIf(func(verb, resource string) error {
			if verb == "update" {
				return apierrors.NewInvalid(testKinds[resource].GroupKind(), "certs", nil)
			}
			return nil
		})
		s.remove(validating.resource, "fastadmit.io")
		s.settle(15 * time.Second)
		if err := r.ready(); err != nil || !r.leaf().Equal(leaf) {
			t.Errorf("got %v, want ready with the same leaf", err)
		}
		if s.webhooks(validating.resource) == nil {
			t.Error("the configuration is not kept because the Secret cannot be")
		}
		if got := r.log.lines("cannot write Secret certs: "); len(got) != 1 || !strings.Contains(got[0], "is invalid") ||
			!strings.Contains(got[0], "ca.crt and ca.key: ") {
			t.Errorf("got %q, want one line with what is wrong and why it stays so", got)
		}
		if got := r.metric(`fastadmit_certificate_failures_total{resource="secret"}`); got == "0" {
			t.Error("no failure was counted")
		}
		fresh := s.start(s.options())
		s.settle(15 * time.Second)
		if err := fresh.ready(); err == nil || !strings.Contains(err.Error(), "is invalid") {
			t.Errorf("got %v, want a replica that is not ready because it has nothing in common with others", err)
		}
	})
}
