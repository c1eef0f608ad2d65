package webhook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionwebhook"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// countedBackend counts connections and records the protocols of calls. Its certificate is
// also valid for a Service.
type countedBackend struct {
	*backend
	connections atomic.Int64
	protocols   sync.Map
}

func newCountedBackend(t *testing.T, http2 bool) *countedBackend {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"hook.shop.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c := new(countedBackend)
	server := testserver.Unstarted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.protocols.Store(r.Proto, true)
		a, _ := readAsked(t, r)
		answer(w, a.Request.UID, `"allowed":true`)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}}
	server.EnableHTTP2 = http2
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.connections.Add(1)
		}
	}
	server.StartTLS()
	c.backend = &backend{Server: server, t: t}
	return c
}

// want compares the protocols, and the number of connections with the most that there may be.
func (c *countedBackend) want(protocol string, most int64) {
	c.t.Helper()
	var protocols []string
	c.protocols.Range(func(p, _ any) bool {
		protocols = append(protocols, p.(string))
		return true
	})
	if got := c.connections.Load(); got > most || len(protocols) != 1 || protocols[0] != protocol {
		c.t.Errorf("got %d connections and %q, want at most %d and %s", got, protocols, most, protocol)
	}
}

// TestConnections checks that a call uses the connection of the one before, and that calls use HTTP/1.1,
// of a URL and of a Service, even if the webhook supports HTTP/2.
func TestConnections(t *testing.T) {
	const calls = 10
	f := func(b *countedBackend, chain *admission.Chain) {
		t.Helper()
		for range calls {
			if r := ask(t, chain, admission.Validate, pod); r.message != "" {
				t.Error(r.message)
			}
		}
		// A transport keeps a connection some time after the caller has the answer. The next call may be faster,
		// and open another one.
		b.want("HTTP/1.1", calls/2)
	}
	for _, http2 := range []bool{false, true} {
		b := newCountedBackend(t, http2)
		f(b, b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"}))
		b = newCountedBackend(t, http2)
		f(b, b.serviceChain())
	}
}

// serviceChain is chain for a webhook with a Service, whose cluster IP is the address of the
// server.
func (c *countedBackend) serviceChain() *admission.Chain {
	c.t.Helper()
	u, err := url.Parse(c.URL)
	if err != nil {
		c.t.Fatal(err)
	}
	var port int32
	if _, err := fmt.Sscan(u.Port(), &port); err != nil {
		c.t.Fatal(err)
	}
	webhooks := strings.Replace(c.webhooks(hook{name: "a.example.com", path: "/"}), fmt.Sprintf(`"url":%q`, c.URL+"/"),
		fmt.Sprintf(`"service":{"namespace":"shop","name":"hook","port":%d}`, port), 1)
	document := fmt.Appendf(nil, `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",`+
		`"metadata":{"name":"c"},"webhooks":%s}`, webhooks)
	config := strings.Replace(followConfig, `,"customResources":true`, "", 1)
	return newChain(c.t, validatingadmissionwebhook.Plugin(),
		admission.Enabled{Config: []byte(config), Manifests: []admission.File{{Name: "a.json", Content: document}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hook"}, Spec: corev1.ServiceSpec{
			ClusterIP: u.Hostname(), Ports: []corev1.ServicePort{{Port: port}},
		}})
}
