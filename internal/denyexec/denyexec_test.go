package denyexec

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
)

// TestAPIServerFails shows that nothing is allowed, and nothing denied as
// decided, where the Pod cannot be had.
func TestAPIServerFails(t *testing.T) {
	f := func(code int, reason string, cancelled, denied bool, want string) {
		t.Helper()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/namespaces/shop/pods/web-8d7c59b89-4gqkq" {
				t.Errorf("asked for %s", r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the answer","reason":%q,"code":%d}`, reason, code)
		}))
		defer server.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if cancelled {
			cancel()
		}
		result := validate(t, ctx, server.URL)
		got := ""
		switch {
		case result.Denial != nil:
			got = result.Denial.Message
		case result.Err != nil:
			got = result.Err.Error()
		}
		if (result.Denial != nil) != denied || !strings.Contains(got, want) || got == "" {
			t.Errorf("%d %s: got %+v with %q, want %q", code, reason, result, got, want)
		}
	}
	f(http.StatusNotFound, "NotFound", false, true, `pods "web-8d7c59b89-4gqkq" is forbidden: the answer`)
	f(http.StatusInternalServerError, "InternalError", false, false, "error looking up pod shop/web-8d7c59b89-4gqkq: cluster state: cannot get pods")
	f(http.StatusForbidden, "Forbidden", false, false, "error looking up pod shop/web-8d7c59b89-4gqkq: cluster state: cannot get pods")
	f(http.StatusNotFound, "NotFound", true, false, "context canceled")
}

// validate asks the plugin about a recorded command, in a cluster with that API
// server.
func validate(t *testing.T, ctx context.Context, server string) handlers.Result {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"kind":"Config","apiVersion":"v1","current-context":"c",`+
		`"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, server), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	plugin := Plugin("name", "summary", true)
	if err := state.Follow(t.Context(), plugin.Cluster...); err != nil {
		t.Fatal(err)
	}
	handler, err := plugin.New(handlers.Setup{Cluster: state.View(plugin.Cluster...)})
	if err != nil {
		t.Fatal(err)
	}
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(corpus.MustRead("pods-exec-connect-v1-1.json")); err != nil {
		t.Fatal(err)
	}
	return handler.Validate(ctx, review)
}
