package app

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReloadKubeconfig changes the files that the kubeconfig of ImagePolicyWebhook
// names: first to a token that the backend rejects, then to one that it accepts.
func TestReloadKubeconfig(t *testing.T) {
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":true}}`)
	}))
	defer backend.Close()
	dir := t.TempDir()
	admission, token := filepath.Join(dir, "admission.yaml"), filepath.Join(dir, "token")
	servertest.WriteFile(t, admission, "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		"- {name: ImagePolicyWebhook, configuration: {imagePolicy: {kubeConfigFile: kubeconfig, denyTTL: -1}}}\n")
	servertest.WriteFile(t, filepath.Join(dir, "ca.crt"),
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw})))
	servertest.WriteFile(t, token, "bad\n")
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, "+
		"certificate-authority: ca.crt}}]\n"+
		"users: [{name: u, user: {tokenFile: token}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		backend.URL)
	servertest.WriteFile(t, filepath.Join(dir, "kubeconfig"), kubeconfig)
	s := serve(t, nil, "--enable-admission-plugins=ImagePolicyWebhook", "--admission-control-config-file="+admission)
	x := s.Open(t)
	if code, body := x.Answer("/validate"); code != 200 || !strings.Contains(body, `"allowed":false`) ||
		!strings.Contains(body, "provide credentials") {
		t.Fatalf("got %d %s, want the backend to send fastadmit away", code, body)
	}
	servertest.WriteFile(t, token, "good\n")
	servertest.Until(t, "the new token is shown", func() bool {
		_, body := x.Answer("/validate")
		return strings.Contains(body, `"allowed":true`)
	})
	servertest.WriteFile(t, filepath.Join(dir, "kubeconfig"), strings.Replace(kubeconfig, "ca.crt", "none.crt", 1))
	servertest.Until(t, "a change was refused", func() bool {
		return strings.Contains(s.Get(t, "/readyz?verbose", 200), admission+":4: plugins[0].configuration.imagePolicy.kubeConfigFile: "+
			"cannot read the kubeconfig of ImagePolicyWebhook: open "+filepath.Join(dir, "none.crt"))
	})
	if code, body := x.Answer("/validate"); code != 200 || !strings.Contains(body, `"allowed":true`) {
		t.Errorf("got %d %s after a change that was refused, want what was before", code, body)
	}
	if page := s.Get(t, "/metrics", 200); !strings.Contains(page, `fastadmit_image_policy_requests_total{result="allowed"} 1`) ||
		!strings.Contains(page, "# HELP fastadmit_image_policy_cache_hits_total Pods") {
		t.Errorf("got no metrics of the plugin in %s", page)
	}
}
