package contest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The kinds of keys.
const (
	ECDSA = "ecdsa"
	RSA   = "rsa"
)

// writeCertificates writes a self-signed certificate of each kind for 127.0.0.1. It returns the
// roots to verify them with.
func writeCertificates(dir string) (*x509.CertPool, error) {
	elliptical, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	classical, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	err = errors.Join(
		writeCertificate(filepath.Join(dir, ECDSA), elliptical, roots),
		writeCertificate(filepath.Join(dir, RSA), classical, roots))
	return roots, err
}

func writeCertificate(name string, key crypto.Signer, roots *x509.CertPool) error {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: filepath.Base(name)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	roots.AppendCertsFromPEM(text)
	return errors.Join(
		os.WriteFile(name+".crt", text, 0o600),
		os.WriteFile(name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
}
