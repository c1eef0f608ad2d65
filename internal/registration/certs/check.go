package certs

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// callMax is how long a call of the server to itself may take: half of the default
	// timeout of a webhook.
	callMax = 5 * time.Second

	// selfCheckAge is how long Ready caches its result, so that frequent probes cost one
	// handshake a second.
	selfCheckAge = time.Second
)

// A view is what the goroutine of Run knows, for the others.
type view struct {
	cas     []*x509.Certificate   // the bundle in the Secret
	bundles [][]*x509.Certificate // those that are registered
}

// selfCheck is the result of the last call of the server to itself.
type selfCheck struct {
	mu   sync.Mutex
	at   time.Time
	last error
}

// Ready connects to the server of this process at address. It returns nil if every
// registered caBundle verifies the certificate, as in kube-apiserver. If nothing is
// registered yet, it uses the bundle that will be registered. The result is cached for a
// second.
func (m *Manager) Ready(ctx context.Context, address string) error {
	m.self.mu.Lock()
	defer m.self.mu.Unlock()
	if now := time.Now(); m.self.at.IsZero() || now.Sub(m.self.at) >= selfCheckAge {
		m.self.last = m.ready(ctx, address)
		m.self.at = now
	}
	return m.self.last
}

func (m *Manager) ready(ctx context.Context, address string) error {
	v := m.view.Load()
	if v == nil || m.served.Load() == nil {
		err := "the API server has not answered yet"
		if fault := m.fault.Load(); fault != nil {
			err = *fault
		}
		return fmt.Errorf("certificates: none yet: %s", err)
	}
	// Others may get the answer, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callMax)
	defer cancel()
	conn, err := m.o.Dial(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("certificates: the server cannot call itself: %w", err)
	}
	bundles := v.bundles
	if len(bundles) == 0 {
		bundles = [][]*x509.Certificate{v.cas}
	}
	if err := m.call(ctx, conn, m.o.Hosts, bundles); err != nil {
		return fmt.Errorf("certificates: the server called itself at %s: %w", address, err)
	}
	return nil
}

// reach calls the server as kube-apiserver calls it.
func (m *Manager) reach(ctx context.Context, c *configuration) error {
	for _, e := range c.endpoints {
		err := m.reachEndpoint(ctx, e)
		if err != nil {
			if ctx.Err() == nil {
				m.metrics.failures[serviceResource].Inc()
			}
			return fmt.Errorf("not applying %s %s yet: the server cannot be reached as kube-apiserver would reach it: %w", c.kind.kind, c.name, err)
		}
	}
	return nil
}

func (m *Manager) reachEndpoint(ctx context.Context, e endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	conn, err := m.dial(ctx, e)
	if err == nil {
		err = m.call(ctx, conn, []string{e.host}, [][]*x509.Certificate{m.known.cas})
	}
	if token := m.tokenToRegister(); err == nil && token != "" {
		err = m.probeEndpoint(ctx, e, token)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.address, err)
	}
	return nil
}

// probe asks the replica that kube-apiserver would reach whether it accepts a path token.
func (m *Manager) probe(ctx context.Context, c *configuration, token string) error {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	for _, e := range c.endpoints {
		if err := m.probeEndpoint(ctx, e, token); err != nil {
			return fmt.Errorf("%s: %w", e.address, err)
		}
	}
	return nil
}

// probeEndpoint asks with a method that no webhook accepts. A server looks at the method only
// if it accepts the token.
func (m *Manager) probeEndpoint(ctx context.Context, e endpoint, token string) error {
	code, _, err := m.ask(ctx, e, withToken(e.path, token, m.tokenAt()), m.known.cas)
	if err == nil && code != http.StatusMethodNotAllowed {
		err = fmt.Errorf("a replica does not take the path token: got %s, want %s", status(code), status(http.StatusMethodNotAllowed))
	}
	return err
}

func status(code int) string { return fmt.Sprintf("%d %s", code, http.StatusText(code)) }

// ConfigurationHeader is a header in the answer to a GET request. It contains the digest of
// the configuration that the server has read.
const ConfigurationHeader = "Fastadmit-Configuration"

// ask calls the endpoint with GET, which no webhook accepts. It returns the code of the answer
// and the digest of the configuration of the replica that answers.
func (m *Manager) ask(ctx context.Context, e endpoint, path string, cas []*x509.Certificate) (code int, configuration string, err error) {
	conn, err := m.dial(ctx, e)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	client, err := m.handshake(ctx, conn, []string{e.host}, [][]*x509.Certificate{cas})
	if err != nil {
		return 0, "", err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := client.SetDeadline(deadline); err != nil {
			return 0, "", err
		}
	}
	if _, err := fmt.Fprintf(client, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, e.host); err != nil {
		return 0, "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(client), nil)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	return response.StatusCode, response.Header.Get(ConfigurationHeader), nil
}

// call makes a TLS connection and closes it. The error means that this failed, or that the
// certificate is not valid for all hosts and all bundles.
func (m *Manager) call(ctx context.Context, conn net.Conn, hosts []string, bundles [][]*x509.Certificate) error {
	defer conn.Close()
	_, err := m.handshake(ctx, conn, hosts, bundles)
	return err
}

// handshake does the same as call, without closing the connection.
func (m *Manager) handshake(ctx context.Context, conn net.Conn, hosts []string, bundles [][]*x509.Certificate) (*tls.Conn, error) {
	client := tls.Client(conn, &tls.Config{
		ServerName: hosts[0],
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"}, // as kube-apiserver

		InsecureSkipVerify: true, // there are several bundles, by each of which it is verified below
	})
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	served, now := client.ConnectionState().PeerCertificates, m.clock.now()
	var errs []error
	for _, bundle := range bundles {
		for _, host := range hosts {
			if _, err := verifyChain(served, bundle, host, now); err != nil {
				errs = append(errs, fmt.Errorf("the certificate that is served is not valid for %s by the caBundle: %w", host, err))
				break
			}
		}
	}
	return client, errors.Join(errs...)
}
