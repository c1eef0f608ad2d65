package answers

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
)

var fields = Fields{"kind": nil, "response": {"warnings": Listed, "annotations": Listed, "status": Status(), "allowed": nil}}

// TestAppend checks which members of answers are appended.
func TestAppend(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got, err := fields.Append([]byte("x"), []byte(text)); err != nil || string(got) != "x"+want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	f(`{}`, `{}`)
	f(` { "kind" : "A" , "request" : {"object":[{},{}]} } `, `{"kind":"A"}`)
	f(`{"Kind":"A","k\u0069nd":"B","kind":"C"}`, `{"kind":"B","kind":"C"}`)
	f(`{"response":{"other":[1],"allowed":true,"warnings":["a","b\n"],"annotations":{"a\"":"b"}}}`,
		`{"response":{"allowed":true,"warnings":["a","b\n"],"annotations":{"a\"":"b"}}}`)
	f(`{"response":{"warnings":[],"annotations":{}}}`, `{"response":{"warnings":[],"annotations":{}}}`)
	f(`{"response":null}`, `{"response":null}`)
	f(`{"response":[{},{}]}`, `{"response":[]}`)
	f(`{"response":{"warnings":{"a":1},"annotations":[1]}}`, `{"response":{"warnings":{"a":1},"annotations":[1]}}`)
	f(`{"response":{"status":{"code":1,"details":{"causes":[{"reason":"a"}],"x":1}}}}`,
		`{"response":{"status":{"code":1,"details":{"causes":[{"reason":"a"}]}}}}`)

	fails := func(text, want string) {
		t.Helper()
		if _, err := fields.Append(nil, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	fails(``, "json parse error: unexpected end of JSON input")
	fails(`{`, "json parse error: unexpected end of JSON input")
	fails(`{"response":{"allowed":tru}}`, "json parse error: invalid character")
	fails(`kind: A`, "json parse error: invalid character")
	fails(`"a"`, "the answer is not a JSON object")
	fails("k8s\x00", "json parse error: invalid character")
	fails(`{"a":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`, "exceeded max depth")
}

// TestListed checks that at most listedMax elements of all lists are decoded.
func TestListed(t *testing.T) {
	f := func(warnings, causes, annotations, wantWarnings, wantCauses, wantAnnotations int) {
		t.Helper()
		annotated := make(map[string]string)
		for i := range annotations {
			annotated[fmt.Sprint(i)] = ""
		}
		text, err := json.Marshal(map[string]any{"response": map[string]any{"warnings": make([]string, warnings)}})
		if err != nil {
			t.Fatal(err)
		}
		more, err := json.Marshal(map[string]any{
			"response": map[string]any{
				"annotations": annotated,
				"status":      map[string]any{"details": map[string]any{"causes": make([]struct{}, causes)}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		both := string(text[:len(text)-1]) + "," + string(more[1:]) // with two members "response"
		part, err := fields.Append(nil, []byte(both))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Response struct {
				Warnings    []string
				Annotations map[string]string
				Status      struct{ Details struct{ Causes []struct{} } }
			}
		}
		if err := json.Unmarshal(part, &got); err != nil {
			t.Fatal(err)
		}
		have := []int{len(got.Response.Warnings), len(got.Response.Status.Details.Causes), len(got.Response.Annotations)}
		if want := []int{wantWarnings, wantCauses, wantAnnotations}; !reflect.DeepEqual(have, want) {
			t.Errorf("got %d, want %d", have, want)
		}
	}
	f(listedMax-1, 0, 0, listedMax-1, 0, 0)
	f(listedMax, 0, 0, listedMax, 0, 0)
	f(listedMax+1, 0, 0, listedMax, 0, 0)
	f(0, listedMax+1, 0, 0, listedMax, 0)
	f(0, 0, listedMax+1, 0, 0, listedMax)
	f(listedMax-6, 5, 3, listedMax-6, 3, 3) // annotations come first
}

// TestOthers decodes answers that are not JSON objects: short ones without anchors.
func TestOthers(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := imagepolicyv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	answers := Fields{"kind": nil, "apiVersion": nil, "status": {"allowed": nil, "reason": nil}}
	info := NewSerializer(scheme, answers, imagepolicyv1alpha1.SchemeGroupVersion).SupportedMediaTypes()[0]
	f := func(text, want string) {
		t.Helper()
		review := new(imagepolicyv1alpha1.ImageReview)
		_, _, err := info.Serializer.Decode([]byte(text), nil, review)
		if want == "" && (err != nil || !review.Status.Allowed) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.80s: got %v, %v, want %q", text, review.Status, err, want)
		}
	}
	const yaml = "apiVersion: imagepolicy.k8s.io/v1alpha1\nkind: ImageReview\nstatus: {allowed: true}\n"
	padded := func(n int) string { return yaml + "#" + strings.Repeat("x", n-len(yaml)-1) }
	f(`{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":true,"reason":"&a"}}`, "")
	f(yaml, "")
	f(padded(otherBytesMax-1), "")
	f(padded(otherBytesMax), "")
	f(padded(otherBytesMax+1), "json parse error")
	f(yaml+"a: &a [1]\nb: [*a, *a]\n", "json parse error")
}
