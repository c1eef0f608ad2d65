package denyexec

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// TestLive checks the results for answers of the API server about the Pod. If it cannot
// tell, the plugin fails: it neither allows nor denies.
func TestLive(t *testing.T) {
	const path = "/api/v1/namespaces/shop/pods/web-8d7c59b89-4gqkq"
	f := func(answer http.HandlerFunc, cancelled bool, want string) {
		t.Helper()
		handler := admissiontest.LiveHandler(t, Plugin("name", "summary", true), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != path {
				t.Errorf("asked for %s", r.URL)
			}
			answer(w, r)
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if cancelled {
			cancel()
		}
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(corpus.MustRead("pods-exec-connect-v1-1.json")); err != nil {
			t.Fatal(err)
		}
		result := handler.Validate(ctx, review)
		got := "allowed"
		switch {
		case result.Denial != nil:
			got = "denied: " + result.Denial.Message
		case result.Err != nil:
			got = "failed: " + result.Err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	pod := func(spec string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"web-8d7c59b89-4gqkq"},"spec":%s}`, spec)
		}
	}
	failure := func(code int, reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { admissiontest.Failure(w, code, reason) }
	}
	const failed = "failed: error looking up pod shop/web-8d7c59b89-4gqkq: "
	f(pod(`{"containers":[{}]}`), false, "allowed")
	f(pod(`{"hostPID":true,"containers":[{}]}`), false, "denied: ")
	f(failure(http.StatusNotFound, "NotFound"), false, `denied: pods "web-8d7c59b89-4gqkq" is forbidden: `)
	f(failure(http.StatusInternalServerError, "InternalError"), false, failed+"cluster state: cannot get pods")
	f(failure(http.StatusForbidden, "Forbidden"), false, failed+"cluster state: cannot get pods")
	f(pod(`{}`), true, failed)
}
