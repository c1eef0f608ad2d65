package admissiontest

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// LiveChain returns a chain of one plugin whose cache has these namespaces and never
// changes. live answers all other requests to the API server, each in its own goroutine.
// It returns an object of the API, a *metav1.Status, which is sent with its code, or nil
// for code 502 with a text that is not JSON, as a proxy might answer.
func LiveChain(t testing.TB, plugin admission.Plugin, live func(r *http.Request) any, cached ...corev1.Namespace) *admission.Chain {
	t.Helper()
	server := testserver.Start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		listed := r.Method == http.MethodGet && r.URL.Path == "/api/v1/namespaces"
		switch {
		case listed && r.URL.Query().Get("sendInitialEvents") != "":
			answer(t, w, &metav1.Status{
				Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
			})
		case listed && r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case listed:
			list := &corev1.NamespaceList{Items: cached}
			list.APIVersion, list.Kind, list.ResourceVersion = "v1", "NamespaceList", "1"
			answer(t, w, list)
		default:
			answer(t, w, live(r))
		}
	}))
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "x"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Kubeconfig: kubeconfig})
	if err == nil {
		err = state.Follow(t.Context(), plugin.Needs...)
	}
	if err == nil {
		err = state.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {}}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

func answer(t testing.TB, w http.ResponseWriter, what any) {
	code := http.StatusOK
	switch object := what.(type) {
	case nil:
		http.Error(w, "a page of some proxy", http.StatusBadGateway)
		return
	case *metav1.Status:
		object.APIVersion, object.Kind = "v1", "Status"
		code = int(object.Code)
	case *corev1.Namespace:
		object.APIVersion, object.Kind = "v1", "Namespace"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(what); err != nil {
		t.Error(err)
	}
}
