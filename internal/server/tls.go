package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastadmit/fastadmit/internal/files"
)

// memoryCertificateLife is how long a certificate made in memory is valid: a
// year, for it cannot be renewed without a restart.
const memoryCertificateLife = 365 * 24 * time.Hour

// Certificate is the serving certificate: that of two PEM files or, without files, one
// that is made in memory.
type Certificate struct {
	CertFile, KeyFile string // both, or neither
	WriteCA           string // the file that a certificate made in memory is written to; empty for none
	Log               *slog.Logger

	pair atomic.Pointer[tls.Certificate]

	mu     sync.Mutex // for pair and logged to change together
	logged string     // why the certificate is not valid, "" if it is
}

// Get returns the certificate that was loaded last, for tls.Config.GetCertificate.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil }

// Load reads the files, or makes a certificate. After an error, the previous certificate
// stays in use. One that kube-apiserver refuses is used, with a warning in the log: it may be
// valid soon, and other clients may not verify it.
func (c *Certificate) Load() error {
	if c.CertFile == "" {
		pair, err := newMemoryCertificate(time.Now())
		if err != nil {
			return fmt.Errorf("cannot create a serving certificate: %w", err)
		}
		if c.WriteCA != "" {
			text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
			if err := os.WriteFile(c.WriteCA, text, 0o644); err != nil {
				return fmt.Errorf("cannot write the certificate for --write-ca: %w", err)
			}
		}
		c.pair.Store(&pair)
		return nil // it is valid, and has names
	}
	pair, err := readPair(c.CertFile, c.KeyFile)
	if err != nil {
		return fmt.Errorf("cannot load the serving certificate from %s and %s: %w", c.CertFile, c.KeyFile, err)
	}
	c.replace(&pair)
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

// Files returns the names of the files, none if the certificate is made in memory.
func (c *Certificate) Files() []string {
	if c.CertFile == "" {
		return nil
	}
	return []string{c.CertFile, c.KeyFile}
}

// About says where the certificate comes from.
func (c *Certificate) About() string {
	if c.CertFile != "" {
		return c.source()
	}
	return fmt.Sprintf("%s, sha256 %x", c.source(), sha256.Sum256(c.pair.Load().Certificate[0]))
}

func (c *Certificate) source() string {
	if c.CertFile != "" {
		return "certificate from " + c.CertFile
	}
	return "certificate made in memory"
}

// Expiry returns when the certificate expires, in seconds since 1970.
func (c *Certificate) Expiry() float64 { return float64(c.pair.Load().Leaf.NotAfter.Unix()) }

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
