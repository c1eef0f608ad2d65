package certs

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// events returns the Events, the oldest first.
func (s *stand) events() (all []corev1.Event) {
	s.t.Helper()
	s.apiServer.mu.Lock()
	defer s.apiServer.mu.Unlock()
	for key, object := range s.objects {
		if !strings.HasPrefix(key, "events/") {
			continue
		}
		var event corev1.Event
		text, err := json.Marshal(object.Object)
		if err == nil {
			err = json.Unmarshal(text, &event)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, event)
	}
	slices.SortFunc(all, func(a, b corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	return all
}

// withDeployment creates the Deployment that Events are about.
func (s *stand) withDeployment() Options {
	s.create("deployments", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "fastadmit", Name: "fastadmit"}})
	o := s.options()
	o.Deployment = "fastadmit"
	return o
}

// TestReport has two replicas report that they are not registered, by Registered, a metric,
// and one Event at a time; later they are registered and report that.
func TestReport(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector, which finds nothing here that it does not find in TestRestarts")
	}
	inStand(t, func(s *stand) {
		o := s.withDeployment()
		s.remove("services", "fastadmit")
		s.start(o)
		o.Metrics = s.options().Metrics
		s.start(o)
		check := func(want string) {
			t.Helper()
			for _, r := range s.replicas {
				err, value := r.Registered(), "1"
				if want != "" {
					value = "0"
				}
				if got := r.metric("fastadmit_registered"); got != value {
					t.Errorf("got fastadmit_registered %s, want %s", got, value)
				}
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
				if err := r.ready(); err != nil {
					t.Errorf("got %v, want it ready", err)
				}
			}
		}
		s.settle(eventAfter - time.Second)
		check("there is no Service fastadmit/fastadmit")
		if got := s.events(); len(got) != 0 {
			t.Errorf("got Events %v before it failed for %s", got, eventAfter)
		}
		s.settle(20 * time.Second)
		got := s.events()
		if len(got) != 1 {
			t.Fatalf("got %d Events, want one of both replicas", len(got))
		}
		deployment, err := s.get("deployments", "fastadmit")
		if err != nil {
			t.Fatal(err)
		}
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		e := got[0]
		if o := e.InvolvedObject; o.Kind != "Deployment" || o.APIVersion != "apps/v1" || o.Name != "fastadmit" ||
			o.Namespace != e.Namespace || o.UID != deployment.GetUID() {
			t.Errorf("got an Event about %v, want the Deployment", o)
		}
		if e.Type != corev1.EventTypeWarning || e.Reason != "NotRegistered" ||
			!strings.HasPrefix(e.Message, host+": kube-apiserver does not call") ||
			!strings.Contains(e.Message, "there is no Service fastadmit/fastadmit") || e.FirstTimestamp.IsZero() ||
			e.LastTimestamp.IsZero() || e.Count != 1 {
			t.Errorf("got Event %v", e)
		}
		s.settle(time.Hour)
		// The first one is in the middle of an interval.
		if got, want := len(s.events()), int(time.Hour/eventEvery); got != want && got != want+1 {
			t.Errorf("got %d Events in an hour, want %d", got, want)
		}
		before := len(s.events())
		s.create("services", clusterIP("10.96.0.7", 443))
		s.settle(20 * time.Second)
		check("")
		got = s.events()
		if e := got[len(got)-1]; len(got) != before+1 || e.Reason != "Registered" || e.Type != corev1.EventTypeNormal {
			t.Errorf("got Event %v, want one that it is registered", e)
		}
		s.settle(time.Hour)
		if got := s.events(); len(got) != before+1 {
			t.Errorf("got %d Events more of what works", len(got)-before-1)
		}
	})
}

// TestReportOf checks the reports of incomplete registrations.
func TestReportOf(t *testing.T) {
	forbid := func(verb, resource string) func(verb, resource string) error {
		return func(v, r string) error {
			if v == verb && r == resource {
				return apierrors.NewForbidden(groupResource(resource), "fastadmit.io", errors.New("no rule"))
			}
			return nil
		}
	}
	f := func(name, want string, change func(s *stand, o *Options)) {
		t.Run(name, func(t *testing.T) {
			inStand(t, func(s *stand) {
				o := s.withDeployment()
				change(s, &o)
				r := s.start(o)
				s.settle(30 * time.Second)
				got := ""
				if err := r.Registered(); err != nil {
					got = err.Error()
				}
				if want == "" && got != "" || !strings.Contains(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				if (len(s.events()) > 0) != (want != "" && o.Deployment != "") {
					t.Errorf("got Events %v", s.events())
				}
			})
		})
	}
	f("nothing", "", func(*stand, *Options) {})
	f("no webhooks", "", func(_ *stand, o *Options) { o.Configurations = configurations() })
	f("others", "there is no MutatingWebhookConfiguration theirs", func(_ *stand, o *Options) {
		o.Configurations, o.MutatingWebhookConfigurations = nil, []string{"theirs"}
	})
	f("no Deployment named", "there is no MutatingWebhookConfiguration theirs", func(_ *stand, o *Options) {
		o.Configurations, o.MutatingWebhookConfigurations, o.Deployment = nil, []string{"theirs"}, ""
	})
	f("apply", "cannot apply ValidatingWebhookConfiguration fastadmit.io",
		func(s *stand, _ *Options) { s.refuseIf(forbid("patch", validating.resource)) })
	f("read", "cannot read MutatingWebhookConfiguration fastadmit.io",
		func(s *stand, _ *Options) { s.refuseIf(forbid("get", mutating.resource)) })
	f("Secret", "cannot read Secret certs", func(s *stand, _ *Options) { s.refuseIf(forbid("get", "secrets")) })
	r := new(Manager)
	if err := r.Registered(); err == nil {
		t.Error("got that it is registered before anything was asked")
	}
}

// TestNoEvents has no Deployment, and then no permission for Events: the log says so once,
// and everything else works.
func TestNoEvents(t *testing.T) {
	f := func(want string, spoil func(s *stand)) {
		t.Run(want, func(t *testing.T) {
			inStand(t, func(s *stand) {
				o := s.withDeployment()
				s.remove("services", "fastadmit")
				spoil(s)
				r := s.start(o)
				s.settle(10 * time.Minute)
				if got := r.log.lines("cannot create an Event"); len(got) != 1 || !strings.Contains(got[0], want) {
					t.Errorf("got %q, want %s once", got, want)
				}
				s.create("services", clusterIP("10.96.0.7", 443))
				s.settle(20 * time.Second)
				if err := r.Registered(); err != nil {
					t.Error(err)
				}
			})
		})
	}
	f("cannot read Deployment fastadmit/fastadmit: there is none", func(s *stand) { s.remove("deployments", "fastadmit") })
	f("cannot create an Event in namespace fastadmit", func(s *stand) {
		s.refuseIf(func(verb, resource string) error {
			if resource == "events" {
				return apierrors.NewForbidden(groupResource(resource), "", errors.New("no rule"))
			}
			return nil
		})
	})
}

func TestTruncate(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := truncate(text, 6); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	f("", "")
	f("abcde", "abcde")
	f("abcdef", "abcdef")
	f("abcdefg", "abc...")
	f("abäaaaa", "ab...")
}
