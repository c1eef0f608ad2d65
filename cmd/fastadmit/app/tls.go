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
	"time"
)

// memoryCertificateLife is how long a certificate made in memory is valid: a
// year, for it cannot be renewed without a restart.
const memoryCertificateLife = 365 * 24 * time.Hour

// tlsConfig returns how connections are secured: TLS 1.2 and up, and HTTP/1.1,
// which is what kube-apiserver speaks to webhooks. Session tickets are off,
// for kube-apiserver never resumes.
func tlsConfig(certificate tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates:           []tls.Certificate{certificate},
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"http/1.1"},
		SessionTicketsDisabled: true,
	}
}

// loadCertificate reads the pair from files, or makes one in memory when no
// file is named. About says where it is from.
func loadCertificate(certFile, keyFile string) (certificate tls.Certificate, about string, err error) {
	if (certFile == "") != (keyFile == "") {
		return certificate, "", errors.New("--tls-cert-file and --tls-private-key-file go together")
	}
	if certFile != "" {
		if certificate, err = tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			return certificate, "", failed(fmt.Errorf("cannot load the serving certificate from %s and %s: %w", certFile, keyFile, err))
		}
		return certificate, "certificate from " + certFile, nil
	}
	if certificate, err = newMemoryCertificate(time.Now()); err != nil {
		return certificate, "", failed(fmt.Errorf("cannot make a serving certificate: %w", err))
	}
	return certificate, fmt.Sprintf("certificate made in memory, sha256 %x", sha256.Sum256(certificate.Certificate[0])), nil
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
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
