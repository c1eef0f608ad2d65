package certs

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret that core/v1 has no name for. caCertificates is what
// cert-manager calls it, too.
const (
	caCertificates = "ca.crt"
	caKey          = "ca.key"
)

// A state is what the Secret holds.
type state struct {
	cas    []*x509.Certificate // the bundle; the first one signs
	signer crypto.Signer       // the key of cas[0]
	leaf   *tls.Certificate    // nil if there is no valid one
	issuer *x509.Certificate   // the element of cas that verifies the leaf
	others []string            // the hosts of a leaf without all wanted hosts
}

// An identity tells certificates apart.
type identity [sha256.Size]byte

func identify(c *x509.Certificate) identity { return sha256.Sum256(c.Raw) }

func (id identity) is(c *x509.Certificate) bool { return identify(c) == id }

// parseState reads the data of a Secret. The error is about the CA if there is no state,
// otherwise about the leaf.
func parseState(data map[string][]byte, hosts []string, now time.Time) (*state, error) {
	authority, err := tls.X509KeyPair(data[caCertificates], data[caKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", caCertificates, caKey, err)
	}
	s := new(state)
	for _, der := range authority.Certificate {
		ca, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", caCertificates, err)
		}
		s.cas = append(s.cas, ca)
	}
	signs := s.cas[0]
	switch {
	case !signs.IsCA || signs.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("%s: the first certificate is not a CA", caCertificates)
	case now.Before(signs.NotBefore): // made with a clock that was ahead: its leaves would not be valid yet
		return nil, fmt.Errorf("%s: the CA is not valid before %s", caCertificates, signs.NotBefore)
	case !now.Before(signs.NotAfter):
		return nil, fmt.Errorf("%s: the CA expired at %s", caCertificates, signs.NotAfter)
	}
	s.signer = authority.PrivateKey.(crypto.Signer) // all keys that tls has are
	if err := s.parseLeaf(data, hosts, now); err != nil {
		return s, fmt.Errorf("%s and %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return s, nil
}

func (s *state) parseLeaf(data map[string][]byte, hosts []string, now time.Time) error {
	pair, err := tls.X509KeyPair(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return err
	}
	issuer, err := verify(&pair, s.cas, now)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		if err := pair.Leaf.VerifyHostname(host); err != nil {
			s.others = pair.Leaf.DNSNames
			for _, ip := range pair.Leaf.IPAddresses {
				s.others = append(s.others, ip.String())
			}
			return err
		}
	}
	s.leaf, s.issuer = &pair, issuer
	return nil
}

// put writes the state into the data of a Secret. Other keys stay.
func (s *state) put(data map[string][]byte) error {
	caPEM, err := encodeKey(s.signer)
	if err != nil {
		return err
	}
	leafPEM, err := encodeKey(s.leaf.PrivateKey)
	if err != nil {
		return err
	}
	data[caCertificates], data[caKey] = encodeBundle(s.cas), caPEM
	data[corev1.TLSPrivateKeyKey] = leafPEM
	data[corev1.TLSCertKey] = nil
	for _, der := range s.leaf.Certificate {
		data[corev1.TLSCertKey] = append(data[corev1.TLSCertKey], encodeCertificate(der)...)
	}
	return nil
}

// A change is what the Secret is to hold, and why.
type change struct {
	*state
	tokens          []token // all path tokens
	ca, leaf, token bool    // whether these were made or changed
	why             string
}

// next returns the change that replaces s in the Secret, nil if s is correct. s is nil if the
// Secret has no valid CA. next calls wakeAtDate with the date of the next change.
func (m *Manager) next(s *state, now time.Time) (*change, error) {
	if s == nil {
		return m.restored(now)
	}
	signs := s.cas[0]
	cas := slices.DeleteFunc(slices.Clone(s.cas), func(ca *x509.Certificate) bool { return !now.Before(ca.NotAfter) })
	switch {
	case s.leaf == nil:
		return m.releafed(s, cas, now, "there is no leaf that can be used")
	case !now.Before(due(signs)):
		ca, signer, err := newAuthority(m.o.CALife, now)
		return &change{
			state: &state{cas: append([]*x509.Certificate{ca}, cas...), signer: signer, leaf: s.leaf, issuer: s.issuer},
			ca:    true, why: "the CA is due",
		}, err
	case len(cas) < len(s.cas):
		return &change{state: &state{cas: cas, signer: s.signer, leaf: s.leaf, issuer: s.issuer}, why: "an old CA expired"}, nil
	}
	m.wakeAtDate(due(signs))
	for _, ca := range cas {
		m.wakeAtDate(ca.NotAfter)
	}
	m.wakeAtDate(s.leaf.Leaf.NotAfter)
	leafDue := due(s.leaf.Leaf)
	switch {
	case s.issuer == signs && now.Before(leafDue):
		m.wakeAtDate(leafDue)
		return nil, nil
	case s.issuer != signs && !m.settled(signs):
		return nil, nil // observe has called wakeBy
	}
	return m.releafed(s, cas, now, "the leaf is due, or of an old CA")
}

// restored returns the last known state if it is still valid, otherwise new certificates.
func (m *Manager) restored(now time.Time) (*change, error) {
	if m.known != nil && m.known.leaf != nil && now.Before(m.known.cas[0].NotAfter) {
		return &change{state: m.known, why: "what was known last is still good"}, nil
	}
	ca, signer, err := newAuthority(m.o.CALife, now)
	if err != nil {
		return nil, err
	}
	c, err := m.releafed(&state{signer: signer}, []*x509.Certificate{ca}, now, "there is no CA that can be used")
	if err != nil {
		return nil, err
	}
	c.ca = true
	return c, nil
}

// releafed returns a change to a new leaf by the first of cas: for
// Options.Hosts, and for those of a leaf that lacks some of them, so that
// replicas of two versions which want different ones agree on one leaf.
func (m *Manager) releafed(s *state, cas []*x509.Certificate, now time.Time, why string) (*change, error) {
	hosts := slices.Concat(m.o.Hosts, s.others)
	slices.Sort(hosts)
	leaf, err := newLeaf(cas[0], s.signer, slices.Compact(hosts), m.o.LeafLife, now)
	if err != nil {
		return nil, err
	}
	return &change{state: &state{cas: cas, signer: s.signer, leaf: leaf, issuer: cas[0]}, leaf: true, why: why}, nil
}

// verify returns the element of cas that verifies the certificate now.
func verify(pair *tls.Certificate, cas []*x509.Certificate, now time.Time) (*x509.Certificate, error) {
	chain := []*x509.Certificate{pair.Leaf}
	for _, der := range pair.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		chain = append(chain, c)
	}
	return verifyChain(chain, cas, "", now)
}

// verifyChain does the same as verify for a chain. Unless host is empty, the chain must be valid
// for it.
func verifyChain(chain, cas []*x509.Certificate, host string, now time.Time) (*x509.Certificate, error) {
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(), DNSName: host, CurrentTime: now}
	for _, ca := range cas {
		options.Roots.AddCert(ca)
	}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	chains, err := chain[0].Verify(options)
	if err != nil {
		return nil, err
	}
	verified := chains[0]
	return verified[len(verified)-1], nil
}

// parseBundle returns the certificates of a caBundle. As in kube-apiserver, invalid ones are
// left out (crypto/x509 AppendCertsFromPEM).
func parseBundle(text []byte) (cas []*x509.Certificate) {
	for len(text) > 0 {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != certificateBlock || len(block.Headers) > 0 {
			continue
		}
		if ca, err := x509.ParseCertificate(block.Bytes); err == nil {
			cas = append(cas, ca)
		}
	}
	return cas
}

func inAll(ca *x509.Certificate, bundles [][]*x509.Certificate) bool {
	for _, bundle := range bundles {
		if !slices.ContainsFunc(bundle, ca.Equal) {
			return false
		}
	}
	return true
}
