package oracle_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"regexp"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func certificateSubjectRestriction() suite {
	return suite{
		name: "CertificateSubjectRestriction", generate: (*generator).certificate, denies: true,
		variants: []variant{{options: handlers.DefaultOptions()}},
		// Messages of encoding/asn1 contain the address of the unreadable tag.
		message: func(message string) string { return tagAddress.ReplaceAllString(message, "tag:ADDRESS") },
	}
}

var tagAddress = regexp.MustCompile(`tag:0x[0-9a-f]+`)

// certificate generates a request about CertificateSigningRequests, mostly a creation.
func (g *generator) certificate() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	operation := admission.Create
	if g.in(5) {
		operation = admission.Update
	}
	kind := certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest")
	resource := certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")
	if g.in(6) { // written in an old version, and converted for the webhook
		c := g.request(operation, certificatesv1beta1.SchemeGroupVersion.WithKind(kind.Kind),
			certificatesv1beta1.SchemeGroupVersion.WithResource(resource.Resource))
		c.AsKind, c.AsResource = kind, resource
		old := func() runtime.Object {
			v1 := g.signingRequest()
			return &certificatesv1beta1.CertificateSigningRequest{ObjectMeta: v1.ObjectMeta,
				Spec: certificatesv1beta1.CertificateSigningRequestSpec{
					Request: v1.Spec.Request, SignerName: &v1.Spec.SignerName,
				}}
		}
		return g.write(c, old(), old)
	}
	c := g.request(operation, kind, resource)
	if g.in(12) {
		c.Subresource = pick(g, "status", "approval")
	}
	return g.write(c, g.signingRequest(), func() runtime.Object { return g.signingRequest() })
}

func (g *generator) signingRequest() *certificatesv1.CertificateSigningRequest {
	r := new(certificatesv1.CertificateSigningRequest)
	if g.in(16) {
		r = fuzzed[*certificatesv1.CertificateSigningRequest](g, certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	}
	if g.in(2) || r.Kind == "" {
		r.ObjectMeta = g.metadata()
	}
	r.Spec.SignerName = pick(g, certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientSignerName,
		certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName, "",
		certificatesv1.KubeAPIServerClientSignerName+" ", "example.com/signer")
	r.Spec.Request = g.pem()
	return r
}

// pem returns a certificate request in PEM, or a similar text.
func (g *generator) pem() []byte {
	subject := pkix.Name{
		CommonName: g.group(), Organization: some(g, 3, g.group), OrganizationalUnit: some(g, 1, g.group),
	}
	if g.in(4) { // values of types that Go does not write
		subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: []int{2, 5, 4, 10},
			Value: pick[any](g, "system:masters", 7, true, []byte("system:masters"))}}
	}
	der, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{Subject: subject},
		ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		panic(err)
	}
	if g.in(8) {
		der[g.IntN(len(der))] ^= byte(1 + g.IntN(255))
	}
	if g.in(16) {
		der = append(der, 0)
	}
	block := &pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}
	if g.in(8) {
		block.Type = pick(g, "CERTIFICATE", "NEW CERTIFICATE REQUEST", "")
	}
	if g.in(8) {
		block.Headers = map[string]string{"k": "v"}
	}
	text := pem.EncodeToMemory(block)
	switch g.IntN(12) {
	case 0:
		text = append(text, g.pem()...)
	case 1:
		text = append([]byte(pick(g, "text before\n", "text before", "-----BEGIN", "\r\n")), text...)
	case 2:
		text = text[:g.IntN(len(text)+1)]
	}
	return text
}

func (g *generator) group() string {
	return pick(g, "", "system:masters", "system:admin", "System:masters", " system:masters", "system:nodes", "é", "system:masters,dev")
}
