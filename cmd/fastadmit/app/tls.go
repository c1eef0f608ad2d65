package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/fastadmit/fastadmit/internal/files"
)

// memoryCertificateLife is how long a certificate made in memory is valid: a
// year, for it cannot be renewed without a restart.
const memoryCertificateLife = 365 * 24 * time.Hour

// A certificate is the one that is served. Without files, it is made in memory.
type certificate struct {
	certFile, keyFile string
	pair              atomic.Pointer[tls.Certificate]
}

// get is for tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil }

// load reads the files, or makes a certificate. After an error, the one before
// stays in use.
func (c *certificate) load() error {
	if (c.certFile == "") != (c.keyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file must be set together")
	}
	if c.certFile == "" {
		pair, err := newMemoryCertificate(time.Now())
		if err != nil {
			return failed(fmt.Errorf("cannot create a serving certificate: %w", err))
		}
		c.pair.Store(&pair)
		return nil
	}
	pair, err := readPair(c.certFile, c.keyFile)
	if err != nil {
		return failed(fmt.Errorf("cannot load the serving certificate from %s and %s: %w", c.certFile, c.keyFile, err))
	}
	c.pair.Store(&pair)
	return nil
}

func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := files.Read(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := files.Read(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func (c *certificate) files() []string {
	if c.certFile == "" {
		return nil
	}
	return []string{c.certFile, c.keyFile}
}

// about says where the certificate is from.
func (c *certificate) about() string {
	if c.certFile != "" {
		return "certificate from " + c.certFile
	}
	return fmt.Sprintf("certificate made in memory, sha256 %x", sha256.Sum256(c.pair.Load().Certificate[0]))
}

// expiry is when the certificate expires, in seconds since 1970.
func (c *certificate) expiry() float64 { return float64(c.pair.Load().Leaf.NotAfter.Unix()) }

// tlsConfig returns how connections are secured: TLS 1.2 and up, and HTTP/1.1,
// which is what kube-apiserver speaks to webhooks. Session tickets are off,
// for kube-apiserver never resumes. Client certificates are asked for but not
// verified if askClients is set: who may call is said over HTTP, where
// kube-apiserver shows why.
func tlsConfig(get func(*tls.ClientHelloInfo) (*tls.Certificate, error), askClients bool) *tls.Config {
	config := &tls.Config{
		GetCertificate:         get,
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true,
	}
	if askClients {
		config.ClientAuth = tls.RequestClientCert
	}
	return config
}

// newMemoryCertificate makes a self-signed ECDSA P-256 certificate for this
// host: a handshake with it costs a third of what one with RSA-2048 costs.
func newMemoryCertificate(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "fastadmit"},
		NotBefore:             now.Add(-time.Hour), // for clocks that are behind
		NotAfter:              now.Add(memoryCertificateLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true, // so that it can be its own caBundle
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if host, err := os.Hostname(); err == nil && host != "localhost" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
