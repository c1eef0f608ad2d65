package admissiontest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
)

// LiveHandler creates the plugin's handler in a cluster whose cache stays empty. All
// requests go to apiServer, which must answer with JSON. Use it to test the requests
// that the plugin sends.
func LiveHandler(t testing.TB, plugin admission.Plugin, apiServer http.HandlerFunc) admission.Handler {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		apiServer(w, r)
	}))
	t.Cleanup(server.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c",`+
		`"contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":%q}}]}`, server.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	for _, need := range plugin.Needs {
		if err := state.Follow(t.Context(), need.Called("get", "list", "create", "update")); err != nil { // without watch
			t.Fatal(err)
		}
	}
	handler, err := plugin.New(admission.Setup{Cluster: state.View(plugin.Needs...)})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// Failure writes the answer of an API server that fails: a metav1.Status with this code
// and reason.
func Failure(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}
