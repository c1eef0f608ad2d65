package certs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestAddressOf resolves Services as ResolveCluster of k8s.io/apiserver
// pkg/util/proxy does.
func TestAddressOf(t *testing.T) {
	f := func(change func(s *corev1.Service), want, wantErr string) {
		t.Helper()
		s := clusterIP("10.96.0.7", 80, 443)
		change(s)
		got, err := (service{"fastadmit", "fastadmit", 443}).addressOf(s)
		if got != want || (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("got %q, %v, want %q, %q", got, err, want, wantErr)
		}
	}
	f(func(*corev1.Service) {}, "10.96.0.7:443", "")
	f(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }, "10.96.0.7:443", "")
	f(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }, "10.96.0.7:443", "")
	f(func(s *corev1.Service) { s.Spec.ClusterIP = "2001:db8::7" }, "[2001:db8::7]:443", "")
	f(func(s *corev1.Service) {
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "webhook.example.com"}
	}, "webhook.example.com:443", "")
	f(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, "", "got clusterIP None, want one with a cluster IP")
	f(func(s *corev1.Service) { s.Spec.ClusterIP = "" }, "", "got no clusterIP")
	f(func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }, "", "got ports [80], want port 443")
	f(func(s *corev1.Service) { s.Spec.Type = "Other" }, "", `got type "Other"`)
}

// TestNotReached checks that the log names the failed step to the server, and that replicas
// register as soon as it works.
func TestNotReached(t *testing.T) {
	f := func(want string, spoil func(s *stand) (repair func())) {
		t.Run(want, func(t *testing.T) {
			inStand(t, func(s *stand) {
				repair := spoil(s)
				r := s.start(s.options())
				s.settle(20 * time.Second)
				if got := r.log.lines("not applying ValidatingWebhookConfiguration fastadmit.io yet"); len(got) == 0 ||
					!strings.Contains(got[0], want) {
					t.Errorf("got %q, want why", got)
				}
				if s.webhooks(mutating.resource) != nil || s.webhooks(validating.resource) != nil {
					t.Error("got webhooks that cannot be called")
				}
				if err := r.ready(); err != nil {
					t.Errorf("got %v, want it ready: it becomes an endpoint of its Service by that", err)
				}
				repair()
				s.settle(20 * time.Second)
				if s.webhooks(mutating.resource) == nil || s.webhooks(validating.resource) == nil {
					t.Error("not registered after the repair")
				}
			})
		})
	}
	replaced := func(with *corev1.Service) func(s *stand) func() {
		return func(s *stand) func() {
			s.remove("services", "fastadmit")
			if with != nil {
				s.create("services", with)
			}
			return func() {
				if with != nil {
					s.remove("services", "fastadmit")
				}
				s.create("services", clusterIP("10.96.0.7", 443))
			}
		}
	}
	f("there is no Service fastadmit/fastadmit", replaced(nil))
	f("got ports [8443], want port 443", replaced(clusterIP("10.96.0.7", 8443)))
	f("got clusterIP None", replaced(clusterIP(corev1.ClusterIPNone, 443)))
	f("cannot connect to Service fastadmit/fastadmit: dial 10.96.0.8:443: connection refused", replaced(clusterIP("10.96.0.8", 443)))
	f("cannot connect to Service fastadmit/fastadmit: no endpoints", func(s *stand) func() {
		s.cutOff.Store(true)
		return func() { s.cutOff.Store(false) }
	})
	f("cannot read Service fastadmit/fastadmit: ", func(s *stand) func() {
		s.refuseIf(func(_, resource string) error {
			if resource == "services" {
				return apierrors.NewForbidden(groupResource(resource), "fastadmit", errors.New("no rule"))
			}
			return nil
		})
		return func() { s.refuseIf(nil) }
	})
}

// TestResolvedOnce checks that the Service is read once per pass, however often it is
// called.
func TestResolvedOnce(t *testing.T) {
	inStand(t, func(s *stand) {
		s.startRegistered(1, s.options())
		r, asked := s.replicas[0], 0
		r.cancel()
		s.settle(time.Second)
		s.refuseIf(func(verb, resource string) error {
			if verb == "get" && resource == "services" {
				asked++
			}
			return nil
		})
		for want := 1; want <= 2; want++ {
			clear(r.addresses) // as at the start of each pass
			for _, registered := range slices.Concat(r.registrations, r.registrations) {
				if err := r.reach(context.Background(), registered.desired); err != nil {
					t.Error(err)
				}
			}
			if asked != want {
				t.Errorf("pass %d: got the Service asked for %d times, want %d", want, asked, want)
			}
		}
	})
}
