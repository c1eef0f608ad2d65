// Package admissiontest tests plugins: with golden files, with reviews that a test builds,
// and with the recorded reviews of a real kube-apiserver.
package admissiontest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// NewChain returns a chain of one plugin with this configuration, "" for none, in a
// cluster with these objects. The objects must have their defaults, as an API server
// returns them.
func NewChain(plugin admission.Plugin, config string, objects ...runtime.Object) (*admission.Chain, error) {
	return newChain(plugin, admission.Enabled{Config: []byte(config)}, cluster.Options{Objects: append([]runtime.Object{}, objects...)})
}

func newChain(plugin admission.Plugin, enabled admission.Enabled, known cluster.Options) (*admission.Chain, error) {
	needs := plugin.AllNeeds(enabled.Config)
	known.Kinds = cluster.KindsOf(needs...)
	state, err := cluster.New(known)
	if err != nil {
		return nil, err
	}
	if err := state.Follow(context.Background(), needs...); err != nil {
		return nil, err
	}
	if len(enabled.Config) == 0 {
		enabled.Config = nil
	}
	return admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: enabled}, state, nil)
}

// Emulating returns the plugin as it behaves with a version of Kubernetes, such as "1.34".
func Emulating(t testing.TB, plugin admission.Plugin, version string) admission.Plugin {
	t.Helper()
	v, known, err := admission.ParseVersion(version)
	if err != nil || !known {
		t.Fatalf("version %q cannot be emulated: %v", version, err)
	}
	newHandler := plugin.New
	plugin.New = func(setup admission.Setup) (admission.Handler, error) {
		setup.Version = v
		return newHandler(setup)
	}
	return plugin
}

// MustChain is NewChain, but fails the test instead of returning an error.
func MustChain(t testing.TB, plugin admission.Plugin, config string, objects ...runtime.Object) *admission.Chain {
	t.Helper()
	chain, err := NewChain(plugin, config, objects...)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// ManifestsHandler creates the handler of a plugin that these manifests configure, in a
// cluster with these objects, for benchmarks of the handler alone.
func ManifestsHandler(t testing.TB, plugin admission.Plugin, manifests []admission.File, objects ...runtime.Object) admission.Handler {
	t.Helper()
	state, err := cluster.New(cluster.Options{Objects: objects})
	if err == nil {
		err = state.Follow(context.Background(), plugin.Needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	handler, err := plugin.New(admission.Setup{Manifests: manifests, Cluster: state.View(plugin.Needs...)})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// Body returns an AdmissionReview for a resource, such as "v1/pods" or
// "apps/v1/deployments", with an object in JSON. The request has the name "name" and the
// namespace "namespace", whatever the object contains.
func Body(operation codec.Operation, resource, object string) []byte {
	return body(operation, resource, object, "null")
}

// UpdateBody returns a review as Body does, for an update of oldObject to object.
func UpdateBody(resource, object, oldObject string) []byte {
	return body(codec.Update, resource, object, oldObject)
}

func body(operation codec.Operation, resource, object, oldObject string) []byte {
	kind := schema.FromAPIVersionAndKind(path.Dir(resource), "")
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":%q,"request":{"uid":"1",`+
		`"resource":{"group":%q,"version":%q,"resource":%q},"name":"name","namespace":"namespace",`+
		`"operation":%q,"object":%s,"oldObject":%s}}`,
		codec.APIVersionV1, kind.Group, kind.Version, path.Base(resource), operation, object, oldObject)
}

// Respond reviews a body as the server does, and appends the response to dst. If the
// plugin fails, the outcome says so, and the response has no decision.
func Respond(t testing.TB, chain *admission.Chain, phase admission.Phase, body, dst []byte) ([]byte, admission.Outcome) {
	review := codec.Acquire()
	defer review.Release()
	outcome, _ := ask(t, chain, phase, review, body)
	return review.AppendResponse(dst), outcome
}

// ask reviews a body with the chain. The error is the failure of a plugin.
func ask(t testing.TB, chain *admission.Chain, phase admission.Phase, review *codec.Review, body []byte) (admission.Outcome, error) {
	t.Helper()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	outcome, err := chain.Review(context.Background(), review, phase)
	if _, failed := errors.AsType[*admission.FailureError](err); err != nil && !failed {
		t.Fatal(err)
	}
	return outcome, err
}

// answered returns the response to a body. If the plugin fails, the test fails.
func answered(t testing.TB, chain *admission.Chain, phase admission.Phase, review *codec.Review, body []byte) json.RawMessage {
	t.Helper()
	if _, failure := ask(t, chain, phase, review, body); failure != nil {
		t.Fatalf("%s %.1000s\ngot failure %v, want an answer", phase, body, failure)
	}
	return readable(t, chain, review.AppendResponse(nil))
}

// CheckOutcome checks that the review of a body has the outcome want.
func CheckOutcome(t testing.TB, chain *admission.Chain, phase admission.Phase, want admission.Outcome, body []byte) {
	t.Helper()
	if response, got := Respond(t, chain, phase, body, nil); got != want {
		t.Errorf("%s %.1000s\ngot %s and %.1000s, want %s", phase, body, got, response, want)
	}
}

// Answer returns the AdmissionResponse to a review, with the patch decoded, without the
// uid and without the plugin's name that the chain adds. The test fails if the plugin
// fails.
func Answer(t testing.TB, chain *admission.Chain, phase admission.Phase, body []byte) json.RawMessage {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	return answered(t, chain, phase, review, body)
}

// readable returns the response of an AdmissionReview as Answer does.
func readable(t testing.TB, chain *admission.Chain, review []byte) json.RawMessage {
	t.Helper()
	var answer struct{ Response map[string]any }
	if err := json.Unmarshal(review, &answer); err != nil {
		t.Fatal(err)
	}
	delete(answer.Response, "uid")
	for _, plugin := range chain.Plugins() {
		forget(answer.Response, plugin.Name)
	}
	if patch, ok := answer.Response["patch"].(string); ok {
		decoded, err := base64.StdEncoding.DecodeString(patch)
		if err != nil {
			t.Fatal(err)
		}
		answer.Response["patch"] = json.RawMessage(decoded)
	}
	response, err := json.Marshal(answer.Response)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// forget removes the plugin's name, which the chain adds in three places: an audit
// annotation, the start of the message, and the last cause of a status. It also removes the UID of the
// review, which is in an annotation and the cause before.
func forget(response map[string]any, plugin string) {
	forgetMember(response, "auditAnnotations", plugin)
	forgetMember(response, "auditAnnotations", admission.CauseAdmissionReview)
	status, ok := response["status"].(map[string]any)
	if !ok {
		return
	}
	if message, ok := status["message"].(string); ok {
		status["message"] = strings.TrimPrefix(message, plugin+": ")
	}
	details, _ := status["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	own := map[string]any{"reason": admission.CauseAdmissionPlugin, "message": plugin}
	if last := len(causes) - 2; last >= 0 && reflect.DeepEqual(causes[last+1], own) {
		if details["causes"] = causes[:last]; last == 0 {
			forgetMember(status, "details", "causes")
		}
	}
}

// forgetMember removes a member of the object in parent, and the object if it is empty
// then.
func forgetMember(parent map[string]any, object, member string) {
	if members, ok := parent[object].(map[string]any); ok {
		if delete(members, member); len(members) == 0 {
			delete(parent, object)
		}
	}
}

// EqualJSON reports whether two JSON texts have the same value.
func EqualJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return reflect.DeepEqual(x, y)
}
