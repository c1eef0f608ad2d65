package persistentvolumeclaimresize

import (
	"bytes"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const (
	claims    = "v1/persistentvolumeclaims"
	recording = "persistentvolumeclaims-update-v1-1.json"
)

func chain(t testing.TB) *admission.Chain {
	t.Helper()
	class := func(name string, grows *bool) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, AllowVolumeExpansion: grows}
	}
	return admissiontest.MustChain(t, Plugin(), "", class("gold", new(true)), class("silver", new(false)), class("tin", nil))
}

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// claim returns a claim with these fields of its spec for the class, and with this size in
// JSON.
func claim(phase, class, size string) string {
	return `{"metadata":{"name":"data"},"spec":{` + class + `"resources":{"requests":{"storage":` + size +
		`}}},"status":{"phase":"` + phase + `"}}`
}

// TestSizes checks which sizes count as larger.
func TestSizes(t *testing.T) {
	chain := chain(t)
	f := func(was, is string, want admission.Outcome) {
		t.Helper()
		body := admissiontest.UpdateBody(claims, claim("Pending", "", is), claim("Pending", "", was))
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
	}
	larger := func(was, is string) {
		t.Helper()
		f(was, is, admission.OutcomeDenied)
		f(is, was, admission.OutcomeAllowed)
		f(is, is, admission.OutcomeAllowed)
	}
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed,
		admissiontest.UpdateBody(claims, `null`, claim("Pending", "", `"-1Gi"`)))
	larger(`"1Gi"`, `"2Gi"`)
	larger(`"1G"`, `"1Gi"`)
	larger(`"1.4Gi"`, `"1.5Gi"`)
	larger(`"100m"`, `"1"`)
	larger(`"1u"`, `"2u"`)
	larger(`"6Ei"`, `"7Ei"`)
	larger(`null`, `"1"`)
	larger(`"0"`, `1`)
	larger(`"-1Gi"`, `"0"`)
	larger(`1000`, `1024`)
	f(`"1Gi"`, `"1024Mi"`, admission.OutcomeAllowed)
	f(`"1e3"`, `"1000"`, admission.OutcomeAllowed)
	f(`null`, `"0"`, admission.OutcomeAllowed)
	f(`"8Ei"`, `"9Ei"`, admission.OutcomeAllowed) // larger than the maximum of quantities

	// Texts that are not quantities.
	f(`"1Gi"`, `"much"`, admission.OutcomeErrored)
	f(`"much"`, `"1Gi"`, admission.OutcomeErrored)
	f(`"much"`, `"much"`, admission.OutcomeAllowed) // the same text is not larger
	f(`"1Gi"`, `""`, admission.OutcomeErrored)
	f(`"1Gi"`, `true`, admission.OutcomeErrored)
	f(`"1Gi"`, `{}`, admission.OutcomeErrored)
}

// TestSizeErrors checks the error about an invalid size.
func TestSizeErrors(t *testing.T) {
	f := func(was, is, want string) {
		t.Helper()
		var before, after codec.Object
		before.Reset([]byte(claim("Bound", "", was)))
		after.Reset([]byte(claim("Bound", "", is)))
		if _, err := grows(before.Root(), after.Root()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f(`"1Gi"`, `"much"`, `object: spec.resources.requests.storage: got "much": quantities must match`)
	f(`{"a":1}`, `"1Gi"`, `oldObject: spec.resources.requests.storage: got {"a":1}: quantities must match`)
}

// TestGrowing checks which claims may grow.
func TestGrowing(t *testing.T) {
	chain := chain(t)
	f := func(was, is string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.UpdateBody(claims, is, was))
	}
	class := func(was, is string, want admission.Outcome) {
		t.Helper()
		f(claim("Bound", was, `"1Gi"`), claim("Bound", is, `"2Gi"`), want)
	}
	const gold = `"storageClassName":"gold",`
	class(gold, gold, admission.OutcomeAllowed)
	class(`"storageClassName":"silver",`, `"storageClassName":"silver",`, admission.OutcomeDenied)
	class(`"storageClassName":"tin",`, `"storageClassName":"tin",`, admission.OutcomeDenied)
	class(`"storageClassName":"gone",`, `"storageClassName":"gone",`, admission.OutcomeDenied)
	class(`"storageClassName":"",`, `"storageClassName":"",`, admission.OutcomeDenied)
	class(`"storageClassName":null,`, `"storageClassName":null,`, admission.OutcomeDenied)
	class(``, ``, admission.OutcomeDenied)
	class(``, gold, admission.OutcomeDenied)
	class(gold, ``, admission.OutcomeDenied)
	class(`"storageClassName":"silver",`, gold, admission.OutcomeDenied)

	// The phase of the old object counts.
	f(claim("Pending", gold, `"1Gi"`), claim("Bound", gold, `"2Gi"`), admission.OutcomeDenied)
	f(claim("bound", gold, `"1Gi"`), claim("Bound", gold, `"2Gi"`), admission.OutcomeDenied)
	f(claim("Bound", gold, `"1Gi"`), claim("Lost", gold, `"2Gi"`), admission.OutcomeAllowed)

	// The annotation takes precedence over the field.
	annotated := func(class, field, size string) string {
		return `{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":` + class + `}},` +
			`"spec":{"storageClassName":"` + field + `","resources":{"requests":{"storage":"` + size + `"}}},"status":{"phase":"Bound"}}`
	}
	f(annotated(`"gold"`, "silver", "1Gi"), annotated(`"gold"`, "silver", "2Gi"), admission.OutcomeAllowed)
	f(annotated(`"gold"`, "silver", "1Gi"), claim("Bound", gold, `"2Gi"`), admission.OutcomeAllowed)
	f(annotated(`"silver"`, "gold", "1Gi"), annotated(`"silver"`, "gold", "2Gi"), admission.OutcomeDenied)
	f(annotated(`""`, "gold", "1Gi"), annotated(`""`, "gold", "2Gi"), admission.OutcomeDenied)
	f(annotated(`null`, "gold", "1Gi"), annotated(`null`, "gold", "2Gi"), admission.OutcomeDenied) // an API server reads null as ""

	// A claim without a size does not grow.
	f(`null`, claim("Bound", gold, `"2Gi"`), admission.OutcomeAllowed)
	f(claim("Bound", gold, `"1Gi"`), `null`, admission.OutcomeAllowed)
	f(claim("Bound", gold, `"1Gi"`), `{}`, admission.OutcomeAllowed)
	f(`{}`, `{"spec":"claim"}`, admission.OutcomeAllowed)
	f(`{}`, claim("Bound", gold, `"2Gi"`), admission.OutcomeDenied)
}

func TestHandles(t *testing.T) {
	chain := chain(t)
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		body := admissiontest.UpdateBody(resource, claim("Bound", "", `"2Gi"`), claim("Bound", "", `"1Gi"`))
		body = bytes.Replace(body, []byte(`"UPDATE"`), []byte(`"`+operation+`"`), 1)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
	}
	f(codec.Update, claims, admission.OutcomeDenied)
	f(codec.Create, claims, admission.OutcomeAllowed)
	f(codec.Delete, claims, admission.OutcomeAllowed)
	f(codec.Update, "v1/persistentvolumes", admission.OutcomeAllowed)
	f(codec.Update, "example.com/v1/persistentvolumeclaims", admission.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := chain(t)
	body := corpus.MustRead(recording)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, body)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, grown(t, body, "gold"))
}

func BenchmarkValidate(b *testing.B) {
	chain := chain(b)
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Validate, want, body) })
	}
	body := corpus.MustRead(recording)
	f("same size", admission.OutcomeAllowed, body)
	f("allowed", admission.OutcomeAllowed, grown(b, body, "gold"))
	f("denied", admission.OutcomeDenied, grown(b, body, "silver"))
}

// grown changes a recording into an update that enlarges a bound claim of this class.
func grown(t testing.TB, body []byte, class string) []byte {
	t.Helper()
	body = bytes.ReplaceAll(body, []byte(`"storageClassName":"fast"`), []byte(`"storageClassName":"`+class+`"`))
	body = bytes.ReplaceAll(body, []byte(`"status":{"phase":"Pending"}`), []byte(`"status":{"phase":"Bound"}`))
	object, old, ok := bytes.Cut(body, []byte(`"oldObject":`))
	if !ok {
		t.Fatalf("%s has no old object", recording)
	}
	old = bytes.Replace(old, []byte(`"storage":"10Gi"`), []byte(`"storage":"9Gi"`), 1)
	return bytes.Join([][]byte{object, old}, []byte(`"oldObject":`))
}
