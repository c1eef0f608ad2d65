package customresource_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/customresource"
)

const resource = "policies.fastadmit.io/v1/validatingadmissionpolicies"

// TestRule selects the resources of two kinds.
func TestRule(t *testing.T) {
	const want = "{[CREATE UPDATE] [policies.fastadmit.io] [*] [validatingadmissionpolicies mutatingadmissionpolicies] Cluster}"
	if got := fmt.Sprint(customresource.Rule(cluster.ValidatingAdmissionPolicies, cluster.MutatingAdmissionPolicies)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// check calls Check for the spec of a review. It returns the copies that were validated, and
// the result.
func check(t *testing.T, body []byte, invalid error) (validated []string, result admission.Result) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	result = customresource.Check(review, "spec", "{}", func(document []byte) error {
		validated = append(validated, string(document))
		return invalid
	})
	return validated, result
}

// TestCheck validates new objects and changes of their spec.
func TestCheck(t *testing.T) {
	f := func(body []byte, want string) {
		t.Helper()
		if got, result := check(t, body, nil); strings.Join(got, " ") != want || result.Denial != nil || result.Err != nil {
			t.Errorf("%s\ngot  %s, %v\nwant %s", body, got, result, want)
		}
	}
	const a, b = `{"metadata":{"name":"p"},"spec":{"a":1},"status":{"c":1}}`, `{"metadata":{"name":"p","labels":{}},"spec":{"a":2}}`
	const copied = `{"metadata":{"name":"p"},"spec":{"a":1}}`
	f(admissiontest.Body(codec.Create, resource, a), copied)
	f(admissiontest.Body(codec.Create, resource, `{"metadata":{}}`), `{"metadata":{},"spec":{}}`)
	f(admissiontest.UpdateBody(resource, a, b), copied)
	f(admissiontest.UpdateBody(resource, a, strings.Replace(b, "2", "1", 1)), "")
	f(admissiontest.Body(codec.Delete, resource, a), "")
	f(bytes.Replace(admissiontest.Body(codec.Create, resource, a), []byte(`"name":"name"`), []byte(`"subResource":"status"`), 1), "")
}

// TestCheckDenies denies what is invalid as kube-apiserver does.
func TestCheckDenies(t *testing.T) {
	_, result := check(t, admissiontest.Body(codec.Create, resource, `{"metadata":{},"spec":{}}`), errors.New("spec.a: Required value"))
	want := codec.Status{Code: http.StatusUnprocessableEntity, Reason: "Invalid", Message: "spec.a: Required value"}
	if result.Denial == nil || !reflect.DeepEqual(*result.Denial, want) {
		t.Errorf("got %+v", result.Denial)
	}
}

func object(t *testing.T, text string) *cluster.JSON {
	t.Helper()
	object, err := cluster.NewJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// TestDecode allows unknown fields, and names the error of other objects.
func TestDecode(t *testing.T) {
	var into struct {
		Spec struct {
			A int `json:"a"`
		} `json:"spec"`
	}
	if err := customresource.Decode(object(t, `{"metadata":{"name":"p"},"spec":{"a":1,"A":2,"b":3}}`), &into); err != nil ||
		into.Spec.A != 1 {
		t.Errorf("got %v, %v", into, err)
	}
	err := customresource.Decode(object(t, `{"metadata":{"name":"p"},"spec":[]}`), &into)
	if err == nil || !strings.HasPrefix(err.Error(), "cannot be read: ") {
		t.Errorf("got %v", err)
	}
}

// TestIsSame compares uid and generation, which change with the spec.
func TestIsSame(t *testing.T) {
	of := func(uid string, generation int) *cluster.JSON {
		return object(t, fmt.Sprintf(`{"metadata":{"name":"p","uid":%q,"generation":%d}}`, uid, generation))
	}
	f := func(a, b *cluster.JSON, want bool) {
		t.Helper()
		if got := customresource.IsSame(a, b); got != want {
			t.Errorf("%s %d and %s %d: got %v", a.GetUID(), a.GetGeneration(), b.GetUID(), b.GetGeneration(), got)
		}
	}
	unnumbered, first := of("", 0), of("u", 1)
	f(unnumbered, unnumbered, true)
	f(first, first, true)
	f(first, of("u", 1), true)
	f(first, of("u", 2), false)
	f(first, of("v", 1), false)
	f(of("", 1), of("", 1), false)
	f(of("u", 0), of("u", 0), false)
}
