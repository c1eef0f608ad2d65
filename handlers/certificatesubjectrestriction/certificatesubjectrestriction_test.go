package certificatesubjectrestriction

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	requests = "certificates.k8s.io/v1/certificatesigningrequests"
	client   = "kubernetes.io/kube-apiserver-client"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// request returns a certificate request with this subject, in DER.
func request(t testing.TB, subject pkix.Name) []byte {
	t.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	der, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func block(of string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: of, Bytes: der}))
}

// object returns a CertificateSigningRequest that contains the text.
func object(signer, text string) string {
	return `{"metadata":{"name":"jane"},"spec":{"signerName":"` + signer + `","request":"` +
		base64.StdEncoding.EncodeToString([]byte(text)) + `"}}`
}

func TestSubjects(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(subject pkix.Name, want admission.Outcome) {
		t.Helper()
		csr := object(client, block(requestType, request(t, subject)))
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(codec.Create, requests, csr))
	}
	f(pkix.Name{Organization: []string{masters}}, admission.OutcomeDenied)
	f(pkix.Name{Organization: []string{"dev", masters, "ops"}}, admission.OutcomeDenied)
	f(pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{{Type: []int{2, 5, 4, 10}, Value: masters}}}, admission.OutcomeDenied)

	f(pkix.Name{}, admission.OutcomeAllowed)
	f(pkix.Name{Organization: []string{"system:admin"}}, admission.OutcomeAllowed)
	f(pkix.Name{Organization: []string{"System:masters", masters + " ", " " + masters, "system:masters,dev"}}, admission.OutcomeAllowed)
	f(pkix.Name{CommonName: masters, OrganizationalUnit: []string{masters}}, admission.OutcomeAllowed)
}

func TestSigners(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	text := block(requestType, request(t, pkix.Name{Organization: []string{masters}}))
	f := func(signer string, want admission.Outcome) {
		t.Helper()
		for _, text := range [...]string{text, "this is not a CSR"} {
			body := admissiontest.Body(codec.Create, requests, object(signer, text))
			admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
		}
	}
	f(client, admission.OutcomeDenied)
	f(`kubernetes.io\/kube-apiserver-client`, admission.OutcomeDenied)
	f("kubernetes.io/kube-apiserver-client-kubelet", admission.OutcomeAllowed)
	f("kubernetes.io/kubelet-serving", admission.OutcomeAllowed)
	f("Kubernetes.io/kube-apiserver-client", admission.OutcomeAllowed)
	f("example.com/signer", admission.OutcomeAllowed)
	f("", admission.OutcomeAllowed)
}

// TestParse has valid and invalid texts of requests.
func TestParse(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	good, bad := request(t, pkix.Name{}), request(t, pkix.Name{Organization: []string{masters}})
	f := func(text, want string) {
		t.Helper()
		answer := admissiontest.Answer(t, chain, admission.Validate, admissiontest.Body(codec.Create, requests, object(client, text)))
		var got struct{ Status struct{ Message string } }
		if err := json.Unmarshal(answer, &got); err != nil {
			t.Fatal(err)
		}
		if want != "" {
			want = `certificatesigningrequests.certificates.k8s.io "name" is forbidden: ` + want
		}
		if got.Status.Message != want {
			t.Errorf("%.100q\ngot  %s\nwant %s", text, got.Status.Message, want)
		}
	}
	const (
		noBlock   = "failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"
		forbidden = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
	)
	f("", noBlock)
	f("this is not a CSR", noBlock)
	f(block("CERTIFICATE", good), noBlock)
	f(block("NEW CERTIFICATE REQUEST", bad), noBlock)
	f(strings.TrimSuffix(block(requestType, bad), "-----\n"), noBlock)
	f(block(requestType, nil), "failed to parse CSR: asn1: syntax error: sequence truncated")
	f(block(requestType, bad[:len(bad)-1]), "failed to parse CSR: asn1: syntax error: data truncated")

	// Only the first block counts.
	f(block(requestType, good)+block(requestType, bad), "")
	f("text before\n"+block(requestType, bad)+block(requestType, good), forbidden)
	f(block("CERTIFICATE", good)+block(requestType, good), noBlock)
}

// TestFields has objects without some fields of a CertificateSigningRequest.
func TestFields(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(object string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(codec.Create, requests, object))
	}
	f(`null`, admission.OutcomeAllowed)
	f(`{}`, admission.OutcomeAllowed)
	f(`{"spec":null}`, admission.OutcomeAllowed)
	f(`{"spec":"csr"}`, admission.OutcomeAllowed)
	f(`{"spec":{"signerName":1}}`, admission.OutcomeAllowed)
	f(`{"spec":{"signerName":"`+client+`"}}`, admission.OutcomeDenied)
	f(`{"spec":{"signerName":"`+client+`","request":null}}`, admission.OutcomeDenied)
	f(`{"spec":{"signerName":"`+client+`","request":[1]}}`, admission.OutcomeDenied)

	// No API server sends this; the request cannot be read.
	f(`{"spec":{"signerName":"`+client+`","request":"LS0t?"}}`, admission.OutcomeErrored)
}

func TestHandles(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(operation, resource, object(client, "")))
	}
	f(codec.Create, requests, admission.OutcomeDenied)
	f(codec.Update, requests, admission.OutcomeAllowed)
	f(codec.Delete, requests, admission.OutcomeAllowed)
	f(codec.Create, "certificates.k8s.io/v1/clustertrustbundles", admission.OutcomeAllowed)
	f(codec.Create, "v1/certificatesigningrequests", admission.OutcomeAllowed)
}

// kubelet returns the request of a new node: the common case, which the plugin allows.
func kubelet(t testing.TB) []byte {
	t.Helper()
	text := block(requestType, request(t, pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}))
	return admissiontest.Body(codec.Create, requests, object("kubernetes.io/kube-apiserver-client-kubelet", text))
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, kubelet(t))
}

func BenchmarkValidate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "")
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Validate, want, body) })
	}
	f("other signer", admission.OutcomeAllowed, kubelet(b))
	f("allowed", admission.OutcomeAllowed, bytes.Replace(kubelet(b), []byte(client+"-kubelet"), []byte(client), 1))
	denied := block(requestType, request(b, pkix.Name{Organization: []string{masters}}))
	f("denied", admission.OutcomeDenied, admissiontest.Body(codec.Create, requests, object(client, denied)))
}
