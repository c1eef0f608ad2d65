package certs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// digest is the digest of all replicas.
const digest = "one"

// awaiter returns a Manager that only waits for the registration, and its log.
func (s *stand) awaiter(o Options) *Manager {
	s.t.Helper()
	o.Dial = s.dial
	m, err := New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// TestAwaitRegistered starts before there is a replica, and ends when both kinds are
// registered.
func TestAwaitRegistered(t *testing.T) {
	for name, options := range map[string]func(s *stand) Options{"bare": (*stand).options, "path token": (*stand).withTokens} {
		t.Run(name, func(t *testing.T) {
			inStand(t, func(s *stand) {
				o := options(s)
				o.Configuration = digest
				ended := make(chan error, 1)
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
				defer cancel()
				go func() { ended <- s.awaiter(o).AwaitRegistered(ctx) }()
				s.settle(time.Minute)
				if len(ended) != 0 {
					t.Fatalf("ended without a replica: %v", <-ended)
				}
				s.startRegistered(2, options(s))
				s.settle(10 * time.Second)
				select {
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Error("still waiting")
				}
				if got := s.count("patch", mutating.resource) + s.count("update", "secrets"); got != 0 {
					t.Errorf("got %d writes, want those of the replicas alone", got)
				}
			})
		})
	}
}

// TestAwaitSaysWhy has a wrong registration without a replica that repairs it.
func TestAwaitSaysWhy(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds with the race detector; TestRestarts has such replicas, too")
	}
	f := func(want string, spoil func(s *stand, o *Options)) {
		t.Run(want, func(t *testing.T) {
			inStand(t, func(s *stand) {
				o := s.withTokens()
				s.startRegistered(1, o)
				s.replicas[0].cancel() // it still serves
				s.settle(time.Second)
				token := s.token()
				o = s.withTokens()
				spoil(s, &o)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := s.awaiter(o).AwaitRegistered(ctx); err == nil || !strings.Contains(err.Error(), want) ||
					strings.Contains(err.Error(), token) {
					t.Errorf("got %v, want %s", err, want)
				}
			})
		})
	}
	// changed registers fastadmit's configurations with one change.
	changed := func(s *stand, change func(c *admissionregistrationv1.WebhookClientConfig)) {
		objects := configurations("a", "b")
		v := objects[1].(*admissionregistrationv1.ValidatingWebhookConfiguration)
		for i := range v.Webhooks {
			v.Webhooks[i].ClientConfig = s.webhooks(validating.resource)[v.Webhooks[i].Name].ClientConfig
		}
		change(&v.Webhooks[1].ClientConfig)
		s.remove(validating.resource, "fastadmit.io")
		s.create(validating.resource, v)
	}
	f("MutatingWebhookConfiguration other: there is none", func(_ *stand, o *Options) {
		o.Configurations[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Name = "other"
	})
	f("webhook c.fastadmit.io is missing", func(_ *stand, o *Options) { o.Configurations = withPlaceholder("a", "b", "c") })
	f("webhook b.fastadmit.io is missing or has other rules", func(_ *stand, o *Options) {
		webhooks := o.Configurations[1].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks
		webhooks[1].Rules = []admissionregistrationv1.RuleWithOperations{{}}
	})
	f("webhook b.fastadmit.io: it has no caBundle", func(s *stand, _ *Options) {
		changed(s, func(c *admissionregistrationv1.WebhookClientConfig) { c.CABundle = nil })
	})
	f("webhook b.fastadmit.io: fastadmit.fastadmit.svc:443: the certificate that is served is not valid", func(s *stand, _ *Options) {
		other := secretData(t, time.Hour, time.Hour, "a")[caCertificates]
		changed(s, func(c *admissionregistrationv1.WebhookClientConfig) { c.CABundle = other })
	})
	f("a replica does not take the path token: got 401", func(s *stand, _ *Options) {
		changed(s, func(c *admissionregistrationv1.WebhookClientConfig) {
			c.Service.Path = new("/" + strings.Repeat("z", 26) + "/b")
		})
	})
	f("a replica has not read the configuration yet, or refuses it: got \"one\", want \"another\"",
		func(_ *stand, o *Options) { o.Configuration = "another" })
	f("no endpoints", func(s *stand, _ *Options) { s.cutOff.Store(true) })
	f("there is no Service fastadmit/fastadmit", func(s *stand, _ *Options) { s.remove("services", "fastadmit") })
	f("cannot read MutatingWebhookConfiguration fastadmit.io", func(s *stand, _ *Options) { s.away() })
}

// late is a context whose deadline has passed, but whose timer has not run yet.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Now(), true }

// TestAwaitEndsAtDeadline has a call that ends at the deadline before the context does: the
// message must not contain the error of this call.
func TestAwaitEndsAtDeadline(t *testing.T) {
	inStand(t, func(s *stand) {
		s.away()
		ctx, cancel := context.WithCancel(context.Background()) // of this bubble
		defer cancel()
		if err := s.awaiter(s.options()).AwaitRegistered(late{ctx}); err == nil || !strings.Contains(err.Error(), "cannot read") {
			t.Errorf("got %v, want the first thing that is missing", err)
		}
		if ended(ctx) {
			t.Error("got the end of a context without a deadline")
		}
	})
}

// TestCovers distinguishes defaults of kube-apiserver from changes by users.
func TestCovers(t *testing.T) {
	f := func(got, want string, covered bool) {
		t.Helper()
		if covers(decoded(t, got), decoded(t, want)) != covered {
			t.Errorf("%s covers %s: got %v, want %v", got, want, !covered, covered)
		}
	}
	f(`[{"operations":["CREATE"],"scope":"*"}]`, `[{"operations":["CREATE"]}]`, true)
	f(`[{"operations":["CREATE","UPDATE"]}]`, `[{"operations":["CREATE"]}]`, false)
	f(`[{"operations":["UPDATE"]}]`, `[{"operations":["CREATE"]}]`, false)
	f(`[]`, `[{"operations":["CREATE"]}]`, false)
	f(`null`, `[{"operations":["CREATE"]}]`, false)
	f(`null`, `null`, true)
	f(`[{"scope":"*"}]`, `[{"scope":"Namespaced"}]`, false)
}

func decoded(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", text, err))
	}
	return value
}
