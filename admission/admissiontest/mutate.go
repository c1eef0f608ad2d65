package admissiontest

import (
	"encoding/json"
	"path"
	"slices"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// CheckAdmit checks that the creation of object is changed to want, and that a second call
// does not change it further. The resource is as for Body.
func CheckAdmit(t testing.TB, chain *admission.Chain, resource, object, want string) {
	t.Helper()
	if got, _ := admit(t, chain, Body(codec.Create, resource, object)); !EqualJSON(t, got, []byte(want)) {
		t.Errorf("%s %s\ngot another object\n%s", resource, object, Difference(got, []byte(want)))
	}
	checkStays(t, chain, Body(codec.Create, resource, want))
}

// CheckPodsCreateUpdate checks a plugin for the creation and update of pods: it must
// change object, a pod, in both operations, and must get no other requests.
func CheckPodsCreateUpdate(t testing.TB, chain *admission.Chain, object string) {
	t.Helper()
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		CheckOutcome(t, chain, admission.Mutate, want, Body(operation, resource, object))
	}
	f(codec.Create, "v1/pods", admission.OutcomePatched)
	f(codec.Update, "v1/pods", admission.OutcomePatched)
	f(codec.Delete, "v1/pods", admission.OutcomeAllowed)
	f(codec.Connect, "v1/pods", admission.OutcomeAllowed)
	f(codec.Create, "v1/podtemplates", admission.OutcomeAllowed)
	f(codec.Create, "example.com/v1/pods", admission.OutcomeAllowed)
}

// Mutates is MutatesChain for a plugin with this configuration, "" for none, in a cluster
// without objects.
func Mutates(t *testing.T, plugin admission.Plugin, config string, change func(body []byte) []byte, places ...string) {
	t.Helper()
	MutatesChain(t, MustChain(t, plugin, config), change, places...)
}

// MutatesChain runs a mutating plugin on every recorded review. It checks that the patch
// can be applied with kube-apiserver's library and results in the object that the plugin
// made, that a second call with the result changes nothing, and that each operation of
// the patch changes one of the places. It fails if the plugin changes no review at all.
// If change is not nil, it is applied to each body first, for example to undo changes of
// kube-apiserver's own plugins.
//
// Places are JSON Pointers (RFC 6901) with the wildcards of path.Match: "*" matches any
// token or part of a token, "?" any character of a token; neither matches "/". So
// "/spec/containers/*/image" matches the image of each container, and nothing above or
// below it. A plugin that may add /spec/tolerations and also append to it needs
// "/spec/tolerations" and "/spec/tolerations/*".
func MutatesChain(t *testing.T, chain *admission.Chain, change func(body []byte) []byte, places ...string) {
	t.Helper()
	patched := 0
	for _, name := range corpus.Names() {
		body := corpus.MustRead(name)
		if change != nil {
			body = change(body)
		}
		t.Run(name, func(t *testing.T) {
			if mutates(t, chain, body, places) {
				patched++
			}
		})
	}
	if patched == 0 {
		t.Errorf("%s changed nothing in %d recordings", chain.Plugins()[0].Name, len(corpus.Names()))
	}
}

func mutates(t *testing.T, chain *admission.Chain, body []byte, places []string) bool {
	object, patch := admit(t, chain, body)
	for _, operation := range patch {
		pointer, err := operation.Path()
		isPlace := func(place string) bool {
			ok, err := path.Match(place, pointer)
			return ok && err == nil
		}
		if err != nil || !slices.ContainsFunc(places, isPlace) {
			t.Errorf("touched %q (%v), want one of %q", pointer, err, places)
		}
	}
	if patch != nil {
		checkStays(t, chain, withObject(t, body, object))
	}
	return patch != nil
}

// admit applies the patch of the response with kube-apiserver's library. It returns the
// resulting object and the patch, nil if there is none, and checks that the plugin made the
// same object.
func admit(t testing.TB, chain *admission.Chain, body []byte) (object []byte, patch jsonpatch.Patch) {
	t.Helper()
	var sent struct {
		Request struct{ Object json.RawMessage }
	}
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	review := codec.Acquire()
	defer review.Release()
	answer := answered(t, chain, admission.Mutate, review, body)
	var response struct {
		Allowed bool
		Patch   json.RawMessage
	}
	if err := json.Unmarshal(answer, &response); err != nil || !response.Allowed {
		t.Fatalf("%s\ngot %s (%v), want it allowed", body, answer, err)
	}
	if response.Patch == nil {
		return sent.Request.Object, nil
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatalf("%v in %s", err, response.Patch)
	}
	object, err = patch.Apply(sent.Request.Object)
	if err != nil {
		t.Fatalf("%v in %s", err, response.Patch)
	}
	if made := review.Object.Root().AppendJSON(nil); !EqualJSON(t, object, made) {
		t.Errorf("the patch gives another object than the plugin made\n%s", Difference(object, made))
	}
	return object, patch
}

// checkStays checks that a review of an object that the plugin changed gets no patch.
func checkStays(t testing.TB, chain *admission.Chain, body []byte) {
	t.Helper()
	again, patch := admit(t, chain, body)
	if patch == nil {
		return
	}
	var once struct {
		Request struct{ Object json.RawMessage }
	}
	if err := json.Unmarshal(body, &once); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	t.Errorf("mutating twice is not mutating once: got\n%s", Difference(again, once.Request.Object))
}

// withObject returns the review with another object.
func withObject(t testing.TB, body, object []byte) []byte {
	t.Helper()
	var review map[string]any
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	review["request"].(map[string]any)["object"] = json.RawMessage(object)
	changed, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}
