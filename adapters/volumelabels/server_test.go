package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// counting is a cloud that knows the disks whose names contain a zone, and counts requests.
type counting struct {
	mu    sync.Mutex
	zones map[string]string
	asked int
	wait  func(ctx context.Context) error
}

func (c *counting) labels(ctx context.Context, d disk) (map[string]string, error) {
	c.mu.Lock()
	c.asked++
	zone, ok := c.zones[d.id]
	c.mu.Unlock()
	if c.wait != nil {
		if err := c.wait(ctx); err != nil {
			return nil, err
		}
	}
	if !ok {
		return nil, errUnknown
	}
	return topology(zone, "r"), nil
}

func (c *counting) set(id, zone string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zones[id] = zone
}

func newTestServer(t *testing.T, c cloud, l limits) *server {
	t.Helper()
	s, err := newServer(map[string]cloud{"aws": c}, l, access{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ask(s *server, query string) (code int, body string) {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/labels?"+query, http.NoBody))
	return w.Code, w.Body.String()
}

func checkAnswer(t *testing.T, s *server, query string, wantCode int, want string) {
	t.Helper()
	if code, body := ask(s, query); code != wantCode || !strings.Contains(body, want) {
		t.Errorf("%.100s: got code %d and %s, want %d and %s", query, code, body, wantCode, want)
	}
}

func TestAnswers(t *testing.T) {
	c := &counting{zones: map[string]string{"d": "z", strings.Repeat("x", nameMax): "z", strings.Repeat("x", nameMax+1): "z"}}
	s := newTestServer(t, c, limits{inFlight: 1, timeout: time.Second, age: time.Minute})
	checkAnswer(t, s, "provider=aws&id=d", http.StatusOK, `{"labels":{"topology.kubernetes.io/region":"r",`+
		`"topology.kubernetes.io/zone":"z"}}`)
	checkAnswer(t, s, "provider=aws&id=e", http.StatusNotFound, "not known")
	checkAnswer(t, s, "provider=aws", http.StatusNotFound, "not known")
	checkAnswer(t, s, "provider=azure&id=d", http.StatusNotFound, `got provider \"azure\"`)
	checkAnswer(t, s, "id=d", http.StatusNotFound, `got provider \"\"`)
	for _, n := range []int{nameMax - 1, nameMax, nameMax + 1} {
		long := strings.Repeat("x", n)
		want := http.StatusNotFound
		if n == nameMax {
			want = http.StatusOK
		}
		checkAnswer(t, s, "provider=aws&id="+long, want, "")
		if want = http.StatusOK; n > nameMax {
			want = http.StatusNotFound
		}
		checkAnswer(t, s, "provider=aws&id=d&zone="+long, want, "")
	}
	c.wait = func(context.Context) error { return errors.New("the cloud is away") }
	checkAnswer(t, s, "provider=aws&id=new", http.StatusBadGateway, `{"error":"aws cannot be asked now: the log of volumelabels `+
		`says why"}`)
	checkAnswer(t, s, "provider=aws&id=d", http.StatusOK, "") // remembered
}

// TestCache tests how long answers are cached.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{zones: map[string]string{"d": "z"}}
		s := newTestServer(t, c, limits{inFlight: 1, timeout: time.Second, age: time.Minute})
		asks := func(query string, code, asked int) {
			t.Helper()
			checkAnswer(t, s, query, code, "")
			if c.asked != asked {
				t.Errorf("%s: the cloud was asked %d times, want %d", query, c.asked, asked)
			}
		}
		asks("provider=aws&id=d", http.StatusOK, 1)
		asks("provider=aws&id=d&zone=y", http.StatusOK, 2) // another request
		asks("provider=aws&id=e", http.StatusNotFound, 3)
		c.set("d", "other")
		c.set("e", "z")
		time.Sleep(unknownAge - 1)
		asks("provider=aws&id=e", http.StatusNotFound, 3)
		time.Sleep(time.Nanosecond)
		asks("provider=aws&id=e", http.StatusOK, 4)
		time.Sleep(time.Minute - unknownAge - 1)
		asks("provider=aws&id=d", http.StatusOK, 4)
		time.Sleep(time.Nanosecond)
		asks("provider=aws&id=d", http.StatusOK, 5)
		checkAnswer(t, s, "provider=aws&id=d", http.StatusOK, "other")
		for i := range cacheMax + 1 {
			s.cache.Add(disk{id: string(rune(i))}, answer{})
		}
		if got := s.cache.Len(); got != cacheMax {
			t.Errorf("got %d answers that are remembered, want %d", got, cacheMax)
		}
	})
}

// TestLimits uses a cloud that does not answer.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{zones: map[string]string{}, wait: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		s := newTestServer(t, c, limits{inFlight: 3, timeout: time.Second})
		codes := make(chan int, 3)
		for _, id := range []string{"a", "a", "b"} { // the maximum number
			go func() {
				code, _ := ask(s, "provider=aws&id="+id)
				codes <- code
			}()
		}
		synctest.Wait()
		if c.asked != 2 {
			t.Errorf("the cloud was asked %d times about 2 disks, want once for each", c.asked)
		}
		checkAnswer(t, s, "provider=aws&id=c", http.StatusServiceUnavailable, "more than 3 requests at once")
		for range 3 {
			if code := <-codes; code != http.StatusBadGateway {
				t.Errorf("got code %d after the timeout, want 502", code)
			}
		}
		checkAnswer(t, s, "provider=aws&id=c", http.StatusBadGateway, "aws cannot be asked now")
	})
}

// TestTLS tests which callers are allowed, with files that change.
func TestTLS(t *testing.T) {
	newFake(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, content []byte) {
		if err := os.WriteFile(file(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate, key := selfSigned(t)
	write("tls.crt", certificate)
	write("tls.key", key)
	write("ca.crt", certificate)
	write("token", []byte("secret\n"))
	address := start(t, "--providers=aws", "--tls-cert-file="+file("tls.crt"), "--tls-private-key-file="+file("tls.key"),
		"--bearer-token-file="+file("token"), "--client-ca-file="+file("ca.crt"))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	get := func(path, token string, certificates ...tls.Certificate) int {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certificates},
			ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", token)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	checkCode := func(got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("got code %d, want %d", got, want)
		}
	}
	const path = "/labels?provider=aws&id=vol-1"
	checkCode(get(path, ""), http.StatusUnauthorized)
	checkCode(get(path, "Bearer other"), http.StatusUnauthorized)
	checkCode(get(path, "secret"), http.StatusUnauthorized)
	checkCode(get(path, "Bearer "), http.StatusUnauthorized)
	checkCode(get(path, "Bearer secret"), http.StatusNotFound)
	checkCode(get("/healthz", ""), http.StatusOK)
	checkCode(get("/other", ""), http.StatusNotFound)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	checkCode(get(path, "", pair), http.StatusNotFound)
	write("token", []byte("next"))
	checkCode(get(path, "Bearer secret"), http.StatusUnauthorized)
	checkCode(get(path, "Bearer next"), http.StatusNotFound)
	write("token", nil)
	checkCode(get(path, "Bearer "), http.StatusUnauthorized)

	// The authority changes: the server's new certificate is accepted, and the client's old
	// one is not.
	old := pair
	certificate, key = selfSigned(t)
	write("tls.crt", certificate)
	write("tls.key", key)
	write("ca.crt", certificate)
	checkCode(get("/healthz", ""), 0) // the client does not know the new one yet
	pool.AppendCertsFromPEM(certificate)
	checkCode(get("/healthz", ""), http.StatusOK)
	checkCode(get(path, "", old), 0)
}

// selfSigned makes a certificate for servers and clients, which is its own authority.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// start runs the program, and returns the address at which it listens.
func start(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, append(args, "--listen=127.0.0.1:0"), io.Discard, func(a net.Addr) { ready <- a.String() })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case address := <-ready:
		return address
	case err := <-ended:
		ended <- nil
		t.Fatalf("run: %v", err)
		return ""
	}
}

// TestShutdown stops the program while it answers.
func TestShutdown(t *testing.T) {
	f := newFake(t)
	f.wait, f.volumes = make(chan struct{}), map[string][]string{"vol-1": {"us-east-1b"}}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"--providers=aws", "--listen=127.0.0.1:0"}, io.Discard, func(a net.Addr) { ready <- a.String() })
	}()
	address := <-ready
	code := make(chan int, 1)
	go func() {
		response, err := http.Get("http://" + address + "/labels?provider=aws&id=vol-1")
		if err != nil {
			t.Error(err)
			code <- 0
			return
		}
		response.Body.Close()
		code <- response.StatusCode
	}()
	for f.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	close(f.wait)
	if got := <-code; got != http.StatusOK {
		t.Errorf("got code %d for a request that was there before, want 200", got)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(want string, args ...string) {
		t.Helper()
		if err := run(t.Context(), args, io.Discard, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got error %v, want one with %s", args, err, want)
		}
	}
	f("--providers is missing")
	f(`--providers: got "azure", want aws or gce`, "--providers=azure")
	f(`got argument "aws"`, "--providers=aws", "aws")
	f("must be given together", "--providers=aws", "--tls-cert-file=/c")
	f("need --tls-cert-file", "--providers=aws", "--bearer-token-file=/t")
	f("need --tls-cert-file", "--providers=aws", "--client-ca-file=/c")
	f("must be more than 0", "--providers=aws", "--max-requests-inflight=0")
	f("must be more than 0", "--providers=aws", "--timeout=0s")
	f("must be more than 0", "--providers=aws", "--cache-ttl=-1s")
	f(`--gce-zones: got zone "a/b"`, "--providers=gce", "--gce-zones=a/b")
	f(`--gce-zones: got zone ""`, "--providers=gce", "--gce-zones=a,")
	f("no such file", "--providers=aws", "--tls-cert-file=/nowhere", "--tls-private-key-file=/nowhere")
	f("got no certificate", "--providers=aws", "--tls-cert-file="+empty, "--tls-private-key-file="+empty, "--client-ca-file="+empty)
	f("got a token of 0 bytes", "--providers=aws", "--tls-cert-file="+empty, "--tls-private-key-file="+empty, "--bearer-token-file="+empty)
	f("flag provided but not defined", "--provider=aws")
}
