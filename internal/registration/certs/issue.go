package certs

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// skew is how far clocks may be behind: certificates are valid from that long before they are
// made.
const skew = time.Hour

// due returns when a certificate must be renewed: after two thirds of its life.
func due(c *x509.Certificate) time.Time {
	made := c.NotBefore.Add(skew)
	return made.Add(c.NotAfter.Sub(made) * 2 / 3)
}

// newAuthority makes a CA. The time in its name tells CAs apart, for humans and for libraries
// that find CAs by name.
func newAuthority(life time.Duration, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: fmt.Sprintf("fastadmit-ca@%d", now.Unix())},
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	return issue(template, template, nil, now)
}

// newLeaf makes a serving certificate, which does not outlive the CA.
func newLeaf(ca *x509.Certificate, signer crypto.Signer, hosts []string, life time.Duration, now time.Time) (*tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "fastadmit"},
		NotAfter:    now.Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if template.NotAfter.After(ca.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	leaf, key, err := issue(template, ca, signer, now)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// issue signs a certificate for a new key, with that key itself if there is no
// signer.
func issue(template, parent *x509.Certificate, signer crypto.Signer, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if signer == nil {
		signer = key
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template.NotBefore = now.Add(-skew)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return certificate, key, err
}

const certificateBlock = "CERTIFICATE"

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der})
}

func encodeBundle(cas []*x509.Certificate) (text []byte) {
	for _, ca := range cas {
		text = append(text, encodeCertificate(ca.Raw)...)
	}
	return text
}

func encodeKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
