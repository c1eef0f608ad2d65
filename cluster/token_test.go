package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fastadmit/fastadmit/internal/testserver"
)

// TestTokensRotate has a command or a file give another token while the cluster is followed. The API server
// refuses the old one at once.
func TestTokensRotate(t *testing.T) {
	t.Run("exec", func(t *testing.T) { rotateTokens(t, false) })
	t.Run("tokenFile", func(t *testing.T) { rotateTokens(t, true) })
}

func rotateTokens(t *testing.T, inFile bool) {
	const credential = `printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",` +
		`"status":{"token":"%s"}}' "$(cat "$0")"`
	tokens := filepath.Join(t.TempDir(), "token")
	rotate := func(token string) {
		t.Helper()
		if err := os.WriteFile(tokens, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rotate("first")
	a := newAPIServer(t)
	var accepted atomic.Value
	accepted.Store("first")
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == "Bearer "+accepted.Load().(string) { //nolint:forcetypeassert // stored above
			r.Header.Set("Authorization", "Bearer secret") // as that server wants it
			return false
		}
		a.fail(w, r, apierrors.NewUnauthorized("expired"))
		return true
	})
	server := testserver.StartTLS(t, a) // client-go sends credentials over TLS only
	file := writeKubeconfig(t, &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pemOf(server.Certificate().Raw),
	})
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "/bin/sh", Args: []string{"-c", credential, tokens},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	if inFile {
		config.AuthInfos["u"] = &clientcmdapi.AuthInfo{TokenFile: tokens}
	}
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	a.put(namespace("one"))
	s, err := New(Options{Kubeconfig: file, Kinds: []*Kind{configMap.Kind}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	for _, next := range []string{"second", "third"} {
		rotate(next)
		accepted.Store(next)
		server.CloseClientConnections()
		a.put(namespace(next))
		eventually(t, "the "+next+" token is used", func() bool {
			_, ok := namespacesIn(s).Cached("", next)
			return ok
		})
		if _, err := namespacesIn(s).Get(t.Context(), "", "none"); !apierrors.IsNotFound(err) {
			t.Errorf("with the %s token: got %v, want a live request that finds nothing", next, err)
		}
	}
}
