package runtimeclass

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

// TestLive asks about classes that the cache lacks.
func TestLive(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`
		switch filepath.Base(r.URL.Path) {
		case "new":
			fmt.Fprint(w, `{"kind":"RuntimeClass","apiVersion":"node.k8s.io/v1","metadata":{"name":"new"},"handler":"h","overhead":{"podFixed":{"cpu":"1"}}}`)
		case "none":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, status, "NotFound", http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, status, "Forbidden", http.StatusForbidden)
		}
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",`+
		`"contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	// The cache stays empty.
	if err := state.Follow(t.Context(), cluster.RuntimeClasses.Called("get")); err != nil {
		t.Fatal(err)
	}
	handler, err := newHandler(handlers.Setup{Cluster: state.View(cluster.RuntimeClasses.Watched())})
	if err != nil {
		t.Fatal(err)
	}
	f := func(class string, denied, failed bool, overhead string) {
		t.Helper()
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(handlertest.Body(codec.Create, "v1/pods", fmt.Sprintf(`{"spec":{"runtimeClassName":%q}}`, class))); err != nil {
			t.Fatal(err)
		}
		result := handler.Admit(t.Context(), review)
		if (result.Denial != nil) != denied || (result.Err != nil) != failed || review.Object.Get("spec", "overhead").JSON() != overhead {
			t.Errorf("%s: got %+v and %s", class, result, review.Object.Root().JSON())
		}
	}
	f("new", false, false, `{"cpu":"1"}`)
	f("none", true, false, "")
	f("secret", false, true, "")
}
