package certificatesigning

import (
	"bytes"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const requests = "certificates.k8s.io/v1/certificatesigningrequests"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// signing returns the review of an update by jane of the status of a request to a signer.
func signing(oldSigner, signer, oldStatus, status string) []byte {
	object := func(signer, status string) string {
		return `{"metadata":{"name":"jane"},"spec":{"signerName":"` + signer + `"},"status":` + status + `}`
	}
	return of(admissiontest.UpdateBody(requests, object(signer, status), object(oldSigner, oldStatus)), "status")
}

func of(body []byte, subResource string) []byte {
	return bytes.Replace(body, []byte(`"operation"`),
		[]byte(`"subResource":"`+subResource+`","userInfo":{"username":"jane"},"operation"`), 1)
}

// chain returns a chain of the plugin in a cluster in which all users may sign for the
// signers. It also returns the names that the plugin asks about.
func chain(t testing.TB, signers ...string) (*admission.Chain, *[]string) {
	asked := new([]string)
	return admissiontest.AccessChain(t, Plugin(), func(r *authorizationv1.SubjectAccessReview) {
		attributes := r.Spec.ResourceAttributes
		*asked = append(*asked, attributes.Verb+" "+attributes.Name)
		r.Status.Allowed = attributes.Verb == "sign" && slices.Contains(signers, attributes.Name)
	}), asked
}

const (
	none, data = `{}`, `{"certificate":"ZGF0YQ=="}`
	failed     = `{"conditions":[{"type":"Failed","status":"True","reason":"r","message":"m",` +
		`"lastUpdateTime":"2020-01-01T00:00:00Z","lastTransitionTime":null}]}`
)

// TestValidate has Kubernetes' own cases and more.
func TestValidate(t *testing.T) {
	f := func(body []byte, allowed string, want admission.Outcome, wantAsked ...string) {
		t.Helper()
		chain, asked := chain(t, allowed)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
		if !slices.Equal(*asked, wantAsked) {
			t.Errorf("%s, allowed %q: asked about %q, want %q", body, allowed, *asked, wantAsked)
		}
	}
	const abc, denied, named, wild = "abc.com/xyz", admission.OutcomeDenied, "sign abc.com/xyz", "sign abc.com/*"
	f(signing(abc, abc, data, data), "", admission.OutcomeAllowed)
	f(signing(abc, abc, none, data), "", denied, named, wild)
	f(signing(abc, abc, none, failed), "", denied, named, wild)
	f(signing(abc, abc, none, data), abc, admission.OutcomeAllowed, named)
	f(signing(abc, abc, none, data), "abc.com/*", admission.OutcomeAllowed, named, wild)
	f(signing(abc, abc, none, data), "notabc.com/xyz", denied, named, wild)
	f(signing("notabc.com/xyz", abc, none, data), abc, denied, "sign notabc.com/xyz", "sign notabc.com/*")

	f(signing(abc, abc, failed, none), "", denied, named, wild)
	f(signing(abc, abc, data, none), "", denied, named, wild)
	f(signing(abc, abc, data, `{"certificate":"ZGF0YQ==","conditions":[]}`), "", admission.OutcomeAllowed)
	f(signing(abc, abc, none, `{"certificate":null,"conditions":null}`), "", admission.OutcomeAllowed)
	f(signing(abc, abc, "null", `{"certificate":"","conditions":[]}`), "", admission.OutcomeAllowed)

	// Requests that the plugin ignores.
	signed := `{"spec":{"signerName":"abc.com/xyz"},"status":` + data + `}`
	f(of(admissiontest.UpdateBody(requests, signed, none), ""), "", admission.OutcomeAllowed)
	f(of(admissiontest.UpdateBody(requests, signed, none), "approval"), "", admission.OutcomeAllowed)
	f(of(admissiontest.UpdateBody("v1/certificatesigningrequests", signed, none), "status"), "", admission.OutcomeAllowed)
	f(of(admissiontest.Body(codec.Create, requests, signed), "status"), "", admission.OutcomeAllowed)
	f(of(admissiontest.UpdateBody(requests, signed, "null"), "status"), abc, denied)
	f(of(admissiontest.UpdateBody(requests, "null", signed), "status"), abc, denied)
}

// TestConditions changes each field of a condition.
func TestConditions(t *testing.T) {
	f := func(old, changed string, want admission.Outcome) {
		t.Helper()
		chain, _ := chain(t)
		status := bytes.Replace([]byte(failed), []byte(old), []byte(changed), 1)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, signing("a.b/c", "a.b/c", failed, string(status)))
	}
	f("Failed", "Failed", admission.OutcomeAllowed)
	f(`"status":"True","reason":"r"`, `"reason":"r" , "status":"True"`, admission.OutcomeAllowed)
	f("2020-01-01T00:00:00Z", "2020-01-01T01:00:00+01:00", admission.OutcomeAllowed)
	f("Failed", "Approved", admission.OutcomeDenied)
	f("True", "False", admission.OutcomeDenied)
	f(`"r"`, `"s"`, admission.OutcomeDenied)
	f(`"m"`, `"n"`, admission.OutcomeDenied)
	f("00:00:00Z", "00:00:01Z", admission.OutcomeDenied)
	f("null", `"2020-01-01T00:00:00Z"`, admission.OutcomeDenied)
}

func TestMessage(t *testing.T) {
	f := func(body []byte, want string) {
		t.Helper()
		chain, _ := chain(t)
		want = `{"allowed":false,"status":{"code":403,"details":{"group":"certificates.k8s.io",` +
			`"kind":"certificatesigningrequests","name":"name"},` +
			`"message":"certificatesigningrequests.certificates.k8s.io \"name\" is forbidden: ` + want +
			`","metadata":{},"reason":"Forbidden","status":"Failure"}}`
		if got := admissiontest.Answer(t, chain, admission.Validate, body); !admissiontest.EqualJSON(t, got, []byte(want)) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	f(signing("a.b/c", "d.e/f", none, data), `user not permitted to sign requests with signerName \"a.b/c\"`)
	f(of(admissiontest.UpdateBody(requests, data, "null"), "status"), "expected type CertificateSigningRequest, got: <nil>")
}

// TestNobodyAnswers has no API server to ask: the plugin fails only if it has to ask.
func TestNobodyAnswers(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeErrored, signing("a.b/c", "a.b/c", none, data))
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, signing("a.b/c", "a.b/c", data, data))
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied, signing("a.b/c", "a.b/c", none, `{"certificate":7}`))
}

func BenchmarkValidate(b *testing.B) {
	chain, _ := chain(b, "a.b/c")
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, signing("a.b/c", "a.b/c", none, data))
}
