package accessreview

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fastadmit/fastadmit/codec"
)

func decoded(t *testing.T, userInfo string) (review *codec.Review, body []byte) {
	t.Helper()
	body = fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","userInfo":%s}}`, userInfo)
	review = new(codec.Review)
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	return review, body
}

// TestSpec asks about users of all kinds. The body is overwritten before the spec is
// compared.
func TestSpec(t *testing.T) {
	attributes := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}
	for userInfo, want := range map[string]authorizationv1.SubjectAccessReviewSpec{
		`{}`:   {},
		`null`: {},
		`{"username":"system:node:a","uid":"u","groups":["system:nodes","b"],"extra":{"k":["v","w"],"none":[],"null":null}}`: {
			User: "system:node:a", UID: "u", Groups: []string{"system:nodes", "b"},
			Extra: map[string]authorizationv1.ExtraValue{"k": {"v", "w"}, "none": {}, "null": nil},
		},
		`{"username":"\u0061\"\ud83d\ude00","groups":null,"extra":null}`: {User: "a\"😀"},
		`{ "unknown" : {"username":"no"} , "groups" : [ "" ] }`:          {Groups: []string{""}},
	} {
		review, body := decoded(t, userInfo)
		got, err := Spec(review, attributes)
		clear(body)
		want.ResourceAttributes = attributes
		if err != nil {
			if userInfo == "null" { // kube-apiserver always sends the user
				continue
			}
			t.Fatal(userInfo, err)
		}
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: got %+v, want %+v", userInfo, *got, want)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	}
}

// TestSpecRefused has users that cannot be decoded, or need more memory than a review may
// use: the error says why.
func TestSpecRefused(t *testing.T) {
	for userInfo, want := range map[string]string{
		`{"username":1}`:             "cannot decode userInfo: json: cannot unmarshal number",
		`{"groups":{}}`:              "cannot decode userInfo: json: cannot unmarshal object",
		`{"extra":{"a":"b"}}`:        "cannot decode userInfo: json: cannot unmarshal string",
		`{"username":"a" "uid":"b"}`: "cannot decode userInfo: invalid character",
		`{"groups":[` + strings.Repeat(`{},`, 1<<17) + `{}]}`: "bytes of memory",
	} {
		review, _ := decoded(t, userInfo)
		got, err := Spec(review, nil)
		if got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, %.100v, want %s", userInfo, got, err, want)
		}
		var size *codec.SizeError
		if errors.As(review.Err(), &size) != (want == "bytes of memory") {
			t.Errorf("%.40s: the review has the error %v", userInfo, review.Err())
		}
	}
}
