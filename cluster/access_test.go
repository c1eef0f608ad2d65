package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/cache"
)

// askAccess is Access.Review or Access.ReviewUncached.
type askAccess func(
	context.Context, *authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error)

// asking returns a View of the API server for access reviews.
func asking(t *testing.T, a *apiServer) *View {
	t.Helper()
	a.codecs = serializer.NewCodecFactory(newScheme(Kinds()...))
	s := a.newState(Options{})
	needs := []Need{SubjectAccessReviews.Called("create"), Discovered()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	return s.View(needs...)
}

// clock is a clock that the test sets.
type clock struct{ atomic.Int64 }

func (c *clock) Now() time.Time { return time.Unix(0, c.Load()) }

func TestAccess(t *testing.T) {
	a := newAPIServer(t)
	access := AccessIn(asking(t, a))
	now := new(clock)
	access.answers = cache.NewLRUExpireCacheWithClock(accessMax, now)
	var asked atomic.Int32
	fails := atomic.Bool{}
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/apis/authorization.k8s.io/v1/subjectaccessreviews" {
			return false
		}
		asked.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if fails.Load() {
			a.fail(w, r, apierrors.NewForbidden(SubjectAccessReviews.Resource(), "", errors.New("no RBAC")))
			return true
		}
		decoded, _, err := a.codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			t.Error(err)
			return false
		}
		review := decoded.(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = review.Spec.User == "jane"
		review.Status.Reason = review.Spec.User + " " + review.Spec.ResourceAttributes.Verb
		a.write(w, r, http.StatusCreated, review)
		return true
	})
	f := func(user, verb string, wantAsked int32) {
		t.Helper()
		asked.Store(0)
		got, err := access.Review(t.Context(), &authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb}})
		if err != nil || got.Allowed != (user == "jane") || got.Reason != user+" "+verb || asked.Load() != wantAsked {
			t.Errorf("%s %s: got %v, %v, asked %d times, want %d", user, verb, got, err, asked.Load(), wantAsked)
		}
	}
	f("jane", "get", 1)
	f("jane", "get", 0)
	f("jane", "delete", 1)
	f("joe", "get", 1)
	f("joe", "get", 0)
	now.Store(int64(deniedTTL))
	f("joe", "get", 0)
	now.Store(int64(deniedTTL) + 1)
	f("joe", "get", 1)
	f("jane", "get", 0)
	now.Store(int64(allowedTTL) + 1)
	f("jane", "get", 1)

	fails.Store(true)
	for range 2 { // failures are not cached
		asked.Store(0)
		_, err := access.Review(t.Context(), &authorizationv1.SubjectAccessReviewSpec{User: "ann"})
		if !apierrors.IsForbidden(err) || asked.Load() != 1 {
			t.Errorf("got %v, asked %d times, want the API server's refusal", err, asked.Load())
		}
	}
}

// TestAccessBounds has questions of the maximum length, one byte less and more, and reviews
// with the maximum number of questions, one less and more.
func TestAccessBounds(t *testing.T) {
	a := newAPIServer(t)
	set := metrics.NewSet()
	a.codecs = serializer.NewCodecFactory(newScheme(Kinds()...))
	s := a.newState(Options{Metrics: set})
	need := SubjectAccessReviews.Called("create")
	if err := s.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	access := AccessIn(s.View(need))
	var asked atomic.Int32
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		asked.Add(1)
		review := new(authorizationv1.SubjectAccessReview)
		review.Status.Allowed = true
		a.write(w, r, http.StatusCreated, review)
		return true
	})
	shows := func(reason string, want int) {
		t.Helper()
		var page strings.Builder
		set.WritePrometheus(&page)
		line := fmt.Sprintf("fastadmit_cluster_access_refusals_total{reason=%q} %d\n", reason, want)
		if !strings.Contains(page.String(), line) {
			t.Errorf("no %s in %s", line, page.String())
		}
	}
	spec := authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Resource: "<"}}
	text, err := json.Marshal(&spec)
	if err != nil {
		t.Fatal(err)
	}
	const aName = len(`"user":"",`)
	for i, more := range []int{-1, 0, 1} {
		spec.User = strings.Repeat("x", accessBytesMax-len(text)-aName+more)
		for j, ask := range []askAccess{access.Review, access.ReviewUncached} {
			asked.Store(0)
			got, err := ask(t.Context(), &spec)
			if err != nil || got.Allowed != (more <= 0) || (asked.Load() > 0) != (more <= 0) {
				t.Errorf("%+d bytes: got %v, %v, asked %d times", more, got, err, asked.Load())
			}
			if more > 0 && got.Reason != "the question is too long: got 1048577 bytes, want at most 1048576" {
				t.Errorf("got reason %q", got.Reason)
			}
			shows("long", max(i-1, 0)*(j+1))
		}
		if most, ok := access.MayAsk(questionsMax + more); most != questionsMax || ok != (more <= 0) {
			t.Errorf("%d questions: got %v, %d", questionsMax+more, ok, most)
		}
		shows("many", max(more, 0))
	}
}

// TestAccessStorm has many goroutines ask a few questions at once, with specs that are
// overwritten after the answer.
func TestAccessStorm(t *testing.T) {
	a := newAPIServer(t)
	access := AccessIn(asking(t, a))
	var asked atomic.Int32
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		asked.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		decoded, _, err := a.codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			t.Error(err)
			return false
		}
		review := decoded.(*authorizationv1.SubjectAccessReview)
		review.Status.Reason = review.Spec.Groups[0]
		a.write(w, r, http.StatusCreated, review)
		return true
	})
	var done sync.WaitGroup
	for i := range 200 {
		done.Go(func() {
			want := fmt.Sprint("group ", i%5)
			spec := &authorizationv1.SubjectAccessReviewSpec{User: "u", Groups: []string{want}}
			if got, err := access.Review(t.Context(), spec); err != nil || got.Reason != want {
				t.Errorf("got %v, %v, want %s", got, err, want)
			}
			spec.Groups[0] = "changed"
		})
	}
	done.Wait()
	if got := asked.Load(); got < 5 || got > 100 {
		t.Errorf("200 questions made %d requests, want a few for each of five", got)
	}
}

func TestDiscovery(t *testing.T) {
	a := newAPIServer(t)
	discovery := DiscoveryIn(asking(t, a))
	var mu sync.Mutex
	var asked []string
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		asked = append(asked, r.URL.Path)
		mu.Unlock()
		switch r.URL.Path {
		case "/api/v1":
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(&metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
				GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Namespaced: true, Kind: "Pod"}}})
		case "/apis/apps/v1":
			resources := []metav1.APIResource{{Name: "deployments", Kind: "Deployment"}}
			a.write(w, r, http.StatusOK, &metav1.APIResourceList{GroupVersion: "apps/v1", APIResources: resources})
		case "/apis/broken/v1":
			http.Error(w, "broken", http.StatusServiceUnavailable)
		default:
			http.NotFound(w, r)
		}
		return true
	})
	f := func(version schema.GroupVersion, want string, wantAsked ...string) {
		t.Helper()
		asked = nil
		got := "nothing"
		list, err := discovery.Resources(t.Context(), version)
		if err != nil {
			got = err.Error()
		} else if list != nil {
			got = list.APIResources[0].Name
		}
		if !strings.Contains(got, want) || !slices.Equal(asked, wantAsked) {
			t.Errorf("%q: got %s of %q, want %s of %q", version, got, asked, want, wantAsked)
		}
	}
	f(schema.GroupVersion{Version: "v1"}, "pods", "/api/v1")
	f(schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments", "/apis/apps/v1")
	f(schema.GroupVersion{Group: "apps", Version: "v9"}, "nothing", "/apis/apps/v9")
	f(schema.GroupVersion{Group: "broken", Version: "v1"}, `cluster state: cannot get discovery "broken/v1": `, "/apis/broken/v1")
	// Names that would change the path are not requested.
	for _, odd := range []string{"..", "a..b", "A", "a?b", "a%2fb", ""} {
		f(schema.GroupVersion{Group: "apps", Version: odd}, "nothing")
		if odd != "" {
			f(schema.GroupVersion{Group: odd, Version: "v1"}, "nothing")
		}
	}
	s, err := New(Options{Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	needs := []Need{Discovered(), SubjectAccessReviews.Called("create")}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	if _, err := DiscoveryIn(s.View(needs...)).Resources(t.Context(), schema.GroupVersion{Version: "v1"}); !IsWithoutAPIServer(err) {
		t.Errorf("files: got %v, want that there is nobody to ask", err)
	}
	if _, err := DiscoveryIn(s.View(needs...)).SchemaPaths(t.Context()); !IsWithoutAPIServer(err) || IsWithoutAPIServer(io.EOF) {
		t.Errorf("files: got %v, want that there is nobody to ask", err)
	}
	_, err = AccessIn(s.View(needs...)).Review(t.Context(), &authorizationv1.SubjectAccessReviewSpec{})
	if !errors.Is(err, errNoAPIServer) {
		t.Errorf("files: got %v, want that there is nobody to ask", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("discovery was not declared, and may be asked for")
		}
	}()
	DiscoveryIn(s.View(SubjectAccessReviews.Called("create")))
}
