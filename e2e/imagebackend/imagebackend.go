// Package imagebackend is a backend of ImagePolicyWebhook, for tests that compare two
// implementations of the plugin.
package imagebackend

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// A Backend serves TLS and requires a client certificate. Its answer depends on the question and
// repeats it, so that different questions get different answers.
type Backend struct {
	Kubeconfig string // a file, which names others

	mu    sync.Mutex
	tries map[string]int // by the question
}

// Shared returns the one Backend of a process, which runs until that ends.
var Shared = sync.OnceValue(func() *Backend {
	dir, err := os.MkdirTemp("", "imagebackend")
	if err != nil {
		panic(err)
	}
	authority := cluster.NewAuthority(fatal{})
	b := &Backend{Kubeconfig: filepath.Join(dir, "kubeconfig"), tries: make(map[string]int)}
	serving, err := tls.X509KeyPair(authority.Sign(fatal{}, cluster.Serving(time.Now().Add(24*time.Hour), "127.0.0.1")))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.PEM)
	server := httptest.NewUnstartedServer(b)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{serving}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
		MinVersion: tls.VersionTLS12,
	}
	server.StartTLS()
	certificate, key := authority.Sign(fatal{}, cluster.Calling("api-server"))
	for name, content := range map[string][]byte{
		"ca.crt": authority.PEM, "client.crt": certificate, "client.key": key, "kubeconfig": fmt.Appendf(nil, Format, server.URL),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			panic(err)
		}
	}
	return b
})

// fatal replaces the testing.TB that Shared does not have.
type fatal struct{ testing.TB }

func (fatal) Helper()           {}
func (fatal) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// Format is the kubeconfig of a Backend, with %q for its URL.
const Format = `
apiVersion: v1
kind: Config
clusters: [{name: backend, cluster: {server: %q, certificate-authority: ca.crt}}]
users: [{name: api-server, user: {client-certificate: client.crt, client-key: client.key}}]
contexts: [{name: backend, context: {cluster: backend, user: api-server}}]
current-context: backend
`

// ServeHTTP implements http.Handler.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion, Kind string
		Spec             map[string]any
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Kind != "ImageReview" ||
		review.APIVersion != "imagepolicy.k8s.io/v1alpha1" || r.Method != http.MethodPost ||
		r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, fmt.Sprintf("no question: %v", err), http.StatusBadRequest)
		return
	}
	question, err := json.Marshal(review.Spec) // sorted
	if err != nil {
		panic(err)
	}
	b.mu.Lock()
	try := b.tries[string(question)]
	b.tries[string(question)]++
	b.mu.Unlock()
	sum := fnv.New32a()
	sum.Write(question)
	all := replies()
	all[sum.Sum32()%uint32(len(all))](w, string(question), try)
}

type reply func(w http.ResponseWriter, question string, try int)

func status(w http.ResponseWriter, status map[string]any) {
	answer, err := json.Marshal(map[string]any{"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status})
	if err != nil {
		panic(err)
	}
	text(http.StatusOK, string(answer))(w, "", 0)
}

func text(code int, body string) reply {
	return func(w http.ResponseWriter, _ string, _ int) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

func allows(w http.ResponseWriter, question string, _ int) {
	status(w, map[string]any{"allowed": true, "auditAnnotations": map[string]string{"asked": question, "a/b": "no key", "": "none",
		"-x": "none"}})
}

func denies(w http.ResponseWriter, question string, _ int) {
	status(w, map[string]any{"allowed": false, "reason": question, "auditAnnotations": map[string]string{"denied": "1"}})
}

// replies are the possible answers.
func replies() []reply {
	return []reply{
		allows, allows, denies, denies,
		func(w http.ResponseWriter, _ string, _ int) { status(w, map[string]any{"allowed": false}) },
		func(w http.ResponseWriter, q string, try int) { // slowly
			time.Sleep(20 * time.Millisecond)
			denies(w, q, try)
		},
		func(w http.ResponseWriter, q string, try int) { // every second try
			if try%2 == 0 {
				text(http.StatusInternalServerError, "not now")(w, q, try)
				return
			}
			denies(w, q, try)
		},
		func(w http.ResponseWriter, q string, try int) { // every fourth try
			if try%4 != 3 {
				text(http.StatusGatewayTimeout, "not now")(w, q, try)
				return
			}
			allows(w, q, try)
		},
		text(http.StatusInternalServerError, "never"),
		text(http.StatusServiceUnavailable, "never"),
		text(http.StatusTooManyRequests, "never"),
		text(http.StatusForbidden, "not you"),
		text(http.StatusUnauthorized, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","message":"who `+
			`are you","code":401}`),
		text(http.StatusInternalServerError, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError",`+
			`"message":"broken","code":500}`),
		text(http.StatusConflict, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","message":"both",`+
			`"code":409,"details":{"name":"x"}}`),
		text(http.StatusNotFound, "<html>"),
		text(http.StatusFound, "elsewhere"),
		text(http.StatusOK, ""), text(http.StatusNoContent, ""), text(http.StatusOK, "rubbish"), text(http.StatusOK, "null"),
		text(http.StatusOK, "[]"),
		text(http.StatusOK, "{}"), text(http.StatusOK, `{"status":{"allowed":true}}`),
		text(http.StatusOK, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1"}`),
		text(http.StatusOK, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":{"allowed":"true"}}`),
		text(http.StatusOK, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":{"Allowed":true}}`),
		text(http.StatusOK, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":null}`),
		text(http.StatusOK, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":{"allowed":true}`),
		text(http.StatusOK, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1alpha1","status":{"allowed":true},"more":1}`),
		text(http.StatusOK, `{"kind":"ImageReview","apiVersion":"imagepolicy.k8s.io/v1beta1","status":{"allowed":true}}`),
		text(http.StatusOK, `{"kind":"Thing","apiVersion":"example.com/v1"}`),
		text(http.StatusOK, "kind: ImageReview\napiVersion: imagepolicy.k8s.io/v1alpha1\nstatus: {allowed: true}\n"),
		func(w http.ResponseWriter, _ string, _ int) { // an answer that is cut off
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, `{"kind":`)
		},
		func(http.ResponseWriter, string, int) { panic(http.ErrAbortHandler) }, // no answer
	}
}
