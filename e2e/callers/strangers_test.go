package callers

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	// bodyBytes is the length of a stranger's body, of which chunkBytes are sent each chunkEvery.
	// So sending it would take minutes longer than the refusal.
	bodyBytes  = 30 << 20
	chunkBytes = 1 << 10
	chunkEvery = 10 * time.Millisecond

	// answerMax is below the 30 s after which every slow request is refused.
	answerMax = 20 * time.Second
)

// A stranger is a caller without a valid credential.
type stranger struct {
	certificate   *tls.Certificate // nil for none
	authorization string
}

// strangers returns callers with every credential that a way does not accept.
func (s *stand) strangers(t *testing.T, name string) {
	old := s.credentials[0]
	good, err := tls.LoadX509KeyPair(old.certFile, old.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	f := func(code int, why string, who stranger) {
		t.Helper()
		s.sentAway(t, name, code, why, who)
	}
	bearer := "Bearer " + old.token
	const authorization = "Authorization: want a token or password"
	byCertificate, byAuthorization := strings.HasPrefix(name, "certificate"), name != "certificate"
	if byCertificate {
		signed := func(a *cluster.Authority, template *x509.Certificate) *tls.Certificate {
			pair, err := tls.X509KeyPair(a.Sign(t, template))
			if err != nil {
				t.Fatal(err)
			}
			return &pair
		}
		f(http.StatusUnauthorized, "client certificate: got none, want one", stranger{nil, bearer})
		f(http.StatusUnauthorized, "client certificate: x509: certificate signed by unknown authority",
			stranger{signed(s.credentials[1].authority, cluster.Calling("kube-apiserver")), bearer})
		f(http.StatusUnauthorized, "client certificate: x509: certificate specifies an incompatible key usage",
			stranger{signed(old.authority, cluster.Serving(time.Now().Add(time.Hour), "kube-apiserver")), bearer})
		f(http.StatusForbidden, `client certificate: "somebody" is not one of --client-allowed-names`,
			stranger{signed(old.authority, cluster.Calling("somebody")), bearer})
	}
	if byAuthorization {
		basic := func(user, password string) string {
			return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
		}
		wrong := []string{"", "Bearer ", "Bearer wrong", "bearer " + old.token, old.token,
			basic("somebody", old.password), basic("kube-apiserver", "wrong"), basic("kube-apiserver", "")}
		if name == "password" {
			wrong = append(wrong, bearer)
		} else {
			wrong = append(wrong, basic("kube-apiserver", old.password))
		}
		for _, header := range wrong {
			f(http.StatusUnauthorized, authorization, stranger{&good, header})
		}
	}
}

// sentAway sends a stranger's request slowly. It checks that the answer arrives right after the
// header, gives the reason, and is counted.
func (s *stand) sentAway(t *testing.T, name string, code int, why string, who stranger) {
	t.Helper()
	a := s.all[name]
	refused := fmt.Sprintf(`fastadmit_refused_requests_total{code="%d"}`, code)
	const read, inFlight = "fastadmit_request_bytes_total", "fastadmit_requests_in_flight"
	before, readBefore := a.Metric(t, refused), a.Metric(t, read)

	sent, response, err := s.callSlowly(t, strings.TrimPrefix(a.URL, "https://"), who)
	if err != nil {
		t.Fatalf("%s: %v after %d bytes of the body", who.authorization, err, sent)
	}
	var status metav1.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil {
		t.Error(err)
	}
	if response.StatusCode != code || int(status.Code) != code || !strings.HasPrefix(status.Message, why) {
		t.Errorf("%s: got %d and %v, want %d and %q", who.authorization, response.StatusCode, status, code, why)
	}
	if sent >= bodyBytes {
		t.Errorf("%s: got an answer after %d bytes of the body, want it before", who.authorization, sent)
	}
	if got := a.Metric(t, refused) - before; got != 1 {
		t.Errorf("%s: got %d counted with code %d, want 1", who.authorization, got, code)
	}
	if got := a.Metric(t, read) - readBefore; got != 0 {
		t.Errorf("%s: got %d bytes of bodies read, want 0", who.authorization, got)
	}
	cluster.Await(t, "the request to be over", func() error {
		if got := a.Metric(t, inFlight); got != 0 {
			return fmt.Errorf("got %d in flight", got)
		}
		return nil
	})
}

// callSlowly sends a request whose body takes minutes, until an answer arrives.
func (s *stand) callSlowly(t *testing.T, address string, who stranger) (sent int64, response *http.Response, err error) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.authority.PEM)
	config := &tls.Config{RootCAs: roots}
	if who.certificate != nil {
		config.Certificates = []tls.Certificate{*who.certificate}
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", address, config)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(answerMax)); err != nil {
		return 0, nil, err
	}
	header := fmt.Sprintf("POST /validate?timeout=10s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nContent-Type: application/json\r\n",
		address, bodyBytes)
	if who.authorization != "" {
		header += "Authorization: " + who.authorization + "\r\n"
	}
	if _, err := conn.Write([]byte(header + "\r\n")); err != nil {
		return 0, nil, err
	}
	var total atomic.Int64
	answered, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for chunk := bytes.Repeat([]byte(" "), chunkBytes); total.Load() < bodyBytes; total.Add(chunkBytes) {
			select {
			case <-answered:
				return
			case <-time.After(chunkEvery):
			}
			if _, err := conn.Write(chunk); err != nil {
				return // what is answered is not read on for ever
			}
		}
	}()
	response, err = http.ReadResponse(bufio.NewReader(conn), nil)
	close(answered)
	<-ended
	return total.Load(), response, err
}
