package webhook

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// failure checks what the failure policies do where Kubernetes documents that
// they decide: with Fail the request fails with that text, with Ignore it does
// not. A plugin's own failure is listed in README.md: it closes the door
// whatever the policy.
func (s *stand) failure(t *testing.T) {
	for name, broken := range map[string]struct {
		url  func(t *testing.T) string
		text string
	}{
		"killed":           {s.killed, "connect: connection refused"},
		"hung":             {hung, "context deadline exceeded"},
		"rubbish":          {s.answering(http.StatusOK, "rubbish"), "json parse error"},
		"other-json":       {s.answering(http.StatusOK, `{"kind":"Status","apiVersion":"v1"}`), "unknown conversion"},
		"status-500":       {s.answering(http.StatusInternalServerError, "broken"), "an error on the server"},
		"status-503":       {s.answering(http.StatusServiceUnavailable, "busy"), "currently unable to handle the request"},
		"expired":          {s.expired, "certificate has expired"},
		"not-enabled":      {s.path("/validate/DenyServiceExternalIPs"), "plugin \"DenyServiceExternalIPs\" is not enabled"},
		"unknown-path":     {s.path("/elsewhere"), "want /mutate, /validate"},
		"out-of-time":      {s.path("/validate/Slow"), "context deadline exceeded"},
		"other-authority":  {s.otherAuthority, "certificate signed by unknown authority"},
		"panicked":         {s.path("/validate/Panic"), "admission plugin Panic failed: it panicked"},
		"mutates-validate": {s.path("/mutate/DenyUnwanted"), "plugin \"DenyUnwanted\" is not enabled or does not mutate"},
	} {
		t.Run(name, func(t *testing.T) {
			url := broken.url(t)
			namespace := s.namespace(t, name)
			for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
				t.Run(string(policy), func(t *testing.T) {
					s.validating(t, cluster.Webhook{URL: url, CA: s.authority.PEM, FailurePolicy: policy, Timeout: 1,
						Rules: cluster.Rules("CREATE", "", "v1", "pods")})
					_, err := s.create(pod(namespace, "c"))
					if policy == admissionregistrationv1.Ignore && name != "panicked" {
						allowed(t, err)
					} else {
						denied(t, err, broken.text)
					}
				})
			}
		})
	}
}

func (s *stand) path(path string) func(*testing.T) string {
	return func(*testing.T) string { return s.fastadmit.URL + path }
}

func (s *stand) killed(t *testing.T) string {
	f := cluster.StartFastadmit(t, testserver, s.authority, "--enable-admission-plugins", "Echo")
	f.Kill()
	return f.URL + "/validate"
}

func (s *stand) expired(t *testing.T) string {
	return cluster.StartFastadmitUntil(t, testserver, s.authority, time.Now().Add(-time.Minute),
		"--enable-admission-plugins", "Echo").URL + "/validate"
}

func (s *stand) otherAuthority(t *testing.T) string {
	return cluster.StartFastadmit(t, testserver, cluster.NewAuthority(t), "--enable-admission-plugins", "Echo").URL + "/validate"
}

// hung accepts connections and says nothing.
func hung(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return "https://" + l.Addr().String() + "/validate"
}

// answering is a server that always answers the same.
func (s *stand) answering(code int, body string) func(t *testing.T) string {
	return func(t *testing.T) string {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body)) // a client that is gone is no failure of the test
		}))
		cert, key := s.authority.Sign(t, time.Now().Add(time.Hour))
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL + "/validate"
	}
}
