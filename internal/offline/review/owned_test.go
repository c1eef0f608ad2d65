package review

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// TestResultsOwnTheirMemory checks a result after its review ended, its body was
// overwritten, and the next review used the same memory. All strings have escapes, so none
// of them is a view of the body.
func TestResultsOwnTheirMemory(t *testing.T) {
	bodyOf := func(text, operation string) []byte {
		return bytes.ReplaceAll([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",
"kind":{"group":"","version":"v-#","kind":"k-#"},"resource":{"group":"","version":"v1","resource":"r-#"},"subResource":"s-#",
"operation":"`+operation+`","namespace":"n-#","name":"m-#","object":{"text":"t-#"}}}`), []byte("#"), []byte(text))
	}
	f := func(settings admission.Settings, admit func(review *codec.Review, text string) admission.Result, want string) {
		t.Helper()
		chain, err := admission.NewChain([]admission.Plugin{{
			Name: "Test", Rules: []admission.Rule{admission.Any()}, Mutates: true,
			New: func(admission.Setup) (admission.Handler, error) {
				return admission.Handler{Admit: func(_ context.Context, review *codec.Review) admission.Result {
					return admit(review, review.Object.Get("text").String())
				}}, nil
			},
		}}, map[string]admission.Enabled{"Test": {Settings: settings}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := (&session{Options: &Options{Chain: chain, KeepObjects: true}}).newReviewer()
		result, body := new(report.Result), bodyOf(`\u0061`, `CRE\u0041TE`)
		r.answer(t.Context(), body, schema.GroupVersionKind{}, result)
		clear(body)
		r.answer(t.Context(), bodyOf(`\u0062`, `UPD\u0041TE`), schema.GroupVersionKind{}, new(report.Result))
		want = `{"operation":"CREATE","apiVersion":"v-a","kind":"k-a","resource":"r-a","subResource":"s-a",` +
			`"namespace":"n-a","name":"m-a",` + want + `}`
		if got, err := json.Marshal(result); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
	ignore := admission.Settings{FailurePolicy: admissionregistrationv1.Ignore}
	f(admission.Settings{}, func(review *codec.Review, text string) admission.Result {
		review.Response.Warn(text)
		return admission.Allowed()
	}, `"decision":"allowed","warnings":[{"plugin":"Test","message":"t-a"}]`)
	f(admission.Settings{}, func(review *codec.Review, text string) admission.Result {
		review.Object.SetString(text, "b")
		return admission.Allowed()
	}, `"decision":"patched","patchedBy":["Test"],"patch":[{"op":"add","path":"/b","value":"t-a"}]`)
	f(admission.Settings{}, func(_ *codec.Review, text string) admission.Result {
		return admission.Result{Denial: &codec.Status{Code: 403, Reason: text, Message: text}}
	}, `"decision":"denied","plugin":"Test","code":403,"reason":"t-a","message":"t-a"`)
	f(admission.Settings{}, func(_ *codec.Review, text string) admission.Result { return admission.Errored(errors.New(text)) },
		`"decision":"failed","plugin":"Test","message":"admission plugin Test failed: t-a"`)
	f(ignore, func(_ *codec.Review, text string) admission.Result { return admission.Errored(errors.New(text)) },
		`"decision":"allowed","ignored":[{"plugin":"Test","message":"t-a"}]`)
}

// TestLiveResultsOwnTheirMemory checks the result for an object after the next one was
// reviewed.
func TestLiveResultsOwnTheirMemory(t *testing.T) {
	live := NewLive(Options{Chain: new(admission.Chain), Operation: codec.Create})
	review := func(text string) *report.Result {
		object := strings.ReplaceAll(`{"metadata":{"name":"m-#","namespace":"n-#","uid":"u-#"}}`, "#", text)
		return live.Review(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, discovery.Resource{}, []byte(object))
	}
	got := review(`\u0061`)
	review(`\u0062`)
	if got.Name != "m-a" || got.Namespace != "n-a" || got.UID != "u-a" {
		t.Errorf("got %+v, want that of the first object", got)
	}
}
