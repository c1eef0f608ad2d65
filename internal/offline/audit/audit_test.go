package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/offline/review"
)

// seen are the fields of a review that a plugin got.
type seen struct {
	name, user, object, old string
	operation               codec.Operation
}

// watcher returns a plugin that denies objects with the label deny, and sends its reviews to got.
func watcher(got chan<- seen) admission.Plugin {
	return admission.Plugin{
		Name: "Watcher", Rules: []admission.Rule{admission.Any()}, Validates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: func(_ context.Context, r *codec.Review) admission.Result {
				if got != nil {
					got <- seen{
						strings.Clone(r.Name()), strings.Clone(r.UserInfo().Get("username").String()),
						string(r.Object.Root().AppendJSON(nil)), string(r.OldObject.Root().AppendJSON(nil)),
						codec.Operation(strings.Clone(string(r.Operation()))),
					}
				}
				if r.Object.Get("metadata", "labels", "deny").IsSet() {
					return admission.Denied(admission.Forbidden(r, errors.New("it has the label")))
				}
				return admission.Allowed()
			}}, nil
		},
	}
}

func chainOf(t testing.TB, plugin admission.Plugin) *admission.Chain {
	t.Helper()
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// labelled are namespaces with their labels.
type labelled map[string]labels.Set

// Labels implements match.Namespaces.
func (l labelled) Labels(_ context.Context, name string) (labels.Set, error) { return l[name], nil }

func (s *stand) options(chain *admission.Chain, resources ...string) Options {
	return Options{
		Review: review.Options{Chain: chain, Operation: codec.Create, User: review.User{Username: "admin"}, DryRun: true},
		Config: s.config(), PageSize: 3, NamespaceLabels: labelled{"ns1": {"left": "out"}},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"*"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: resources},
			}},
		}},
		retries: wait.Backoff{Duration: time.Nanosecond, Steps: attemptsMax},
	}
}

// run returns the results of an audit: a line for each object.
func run(t *testing.T, o Options) []string {
	t.Helper()
	var lines []string
	err := Run(t.Context(), o, func(r *report.Result) error {
		lines = append(lines, strings.TrimSpace(r.Object()+" "+string(r.Decision)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// wantPods returns the lines for allowed pods.
func wantPods(n int) (lines []string) {
	for _, pod := range pods(n) {
		lines = append(lines, "Pod "+keyOf([]byte(pod))+" allowed")
	}
	return lines
}

// TestRun checks which objects are listed, in which order, and their results.
func TestRun(t *testing.T) {
	for n := range 11 {
		s := newStand(t)
		s.lists["/api/v1/pods"] = pods(n)
		if got := run(t, s.options(chainOf(t, watcher(nil)), "pods")); !slices.Equal(got, wantPods(n)) {
			t.Errorf("%d pods: got %q", n, got)
		}
		if want := max(1, (n+2)/3); s.requests != want {
			t.Errorf("%d pods: got %d pages, want %d", n, s.requests, want)
		}
	}
	s := newStand(t)
	s.lists["/api/v1/namespaces"] = []string{`{"metadata":{"name":"ns0"}}`, `{"metadata":{"name":"ns1","labels":{"left":"out"}}}`}
	s.lists["/api/v1/pods"] = []string{
		`{"metadata":{"name":"a","namespace":"ns0","labels":{"deny":""}}}`,
		`{"metadata":{"name":"b","namespace":"ns0","deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"deny":""}}}`,
		`{"metadata":{"name":"c","namespace":"ns1","labels":{"deny":""}}}`,
	}
	s.lists["/apis/example.com/v1/things"] = []string{
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","namespace":"ns0"}}`,
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"b","namespace":"ns0"}}`,
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"c","namespace":"ns0"}}`,
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"d","namespace":"ns0"}}`,
	}
	s.custom["/apis/example.com/v1/things"] = true
	o := s.options(chainOf(t, watcher(nil)), "*/*")
	o.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "left",
		Operator: "DoesNotExist"}}}
	want := []string{
		"Namespace ns0 allowed", "Namespace ns1 skipped", "Pod ns0/a denied", "Pod ns0/b skipped", "Pod ns1/c skipped",
		"Thing ns0/a allowed", "Thing ns0/b allowed", "Thing ns0/c allowed", "Thing ns0/d allowed",
	}
	if got := run(t, o); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s.lists["/api/v1/namespaces/ns0/pods"] = s.lists["/api/v1/pods"][:2]
	s.lists["/apis/example.com/v1/namespaces/ns0/things"] = s.lists["/apis/example.com/v1/things"][:1]
	o.Namespaces = []string{"ns0"}
	if got, want := run(t, o), []string{"Pod ns0/a denied", "Pod ns0/b skipped", "Thing ns0/a allowed"}; !slices.Equal(got, want) {
		t.Errorf("one namespace: got %q, want %q", got, want)
	}
}

// TestFaults makes lists fail in every possible way. Each object is still reviewed exactly
// once.
func TestFaults(t *testing.T) {
	const n = 10 // four pages
	half := func(w http.ResponseWriter, s *stand) {
		w.Header().Set("Content-Length", "100000") // of which there is less
		fmt.Fprintf(w, `{"kind":"PodList","metadata":{"continue":"ns0/p0003"},"items":[%s`, s.lists["/api/v1/pods"][0])
	}
	for name, fault := range map[string]func(s *stand, n int, w http.ResponseWriter, r *http.Request) bool{
		"expired": func(_ *stand, n int, w http.ResponseWriter, r *http.Request) bool {
			if n == 2 || n == 4 {
				refuse(w, http.StatusGone, metav1.StatusReasonExpired, r.URL.Query().Get("continue"))
			}
			return n == 2 || n == 4
		},
		"expired, begin anew": func(_ *stand, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 3 {
				refuse(w, http.StatusGone, metav1.StatusReasonExpired, "")
			}
			return n == 3
		},
		"broken off within a page": func(s *stand, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 1 {
				half(w, s)
			}
			return n == 1
		},
		"not available": func(_ *stand, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n == 2 || n == 3 {
				refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "")
			}
			return n == 2 || n == 3
		},
		"a connection that closes": func(_ *stand, n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n == 3 {
				panic(http.ErrAbortHandler)
			}
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.lists["/api/v1/pods"] = pods(n)
			s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool { return fault(s, n, w, r) }
			if got := run(t, s.options(chainOf(t, watcher(nil)), "pods")); !slices.Equal(got, wantPods(n)) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestAttempts checks that an audit gives up a list after attemptsMax failures, and reports it.
func TestAttempts(t *testing.T) {
	for _, failing := range []int{attemptsMax - 1, attemptsMax, attemptsMax + 1} {
		s := newStand(t)
		s.lists["/api/v1/pods"], s.lists["/apis/example.com/v1/things"] = pods(4), nil
		s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
			fails := strings.HasSuffix(r.URL.Path, "pods") && n > 1 && n <= 1+failing
			if fails {
				refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "")
			}
			return fails
		}
		want := wantPods(4)
		if failing > attemptsMax {
			want = append(want[:3], "Pod broken")
		}
		if got := run(t, s.options(chainOf(t, watcher(nil)), "pods", "things")); !slices.Equal(got, want) {
			t.Errorf("%d failures: got %q, want %q", failing, got, want)
		}
	}
}

// TestForbidden checks that an audit continues with the resources that it may list.
func TestForbidden(t *testing.T) {
	s := newStand(t)
	s.lists["/api/v1/namespaces"], s.lists["/api/v1/pods"] = nil, pods(1)
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "namespaces") {
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, "")
			return true
		}
		return false
	}
	delete(s.documents, "/apis/example.com/v1") // as if an aggregated API server were down
	s.documents["/apis/example.com/v1beta1"] = "no JSON"
	o := s.options(chainOf(t, watcher(nil)), "*")
	var results []*report.Result
	if err := Run(t.Context(), o, func(r *report.Result) error { results = append(results, r); return nil }); err != nil {
		t.Fatal(err)
	}
	if s.requests != 2 || len(results) != 3 ||
		!strings.Contains(results[0].Message, "cannot ask the API server for the resources of example.com/v1beta1") ||
		!strings.Contains(results[1].Message, "cannot list namespaces after 0 objects: the stand says Forbidden") ||
		results[2].Decision != report.Allowed {
		t.Errorf("got %d requests and %+v", s.requests, results)
	}
	if err := Run(t.Context(), newStand(t).options(chainOf(t, watcher(nil)), "unheard"), nil); err == nil || !strings.Contains(err.Error(),
		"there is nothing to review") {
		t.Errorf("got %v", err)
	}
	s.server.Close()
	if err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), "cannot ask the API server which resources it has") {
		t.Errorf("got %v", err)
	}
}

// TestStops checks that an error of the caller's function ends the audit.
func TestStops(t *testing.T) {
	s := newStand(t)
	s.lists["/api/v1/pods"] = pods(100)
	o, stop, calls := s.options(chainOf(t, watcher(nil)), "pods"), errors.New("stop"), 0
	err := Run(t.Context(), o, func(*report.Result) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("got %v and %d calls", err, calls)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	err = Run(ctx, o, func(*report.Result) error { cancel(stop); return nil })
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

// TestReviews checks the reviews that plugins get.
func TestReviews(t *testing.T) {
	s := newStand(t)
	s.lists["/api/v1/pods"] = []string{
		`{"metadata":{"name":"a","namespace":"ns0","uid":"u","resourceVersion":"9","generation":3,` +
			`"creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{}],` +
			`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n"},{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r",` +
			`"controller":true}]},"spec":{},"status":{"phase":"Running"}}`,
		`{}`,
	}
	got := make(chan seen, 2)
	o := s.options(chainOf(t, watcher(got)), "pods")
	o.Review.TrustOwners = true
	var results []*report.Result
	emit := func(r *report.Result) error { results = append(results, r); return nil }
	if err := Run(t.Context(), o, emit); err != nil {
		t.Fatal(err)
	}
	byName := map[string]seen{}
	for range 2 {
		one := <-got
		byName[one.name] = one
	}
	const owners = `"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n"},{"apiVersion":"apps/v1","kind":"ReplicaSet",` +
		`"name":"r","controller":true}]`
	want := seen{"a", "system:serviceaccount:kube-system:replicaset-controller",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns0",` + owners + `},"spec":{}}`, "", codec.Create}
	if byName["a"] != want {
		t.Errorf("got %+v, want %+v", byName["a"], want)
	}
	if one := byName[""]; one.object != `{"kind":"Pod","apiVersion":"v1"}` || one.user != "admin" {
		t.Errorf("got %+v", one)
	}
	if r := results[0]; r.UID != "u" || r.User != want.user {
		t.Errorf("got %+v", r)
	}
	o.Review.Operation = codec.Update
	s.lists["/api/v1/pods"] = s.lists["/api/v1/pods"][:1]
	if err := Run(t.Context(), o, emit); err != nil {
		t.Fatal(err)
	}
	one := <-got
	if one.operation != codec.Update || one.user != "admin" || one.object != one.old || !strings.Contains(one.object,
		`"resourceVersion":"9"`) {
		t.Errorf("got %+v", one)
	}
}

// TestKeyOf checks that the case of member names matters: objects of custom kinds may have other members
// whose names differ only in case.
func TestKeyOf(t *testing.T) {
	f := func(object, want string) {
		t.Helper()
		if got := keyOf([]byte(object)); got != want {
			t.Errorf("%s: got %q, want %q", object, got, want)
		}
	}
	f(`{"metadata":{"name":"a","namespace":"b"}}`, "b/a")
	f(`{"metadata":{"name":"a"}}`, "a")
	f(`{"metadata":{"name":"a","Name":"x"},"Metadata":{"name":"y","namespace":"z"}}`, "a")
	f(`{}`, "")
}

// TestAttemptsAfterProgress checks that the count of failures begins again after each new object, in an
// incomplete page or in a complete one. In all, there are more than attemptsMax failures.
func TestAttemptsAfterProgress(t *testing.T) {
	const n = attemptsMax + 3
	f := func(name string, pageSize int64, fault func(s *stand, n int, w http.ResponseWriter) bool) {
		t.Helper()
		s := newStand(t)
		s.lists["/api/v1/pods"] = pods(n)
		failed := 0
		s.fault = func(i int, w http.ResponseWriter, _ *http.Request) bool {
			isFault := fault(s, i, w)
			if isFault {
				failed++
			}
			return isFault
		}
		o := s.options(chainOf(t, watcher(nil)), "pods")
		o.PageSize = pageSize
		if got := run(t, o); !slices.Equal(got, wantPods(n)) || failed <= attemptsMax {
			t.Errorf("%s: got %d failures and %q", name, failed, got)
		}
	}
	f("pages that break off", n, func(s *stand, i int, w http.ResponseWriter) bool {
		if i < n {
			w.Header().Set("Content-Length", "100000") // of which there is less
			fmt.Fprintf(w, `{"kind":"PodList","metadata":{},"items":[%s`, strings.Join(s.lists["/api/v1/pods"][:i], ","))
		}
		return i < n
	})
	f("failures between pages", 1, func(_ *stand, i int, w http.ResponseWriter) bool {
		if i%2 == 1 {
			refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "")
		}
		return i%2 == 1
	})
}
