// Package compare sends reviews to a webhook twice, through controller-runtime's own server and as
// a plugin of fastadmit, and compares kube-apiserver's results.
package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/fastadmit/fastadmit/adapters/controllerruntime"
	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// Answer is kube-apiserver's result of a response.
type Answer struct {
	Allowed     bool
	Status      metav1.Status // of a denial
	Warnings    []string
	Annotations map[string]string
	Object      any // the object after the webhook, decoded
}

func (a Answer) String() string {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Same checks that a webhook gives the same answer both ways in that phase, and returns the answer.
func Same(t testing.TB, webhook *admission.Webhook, phase fastadmit.Phase, body []byte) Answer {
	t.Helper()
	theirs, ours := Served(t, webhook, body), Adapted(t, webhook, phase, body)
	want := theirs
	theirs.normalize()
	ours.normalize()
	if !reflect.DeepEqual(theirs, ours) {
		t.Errorf("%s %.2000s\ncontroller-runtime answers %s\nthe plugin answers %s", phase, body, theirs, ours)
	}
	return want
}

// normalize removes differences that are allowed. Webhooks that loop over maps list the faults of
// an object in any order. fastadmit truncates messages of more than 32 KiB, so that audit events
// hold them; messages of more than 8 KiB are removed here.
func (a *Answer) normalize() {
	if len(a.Status.Message) > codec.MessageBytesMax/4 {
		a.Status.Message, a.Status.Details = "", nil
	}
	if a.Status.Reason != metav1.StatusReasonInvalid {
		return
	}
	faults := strings.FieldsFunc(a.Status.Message, func(r rune) bool { return r == '[' || r == ']' || r == ',' })
	for i := range faults {
		faults[i] = strings.TrimSpace(faults[i])
	}
	slices.Sort(faults)
	a.Status.Message = strings.Join(faults, ", ")
	if a.Status.Details != nil {
		slices.SortFunc(a.Status.Details.Causes, func(x, y metav1.StatusCause) int {
			return cmp.Or(strings.Compare(x.Field, y.Field), strings.Compare(x.Message, y.Message))
		})
	}
}

// Served returns the answer through controller-runtime's own server.
func Served(t testing.TB, webhook *admission.Webhook, body []byte) Answer {
	t.Helper()
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	webhook.ServeHTTP(recorder, request)
	var answer struct{ Response admissionv1.AdmissionResponse }
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v in %s", err, recorder.Body)
	}
	return answerOf(t, body, &answer.Response)
}

// Adapted returns the answer of the plugin.
func Adapted(t testing.TB, webhook *admission.Webhook, phase fastadmit.Phase, body []byte) Answer {
	t.Helper()
	var response struct {
		admissionv1.AdmissionResponse
		Patch json.RawMessage `json:"patch"` // admissiontest has decoded it
	}
	text := admissiontest.Answer(t, Chain(t, webhook, phase), phase, body)
	if err := json.Unmarshal(text, &response); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	response.AdmissionResponse.Patch = response.Patch
	return answerOf(t, body, &response.AdmissionResponse)
}

// Chain returns a chain of a plugin with the webhook, for all reviews.
func Chain(t testing.TB, webhook *admission.Webhook, phase fastadmit.Phase) *fastadmit.Chain {
	t.Helper()
	var webhooks controllerruntime.Webhooks
	if phase == fastadmit.Mutate {
		webhooks.Mutating = webhook
	} else {
		webhooks.Validating = webhook
	}
	return admissiontest.MustChain(t, controllerruntime.Plugin(fastadmit.Plugin{
		Name: "Adapted", Rules: []fastadmit.Rule{fastadmit.Any()},
	}, webhooks), "")
}

// answerOf handles a response as kube-apiserver does (k8s.io/apiserver
// pkg/admission/plugin/webhook), without the words that it puts before a message.
func answerOf(t testing.TB, body []byte, response *admissionv1.AdmissionResponse) Answer {
	t.Helper()
	var review struct {
		Request struct{ Object json.RawMessage }
	}
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	a := Answer{Allowed: response.Allowed, Warnings: response.Warnings, Annotations: response.AuditAnnotations}
	if !a.Allowed {
		if response.Result != nil {
			a.Status = *response.Result
		}
		a.Status.Code = max(a.Status.Code, http.StatusBadRequest)
		a.Status.Status = metav1.StatusFailure
		a.Status.Message = cmp.Or(a.Status.Message, string(a.Status.Reason), "denied without explanation")
		if d := a.Status.Details; d != nil && reflect.DeepEqual(*d, metav1.StatusDetails{}) {
			a.Status.Details = nil
		}
		return a
	}
	object := review.Request.Object
	if len(response.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(response.Patch)
		if err == nil {
			object, err = patch.Apply(object)
		}
		if err != nil {
			t.Fatalf("%v in %s", err, response.Patch)
		}
	}
	if len(object) == 0 {
		return a
	}
	if err := json.Unmarshal(object, &a.Object); err != nil {
		t.Fatalf("%v in %s", err, object)
	}
	return a
}
