package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionpolicy"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// mutated evaluates policies with fastadmit's plugin, and returns the object too.
func mutated(t testing.TB, chain *admission.Chain, body, object []byte) (*Answer, []byte) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(t.Context(), review, admission.Mutate); err != nil {
		t.Fatal(err)
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(review.AppendResponse(nil), &answer); err != nil {
		t.Fatal(err)
	}
	a := &Answer{Annotations: map[string]string{}}
	if r := answer.Response; !r.Allowed {
		a.Denied = r.Result
		a.Denied.Message = strings.TrimPrefix(a.Denied.Message, "MutatingAdmissionPolicy: ")
		causes := &a.Denied.Details.Causes
		*causes = slices.DeleteFunc(*causes, isOurs)
	} else if len(r.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(r.Patch)
		if err == nil {
			object, err = patch.Apply(object)
		}
		if err != nil {
			t.Fatalf("the patch does not apply: %v\n%s", err, r.Patch)
		}
	}
	return a, object
}

var strict = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// canonical returns an object as its Go type encodes it, or an error if it cannot be decoded.
func canonical(object []byte) ([]byte, error) {
	if len(object) == 0 || string(object) == "null" {
		return []byte("null"), nil
	}
	decoded, _, err := strict.Decode(object, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		stored, err := asStored(object)
		return bytes.TrimSpace(stored), err
	}
	if err != nil {
		return nil, err
	}
	if daemonSet, ok := decoded.(*appsv1.DaemonSet); ok { // an API server converts this annotation into a field of its internal type
		if text, ok := daemonSet.Annotations[appsv1.DeprecatedTemplateGeneration]; ok {
			if _, err := strconv.ParseInt(text, 10, 64); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(decoded)
}

// newMutating is NewUpstreamMutating or NewUntypedMutating.
type newMutating func(*MutatingDocuments, authorizer.UnconditionalAuthorizer, ...*corev1.Namespace) (*UpstreamMutating, error)

// answersDiffer reports whether upstream's packages answer the same request differently
// when they are asked again, so that nothing can be compared with them.
func answersDiffer(t *testing.T, begin newMutating, documents *MutatingDocuments, review *admissionv1.AdmissionReview, first *Answer) bool {
	t.Helper()
	for range 100 { // a loop over a small map begins at one of eight places
		upstream, err := begin(documents, readOnly{}, namespaces()...)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := upstream.Answer(review.Request)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, first) {
			return true
		}
	}
	return false
}

// TestGeneratedMutating compares both sides' evaluation of generated MutatingAdmissionPolicies on
// recorded requests and variants of them. If kube-apiserver cannot decode the object after a
// mutation, it must not be able to decode fastadmit's either.
func TestGeneratedMutating(t *testing.T) {
	start := seed.Of(t)
	row := tally.Row{Plugin: "MutatingAdmissionPolicy", Test: "generated in process"}
	for f, feature := range mutatingFeatures {
		t.Run(feature, func(t *testing.T) {
			r := rand.New(rand.NewPCG(start, uint64(1000+f)))
			var all outcomes
			for all.done < *cases && !t.Failed() {
				generatedMutating(t, r, feature, &all)
			}
			all.addTo(&row, t, feature)
			all.check(t)
		})
	}
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}

// outcomes counts the outcomes of generated cases. Unstable ones are those that upstream answers
// differently each time. panicked ones are those on which its JSON Patch library panics, such as a
// replacement of the whole object by nothing. Neither are compared. Listed ones differ only because upstream
// sees Go types (docs/versions.md).
type outcomes struct{ done, denied, changed, listed, unstable, panicked int }

// addTo adds the outcomes of a feature to a row. It fails a test in which so many are listed that the others say little.
func (o outcomes) addTo(row *tally.Row, t *testing.T, feature string) {
	t.Helper()
	row.Cases += o.done
	row.Listed = append(row.Listed, slices.Repeat([]string{"in-tree evaluates expressions on Go types of built-in kinds"}, o.listed)...)
	if t.Logf("%+v", o); !t.Failed() && o.done >= 100 && o.listed*5 > o.done {
		t.Errorf("got %d of %d listed, want one in five or fewer", o.listed, o.done)
	}
	if t.Failed() {
		row.Different = append(row.Different, feature)
	}
}

// check fails a test that passed without having compared enough.
func (o outcomes) check(t *testing.T) {
	t.Helper()
	if !t.Failed() && o.done >= 100 && (o.denied*50 < o.done || o.changed*50 < o.done || (o.unstable+o.panicked)*20 > o.done) {
		t.Errorf("got %+v, want some of each, and few that upstream panics on or answers differently each time", o)
	}
}

// answerOrPanic returns no answer if upstream panics.
func answerOrPanic(u *UpstreamMutating, request *admissionv1.AdmissionRequest) (answer *Answer, object []byte, err error) {
	defer func() {
		if recover() != nil {
			answer, object, err = nil, nil, nil
		}
	}()
	return u.Answer(request)
}

// generatedMutating compares both sides with some policies on some requests.
func generatedMutating(t *testing.T, r *rand.Rand, feature string, all *outcomes) {
	t.Helper()
	g, err := newGenerator(r, feature)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := g.mutatingDocuments()
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := NewUpstreamMutating(documents, readOnly{}, namespaces()...)
	if err != nil {
		t.Fatal(err)
	}
	chain := oursMutating(t, documents, g.release)
	for range 5 {
		body, err := g.review()
		if err != nil {
			t.Fatal(err)
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil {
			t.Fatal(err)
		}
		want, wantObject, err := answerOrPanic(upstream, review.Request)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if want == nil {
			all.panicked++
			continue
		}
		if want.Denied != nil && want.Denied.Reason == metav1.StatusReasonServiceUnavailable {
			continue // client-go has no schema for Scale, Binding and TokenRequest
		}
		got, gotObject := mutated(t, chain, body, review.Request.Object.Raw)
		before, err := canonical(review.Request.Object.Raw)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		decoded, undecodable := canonical(gotObject)
		differ := compareMutated(got, want, decoded, undecodable, wantObject, before)
		listed := false
		if differ != "" {
			var unstable bool
			listed, unstable = excused(t, documents, &review, want, func(want *Answer, wantObject []byte) bool {
				return compareMutated(got, want, decoded, undecodable, wantObject, before) == ""
			})
			if unstable {
				all.unstable++
				continue
			}
		}
		if all.done++; listed {
			all.listed++
		} else if differ != "" {
			text, _ := yaml.Marshal(documents)
			t.Errorf("%s\n%s\non %.1500s", text, differ, body)
		}
		if want.Denied != nil {
			all.denied++
		} else if string(wantObject) != string(before) {
			all.changed++
		}
	}
}

// excused reports whether only Go types make a difference, or else whether upstream answers differently each time.
func excused(t *testing.T, documents *MutatingDocuments, review *admissionv1.AdmissionReview, first *Answer,
	equal func(*Answer, []byte) bool) (listed, unstable bool) {
	t.Helper()
	upstream, err := NewUntypedMutating(documents, readOnly{}, namespaces()...)
	if err != nil {
		t.Fatal(err)
	}
	want, wantObject, err := answerOrPanic(upstream, review.Request)
	if err != nil {
		t.Fatal(err)
	}
	if want != nil && equal(want, wantObject) {
		return true, false
	}
	return false, answersDiffer(t, NewUpstreamMutating, documents, review, first) ||
		want != nil && answersDiffer(t, NewUntypedMutating, documents, review, want)
}

// compareMutated describes the difference. If the Go type cannot have the object, fastadmit leaves
// the decision to kube-apiserver, which refuses the patch. Upstream's policy fails then: the
// request is denied, or the object stays as it was.
func compareMutated(got, want *Answer, gotObject []byte, undecodable error, wantObject, before []byte) string {
	if undecodable != nil && got.Denied == nil {
		if _, err := canonical(wantObject); err != nil && want.Denied == nil {
			return "" // upstream's plugin made such an object too
		}
		if want.Denied == nil && string(wantObject) != string(before) || want.Denied != nil && !isUndecodable(want.Denied) {
			return fmt.Sprintf("got an object that cannot be decoded (%v), want %s", undecodable, difference(normal(got), normal(want)))
		}
		return ""
	}
	if got.Denied != nil && want.Denied != nil && strings.Contains(want.Denied.Message, "failed to convert object: strconv.ParseInt") {
		return "" // an annotation of a DaemonSet that a mutation before has made: here the mutation after it is refused
	}
	if want.Denied != nil {
		want.Denied.Status = metav1.StatusFailure
	}
	if differ := difference(normal(got), normal(want)); differ != "" || want.Denied != nil {
		return differ
	}
	return difference(string(gotObject), string(wantObject))
}

// isUndecodable reports whether kube-apiserver could not decode what a mutation made.
func isUndecodable(status *metav1.Status) bool {
	return status.Reason == metav1.StatusReasonInternalError || strings.Contains(status.Message, "unable to convert unstructured object")
}

func oursMutating(t testing.TB, documents *MutatingDocuments, release admission.Version) *admission.Chain {
	t.Helper()
	var manifests []admission.File
	for i := range documents.Policies {
		manifests = append(manifests, fileOf(t, "MutatingAdmissionPolicy", documents.Policies[i].Name, documents.Policies[i]))
	}
	for i := range documents.Bindings {
		manifests = append(manifests, fileOf(t, "MutatingAdmissionPolicyBinding", documents.Bindings[i].Name, documents.Bindings[i]))
	}
	return chainOf(t, mutatingadmissionpolicy.Plugin(), release, manifests)
}
