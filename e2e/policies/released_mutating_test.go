package policies

import (
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/released"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/seed"
)

var releasedMutatingCases = flag.Int("released-mutating", tally.Cases(40, 10_000),
	"generated cases for each feature of mutating policies and each release")

// TestReleasedMutating does the same as TestReleased for MutatingAdmissionPolicy, with its feature gate on. The
// objects are merged with the schemas that the API server of the release publishes. Features run side by side,
// because the plugin takes a fifth of a second to be ready with another policy.
func TestReleasedMutating(t *testing.T) {
	start := seed.Of(t)
	oracle.Releases(t, func(t *testing.T, command string, release admission.Version) {
		row := tally.Row{Plugin: "MutatingAdmissionPolicy", Test: "generated in process, Kubernetes " + release.String()}
		var mutex sync.Mutex // of row
		t.Cleanup(func() {
			if err := row.Write(); err != nil {
				t.Error(err)
			}
		})
		for f, feature := range mutatingFeatures {
			t.Run(feature, func(t *testing.T) {
				t.Parallel()
				all := generatedFeature(t, rand.New(rand.NewPCG(start, uint64(1000+f))), feature, command, release)
				mutex.Lock()
				defer mutex.Unlock()
				row.Cases += all.done
				row.Listed = append(row.Listed, slices.Repeat([]string{"the same key twice in a list"}, all.listed)...)
				if t.Failed() {
					row.Different = append(row.Different, feature)
				}
			})
		}
	})
}

// generatedFeature compares both sides with policies of a feature.
func generatedFeature(t *testing.T, r *rand.Rand, feature, command string, release admission.Version) (all outcomes) {
	t.Helper()
	plugin := "MutatingAdmissionPolicy"
	process, err := oracle.StartReleased(command, released.Settings{
		Plugin: plugin, Gate: plugin, OpenAPI: strings.Replace(command, "released-", "openapi-", 1),
	}, oracle.World{Authorizer: readOnly{}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for all.done < *releasedMutatingCases && !t.Failed() {
		generatedReleasedMutating(t, r, feature, release, &releasedPlugin{Released: process}, &all)
	}
	if t.Logf("%+v", all); !t.Failed() && *releasedMutatingCases >= 1000 { // of fewer policies, some do not match anything
		all.check(t)
	}
	return all
}

// generatedReleasedMutating compares both sides with a policy on some requests.
func generatedReleasedMutating(t *testing.T, r *rand.Rand, feature string, release admission.Version, upstream *releasedPlugin,
	all *outcomes) {
	t.Helper()
	g, err := newGenerator(r, feature)
	if err != nil {
		t.Fatal(err)
	}
	g.release = release
	documents, err := g.mutatingDocuments()
	if err != nil {
		t.Fatal(err)
	}
	documents.Policies, documents.Bindings = documents.Policies[:1], documents.Bindings[:1] // Kubernetes runs several in no order
	upstream.useMutating(t, documents, release)
	chain := oursMutating(t, documents, release)
	for range 5 {
		body, err := g.review()
		if err == nil {
			body, err = upstream.Sent(body)
		}
		if err != nil {
			t.Fatal(err)
		}
		if body != nil {
			upstream.compareMutated(t, documents, release, chain, body, all)
		}
	}
}

// mutatingVersion returns the API version in which a release has MutatingAdmissionPolicies.
func mutatingVersion(release admission.Version) string {
	switch {
	case release.AtLeast(1, 36):
		return "v1"
	case release.AtLeast(1, 34):
		return "v1beta1"
	}
	return "v1alpha1"
}

// useMutating makes a policy and its binding the only ones.
func (p *releasedPlugin) useMutating(t *testing.T, documents *MutatingDocuments, release admission.Version) {
	t.Helper()
	var objects []runtime.Object
	for kind, object := range map[string]any{
		"MutatingAdmissionPolicy": &documents.Policies[0], "MutatingAdmissionPolicyBinding": &documents.Bindings[0],
	} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		content["apiVersion"], content["kind"] = "admissionregistration.k8s.io/"+mutatingVersion(release), kind
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	for _, namespace := range namespaces() {
		objects = append(objects, namespace)
	}
	if err := p.Know(objects); err != nil {
		t.Fatal(err)
	}
}

// compareMutated compares both sides on a request. fastadmit merges some kinds with the schemas that an API server
// publishes, and here it has none: custom resources, those of apiextensions.k8s.io, and Bindings.
func (p *releasedPlugin) compareMutated(t *testing.T, documents *MutatingDocuments, release admission.Version, chain *admission.Chain,
	body []byte, all *outcomes) {
	t.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	if kind := review.Request.Kind; !scheme.Scheme.IsGroupRegistered(kind.Group) || kind.Kind == "Binding" {
		return
	}
	answer, err := p.Ask(body, admission.Mutate)
	if errors.Is(err, oracle.ErrPanicked) {
		all.panicked++
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	want := &Answer{Denied: answer.Status.DeepCopy(), Annotations: map[string]string{}}
	if want.Denied != nil {
		if want.Denied.TypeMeta = (metav1.TypeMeta{}); want.Denied.Reason == metav1.StatusReasonServiceUnavailable {
			return // it has no schema, as of Scale
		}
	}
	got, object := mutated(t, chain, body, review.Request.Object.Raw)
	before := p.encoded(t, &review, review.Request.Object.Raw)
	object, undecodable := canonical(object)
	if undecodable == nil {
		object = p.encoded(t, &review, object)
	}
	differ := compareMutated(got, want, object, undecodable, answer.After, before)
	if differ != "" && p.answersDiffer(t, body, answer) {
		all.unstable++
		return
	}
	if all.done++; differ != "" && !release.AtLeast(1, 35) && refusesDuplicates(want.Denied) {
		all.listed++
	} else if differ != "" {
		text, _ := yaml.Marshal(documents)
		t.Errorf("%s\n%s\non %.1500s", differ, text, body)
	}
	if want.Denied != nil {
		all.denied++
	} else if string(answer.After) != string(before) {
		all.changed++
	}
}

// refusesDuplicates reports whether a release before 1.35 refused to merge into an object with the same key twice in a
// list, or the same element in a set (docs/versions.md).
func refusesDuplicates(status *metav1.Status) bool {
	return status != nil && status.Details != nil && slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
		return strings.Contains(c.Message, "failed to convert original object to typed object") &&
			strings.Contains(c.Message, "duplicate entries for key")
	})
}

// encoded returns an object of a review as the release encodes it.
func (p *releasedPlugin) encoded(t *testing.T, review *admissionv1.AdmissionReview, object []byte) []byte {
	t.Helper()
	if len(object) == 0 || string(object) == "null" {
		return []byte("null")
	}
	review.Request.Object.Raw = object
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	known, err := p.Reencode(body)
	if err != nil {
		t.Fatal(err)
	}
	return known.Request.Object.Raw
}

// answersDiffer reports whether the release answers the same request differently when it is asked again.
func (p *releasedPlugin) answersDiffer(t *testing.T, body []byte, first *oracle.ReleasedAnswer) bool {
	t.Helper()
	for range 100 { // a loop over a small map begins at one of eight places
		again, err := p.Ask(body, admission.Mutate)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, first) {
			return true
		}
	}
	return false
}
