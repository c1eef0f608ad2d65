package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"
)

// TestEnds ends a replica during each of its requests. Errors after the end are neither
// logged nor counted, and the registration stays the same.
func TestEnds(t *testing.T) {
	f := func(verb, resource string, n int, within time.Duration) {
		t.Run(fmt.Sprintf("%s %s %d", verb, resource, n), func(t *testing.T) {
			inStand(t, func(s *stand) {
				o := s.withTokens()
				o.PathTokenLife = 8 * DefaultPropagation
				requests, atEnd := 0, ""
				started := make(chan *replica, 1)
				s.refuseIf(func(v, r string) error {
					if v == verb && r == resource {
						if requests++; requests == n {
							r := <-started
							atEnd = r.said()
							r.cancel()
							return errors.New("the replica has ended")
						}
					}
					return nil
				})
				r := s.start(o)
				started <- r
				s.settle(within)
				if requests != n {
					t.Fatalf("got %d requests, want %d and then the end", requests, n)
				}
				if got := r.said(); got != atEnd {
					t.Errorf("after the end: got\n%s\nwant\n%s", got, atEnd)
				}
			})
		})
	}
	for n := 1; n <= 3; n++ {
		f("get", "secrets", n, time.Minute)
		f("get", "validatingwebhookconfigurations", n, time.Minute)
	}
	f("create", "secrets", 1, time.Minute)
	f("patch", "validatingwebhookconfigurations", 1, time.Minute)
	for n := 1; n <= 6; n++ {
		f("get", "services", n, 20*time.Minute)
	}
}

// TestListenEnds ends a Manager while the API server refuses a watch, which is not logged.
func TestListenEnds(t *testing.T) {
	inStand(t, func(s *stand) {
		o, log := s.options(), new(logged)
		o.Log = slog.New(slog.NewTextHandler(log, nil))
		m, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		s.refuseIf(func(string, string) error {
			cancel()
			return errors.New("the replica has ended")
		})
		m.listen(ctx, secretsPath("fastadmit"), "certs")
		if got := log.lines(""); got != nil {
			t.Errorf("got %q", got)
		}
	})
}

// said returns all failures that a replica reports: its warnings, counters, and
// registration.
func (r *replica) said() string {
	said := fmt.Sprintf("registered: %v\n%q\n", r.Registered(), r.log.lines("level=WARN"))
	for _, resource := range resources {
		series := fmt.Sprintf("fastadmit_certificate_failures_total{resource=%q}", resource)
		said += series + " " + r.metric(series) + "\n"
	}
	return said
}
