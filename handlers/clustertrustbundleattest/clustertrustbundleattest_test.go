package clustertrustbundleattest

import (
	"bytes"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const bundles = "certificates.k8s.io/v1beta1/clustertrustbundles"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// object returns a bundle of a signer with these additional fields of its metadata.
func object(signer, metadata string) string {
	return `{"apiVersion":"certificates.k8s.io/v1beta1","kind":"ClusterTrustBundle","metadata":{"name":"b"` + metadata +
		`},"spec":{"signerName":"` + signer + `","trustBundle":"t"}}`
}

func byJane(body []byte) []byte {
	return bytes.Replace(body, []byte(`"operation"`), []byte(`"userInfo":{"username":"jane"},"operation"`), 1)
}

func create(object string) []byte { return byJane(admissiontest.Body(codec.Create, bundles, object)) }

func update(object, old string) []byte { return byJane(admissiontest.UpdateBody(bundles, object, old)) }

// chain returns a chain of the plugin in a cluster in which all users may attest for the
// signers. It also returns the names that the plugin asks about.
func chain(t testing.TB, signers ...string) (*admission.Chain, *[]string) {
	asked := new([]string)
	return admissiontest.AccessChain(t, Plugin(), func(r *authorizationv1.SubjectAccessReview) {
		attributes := r.Spec.ResourceAttributes
		*asked = append(*asked, attributes.Verb+" "+attributes.Name)
		r.Status.Allowed = attributes.Verb == "attest" && slices.Contains(signers, attributes.Name)
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
	const abc, denied, named, wild = "abc.com/xyz", admission.OutcomeDenied, "attest abc.com/xyz", "attest abc.com/*"
	plain, labelled := object(abc, ""), object(abc, `,"labels":{"a":"b"}`)
	f(create(object("", "")), "", admission.OutcomeAllowed)
	f(update(object("", ""), plain), "", admission.OutcomeAllowed)
	f(create(plain), abc, admission.OutcomeAllowed, named)
	f(update(plain, labelled), abc, admission.OutcomeAllowed, named)
	f(create(plain), "abc.com/*", admission.OutcomeAllowed, named, wild)
	f(update(plain, labelled), "abc.com/*", admission.OutcomeAllowed, named, wild)
	f(create(plain), "notabc.com/xyz", denied, named, wild)
	f(update(plain, labelled), "notabc.com/xyz", denied, named, wild)
	f(update(plain, "null"), "", denied, named, wild)
	f(update(plain, plain), "", admission.OutcomeAllowed)
	f(update(plain, object("abc.com/other", "")), "", denied, named, wild)

	f(create(`{"spec":null}`), "", admission.OutcomeAllowed)
	f(create(`{}`), "", admission.OutcomeAllowed)
	f(create(`null`), "", denied)
	f(create(`{"spec":{"signerName":7}}`), "", denied)

	f(byJane(admissiontest.Body(codec.Create, "certificates.k8s.io/v1alpha1/clustertrustbundles", plain)), "", denied, named, wild)
	f(byJane(admissiontest.Body(codec.Delete, bundles, plain)), "", admission.OutcomeAllowed)
	f(byJane(admissiontest.Body(codec.Create, "v1beta1/clustertrustbundles", plain)), "", admission.OutcomeAllowed)
	f(byJane(admissiontest.Body(codec.Create, "certificates.k8s.io/v1beta1/others", plain)), "", admission.OutcomeAllowed)
}

// TestUnchanged checks which changes need no permission.
func TestUnchanged(t *testing.T) {
	f := func(metadata string, want admission.Outcome) {
		t.Helper()
		chain, _ := chain(t)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, update(object("a.b/c", metadata), object("a.b/c", "")))
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, update(object("a.b/c", ""), object("a.b/c", metadata)))
	}
	f(`,"ownerReferences":[{"apiVersion":"something"}]`, admission.OutcomeAllowed)
	f(`,"finalizers":["a.b/c"]`, admission.OutcomeAllowed)
	f(`,"managedFields":[{"manager":"m"}]`, admission.OutcomeAllowed)
	f(`,"selfLink":"/"`, admission.OutcomeAllowed)
	f(`,"labels":{},"annotations":null,"uid":""`, admission.OutcomeAllowed)
	f(`,"labels":{"a":"b"}`, admission.OutcomeDenied)
	f(`,"annotations":{"a":"b"}`, admission.OutcomeDenied)
	f(`,"generation":2`, admission.OutcomeDenied)
	f(`,"resourceVersion":"2"`, admission.OutcomeDenied)
	f(`,"deletionTimestamp":"2020-01-01T00:00:00Z"`, admission.OutcomeDenied)
}

func TestMessage(t *testing.T) {
	f := func(body []byte, want string) {
		t.Helper()
		chain, _ := chain(t)
		want = `{"allowed":false,"status":{"code":403,"details":{"group":"certificates.k8s.io","kind":"clustertrustbundles",` +
			`"name":"name"},` +
			`"message":"clustertrustbundles.certificates.k8s.io \"name\" is forbidden: ` + want +
			`","metadata":{},"reason":"Forbidden","status":"Failure"}}`
		if got := admissiontest.Answer(t, chain, admission.Validate, body); !admissiontest.EqualJSON(t, got, []byte(want)) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	f(create(object("a.b/c", "")), `user not permitted to attest for signerName \"a.b/c\"`)
	f(create("null"), "expected type ClusterTrustBundle, got: <nil>")
}

// TestNobodyAnswers has no API server to ask: the plugin fails only if it has to ask.
func TestNobodyAnswers(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeErrored, create(object("a.b/c", "")))
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, create(object("", "")))
}

func BenchmarkValidate(b *testing.B) {
	chain, _ := chain(b, "a.b/c")
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, create(object("a.b/c", "")))
}
