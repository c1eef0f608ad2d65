package certificateapproval

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const requests = "certificates.k8s.io/v1/certificatesigningrequests"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// approval returns the review of an approval by jane, with these signers in the old and the
// new object.
func approval(old, signer string) []byte {
	object := func(signer string) string { return `{"metadata":{"name":"jane"},"spec":{"signerName":` + signer + `}}` }
	return of(admissiontest.UpdateBody(requests, object(signer), object(old)), "approval")
}

func of(body []byte, subResource string) []byte {
	return bytes.Replace(body, []byte(`"operation"`),
		[]byte(`"subResource":"`+subResource+
			`","userInfo":{"username":"jane","uid":"7","groups":["g"],"extra":{"scope":["x"]}},"operation"`), 1)
}

// chain returns a chain of the plugin in a cluster in which all users may approve for the
// signers. It also returns the names that the plugin asks about.
func chain(t testing.TB, signers ...string) (*admission.Chain, *[]string) {
	asked := new([]string)
	return admissiontest.AccessChain(t, Plugin(), func(r *authorizationv1.SubjectAccessReview) {
		name := r.Spec.ResourceAttributes.Name
		*asked = append(*asked, name)
		r.Status.Allowed = slices.Contains(signers, name)
	}), asked
}

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
	const abc, denied = "abc.com/xyz", admission.OutcomeDenied
	f(approval(`"abc.com/xyz"`, `"abc.com/xyz"`), abc, admission.OutcomeAllowed, abc)
	f(approval(`"abc.com/xyz"`, `"abc.com/xyz"`), "", denied, abc, "abc.com/*")
	f(approval(`"abc.com/xyz"`, `"abc.com/xyz"`), "abc.com/*", admission.OutcomeAllowed, abc, "abc.com/*")
	f(approval(`"abc.com/xyz"`, `"def.com/xyz"`), "abc.com/*", admission.OutcomeAllowed, abc, "abc.com/*")
	f(approval(`"def.com/xyz"`, `"abc.com/xyz"`), "abc.com/*", denied, "def.com/xyz", "def.com/*")

	// Names that are invalid for signers.
	f(approval(`"abc.com/x/y"`, `""`), "abc.com/*", admission.OutcomeAllowed, "abc.com/x/y", "abc.com/*")
	f(approval(`"abc.com"`, `""`), "abc.com/*", admission.OutcomeAllowed, "abc.com", "abc.com/*")
	f(approval(`""`, `"abc.com/xyz"`), abc, denied, "", "/*")
	f(approval(`null`, `"abc.com/xyz"`), abc, denied, "", "/*")
	f(approval(`7`, `"abc.com/xyz"`), abc, denied, "", "/*")
	f(approval(`"/"`, `"abc.com/xyz"`), abc, denied, "/", "/*")

	// Each question is asked only once.
	f(approval(`"abc.com/*"`, `"abc.com/xyz"`), abc, denied, "abc.com/*")

	// Requests that the plugin ignores.
	signed := `{"spec":{"signerName":"abc.com/xyz"}}`
	f(of(admissiontest.UpdateBody(requests, signed, signed), ""), "", admission.OutcomeAllowed)
	f(of(admissiontest.UpdateBody(requests, signed, signed), "status"), "", admission.OutcomeAllowed)
	f(of(admissiontest.UpdateBody("v1/certificatesigningrequests", signed, signed), "approval"), "", admission.OutcomeAllowed)
	f(of(admissiontest.UpdateBody("certificates.k8s.io/v1/others", signed, signed), "approval"), "", admission.OutcomeAllowed)
	f(of(admissiontest.Body(codec.Create, requests, signed), "approval"), "", admission.OutcomeAllowed)
	f(of(admissiontest.UpdateBody(requests, signed, "null"), "approval"), abc, denied)
	f(of(admissiontest.UpdateBody(requests, signed, "{}"), "approval"), abc, denied, "", "/*")
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
	f(approval(`"a.b/c"`, `"a.b/c"`), `user not permitted to approve requests with signerName \"a.b/c\"`)
	f(approval(`"a\n\"\u00e9"`, `""`), `user not permitted to approve requests with signerName \"a\\n\\\"é\"`)
	f(of(admissiontest.UpdateBody(requests, "{}", "null"), "approval"), "expected type CertificateSigningRequest, got: <nil>")
}

// TestQuestion checks the access reviews, and the results of their answers.
func TestQuestion(t *testing.T) {
	f := func(status authorizationv1.SubjectAccessReviewStatus, want admission.Outcome) {
		t.Helper()
		chain := admissiontest.AccessChain(t, Plugin(), func(r *authorizationv1.SubjectAccessReview) {
			got := *r.Spec.ResourceAttributes
			if want := (authorizationv1.ResourceAttributes{Verb: "approve", Group: "certificates.k8s.io", Version: "*",
				Resource: "signers", Name: got.Name}); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if r.Spec.User != "jane" || r.Spec.UID != "7" || !slices.Equal(r.Spec.Groups, []string{"g"}) ||
				len(r.Spec.Extra["scope"]) != 1 {
				t.Errorf("got the user %v", r.Spec)
			}
			r.Status = status
		})
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, approval(`"a.b/c"`, `"a.b/c"`))
	}
	f(authorizationv1.SubjectAccessReviewStatus{Allowed: true}, admission.OutcomeAllowed)
	f(authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "lost"}, admission.OutcomeDenied)
	f(authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}, admission.OutcomeDenied)
	f(authorizationv1.SubjectAccessReviewStatus{Denied: true}, admission.OutcomeDenied)
	f(authorizationv1.SubjectAccessReviewStatus{EvaluationError: "lost"}, admission.OutcomeDenied)
}

// TestNobodyAnswers has no API server: the plugin fails. No user can cause this.
func TestNobodyAnswers(t *testing.T) {
	body := approval(`"a.b/c"`, `"a.b/c"`)
	chain := admissiontest.MustChain(t, Plugin(), "")
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeErrored, body)
	strange := bytes.Replace(body, []byte(`["g"]`), []byte(`"g"`), 1)
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeErrored, strange)
}

// TestLongSigner has a name that is too long for a signer: the plugin denies without asking.
func TestLongSigner(t *testing.T) {
	chain, asked := chain(t, "a.b/*")
	long := `"a.b/` + strings.Repeat("x", 1<<20) + `"`
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, approval(long, long))
	if !slices.Equal(*asked, []string{"a.b/*"}) {
		t.Errorf("asked %d questions, want that about the wildcard", len(*asked))
	}
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied, approval(strings.ReplaceAll(long, "a.b/", ""), long))
}

func BenchmarkValidate(b *testing.B) {
	f := func(name string, want admission.Outcome, signers ...string) {
		b.Run(name, func(b *testing.B) {
			chain, _ := chain(b, signers...)
			admissiontest.Benchmark(b, chain, admission.Validate, want, approval(`"a.b/c"`, `"a.b/c"`))
		})
	}
	f("allowed", admission.OutcomeAllowed, "a.b/c")
	f("denied", admission.OutcomeDenied)
}
