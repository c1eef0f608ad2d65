package codec_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// request returns a small AdmissionReview.
func request(apiVersion, uid string) []byte {
	encoded, _ := json.Marshal(uid)
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":%q,"request":{"uid":%s}}`, apiVersion, encoded)
}

// answer returns the response as encoding/json decodes it, in the form of v1.
func answer(t *testing.T, apiVersion, uid string, respond func(r *codec.Response)) *admissionv1.AdmissionResponse {
	t.Helper()
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode(request(apiVersion, uid)); err != nil {
		t.Fatal(err)
	}
	respond(&r.Response)
	text := r.AppendResponse([]byte("before"))
	if !strings.HasPrefix(string(text), "before") {
		t.Fatalf("what was in dst is gone: %q", text)
	}
	text = text[len("before"):]
	if !json.Valid(text) || !utf8.Valid(text) {
		t.Fatalf("not valid JSON: %q", text)
	}
	v1, beta := new(admissionv1.AdmissionReview), new(admissionv1beta1.AdmissionReview)
	var decoded any = v1
	if apiVersion == codec.APIVersionV1beta1 {
		decoded = beta
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(decoded); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if beta.Response != nil {
		v1.TypeMeta, v1.Response = beta.TypeMeta, (*admissionv1.AdmissionResponse)(nil)
		b := beta.Response
		v1.Response = &admissionv1.AdmissionResponse{UID: b.UID, Allowed: b.Allowed, Result: b.Result, Patch: b.Patch,
			PatchType: (*admissionv1.PatchType)(b.PatchType), AuditAnnotations: b.AuditAnnotations, Warnings: b.Warnings}
	}
	if want := (metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: apiVersion}); v1.TypeMeta != want {
		t.Errorf("got %v, want %v", v1.TypeMeta, want)
	}
	return v1.Response
}

func TestResponse(t *testing.T) {
	const odd = "q\"\\/<>&\n\x00\x7f\u2028é😀"
	patchType := admissionv1.PatchTypeJSONPatch
	f := func(respond func(r *codec.Response), want admissionv1.AdmissionResponse) {
		t.Helper()
		for _, apiVersion := range []string{codec.APIVersionV1, codec.APIVersionV1beta1} {
			for _, uid := range []string{"3e6ff2ad-5e5f-4a4b-a2d6-5f2ad5e5f4a4", odd} {
				want.UID = "x"
				got := answer(t, apiVersion, uid, respond)
				if string(got.UID) != uid {
					t.Errorf("got uid %q, want %q", got.UID, uid)
				}
				got.UID = "x"
				if !reflect.DeepEqual(*got, want) {
					t.Errorf("%s: got %+v, want %+v", apiVersion, *got, want)
				}
			}
		}
	}
	failure := func(s metav1.Status) *metav1.Status {
		s.Status = metav1.StatusFailure
		return &s
	}
	f(func(r *codec.Response) {}, admissionv1.AdmissionResponse{Result: failure(metav1.Status{})})
	f(func(r *codec.Response) { r.Allowed = true }, admissionv1.AdmissionResponse{Allowed: true})
	f(func(r *codec.Response) {
		r.Allowed = true
		r.Patch = append(r.Patch, `[{"op":"remove","path":"/é"}]`...)
	}, admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[{"op":"remove","path":"/é"}]`), PatchType: &patchType})
	f(func(r *codec.Response) { // neither is valid with the other
		r.Patch = append(r.Patch, `[]`...)
		r.Status = codec.Status{Code: 403}
	}, admissionv1.AdmissionResponse{Result: failure(metav1.Status{Code: 403})})
	f(func(r *codec.Response) {
		r.Allowed = true
		r.Status = codec.Status{Code: 403, Message: "no"}
	}, admissionv1.AdmissionResponse{Allowed: true})
	f(func(r *codec.Response) {
		r.Status = codec.Status{Code: 422, Message: odd, Reason: "Invalid", Details: codec.Details{
			Name: odd, Group: "g", Kind: "k", UID: "u", RetryAfterSeconds: 7,
			Causes: []codec.Cause{{Type: "FieldValueInvalid", Message: odd, Field: "spec.a[0]"}, {}, {Field: odd}},
		}}
	}, admissionv1.AdmissionResponse{Result: failure(metav1.Status{
		Code: 422, Message: odd, Reason: "Invalid", Details: &metav1.StatusDetails{
			Name: odd, Group: "g", Kind: "k", UID: "u", RetryAfterSeconds: 7, Causes: []metav1.StatusCause{
				{Type: "FieldValueInvalid", Message: odd, Field: "spec.a[0]"}, {}, {Field: odd},
			},
		},
	})})
	f(func(r *codec.Response) {
		r.Allowed = true
		r.Warn(`say "hi" \ <b>`)
		r.Warn("é😀")
		for key, value := range map[string]string{"a": odd, "b.c_D-1": ""} {
			if err := r.Annotate(key, value); err != nil {
				t.Error(err)
			}
		}
	}, admissionv1.AdmissionResponse{
		Allowed: true, Warnings: []string{`say "hi" \ <b>`, "é😀"}, AuditAnnotations: map[string]string{"a": odd, "b.c_D-1": ""},
	})
}

// TestStatusDetails writes each detail alone.
func TestStatusDetails(t *testing.T) {
	f := func(details codec.Details, want *metav1.StatusDetails) {
		t.Helper()
		got := answer(t, codec.APIVersionV1, "1", func(r *codec.Response) { r.Status.Details = details })
		if !reflect.DeepEqual(got.Result.Details, want) {
			t.Errorf("got %+v, want %+v", got.Result.Details, want)
		}
		status := codec.Status{Details: details}
		if text := string(status.AppendDocument(nil)); strings.Contains(text, "retryAfterSeconds") != (details.RetryAfterSeconds != 0) {
			t.Errorf("got %s", text)
		}
	}
	f(codec.Details{}, nil)
	f(codec.Details{Causes: []codec.Cause{}}, nil)
	f(codec.Details{Name: "n"}, &metav1.StatusDetails{Name: "n"})
	f(codec.Details{Group: "g"}, &metav1.StatusDetails{Group: "g"})
	f(codec.Details{Kind: "k"}, &metav1.StatusDetails{Kind: "k"})
	f(codec.Details{UID: "u"}, &metav1.StatusDetails{UID: "u"})
	f(codec.Details{Causes: []codec.Cause{{}}}, &metav1.StatusDetails{Causes: []metav1.StatusCause{{}}})
	f(codec.Details{RetryAfterSeconds: 1}, &metav1.StatusDetails{RetryAfterSeconds: 1})
}

func TestStatusDocument(t *testing.T) {
	s := codec.Status{Code: 400, Message: "no \"x\"", Reason: "BadRequest", Details: codec.Details{RetryAfterSeconds: 1}}
	var got metav1.Status
	if err := json.Unmarshal(s.AppendDocument(nil), &got); err != nil {
		t.Fatal(err)
	}
	want := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 400,
		Message: "no \"x\"", Reason: "BadRequest", Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestInvalidUTF8 answers with strings that are not UTF-8.
func TestInvalidUTF8(t *testing.T) {
	got := answer(t, codec.APIVersionV1, "1", func(r *codec.Response) {
		r.Status.Message = "a\xffb\xc3"
		r.Warn("w\xff\xfe")
		if err := r.Annotate("k", "v\x80"); err != nil {
			t.Error(err)
		}
	})
	if got.Result.Message != "a\ufffdb\ufffd" || got.Warnings[0] != "w\ufffd\ufffd" || got.AuditAnnotations["k"] != "v\ufffd" {
		t.Errorf("got %+v", got)
	}
}

func TestWarn(t *testing.T) {
	f := func(give []string, want ...string) {
		t.Helper()
		var r codec.Response
		for _, text := range give {
			r.Warn(text)
		}
		got := r.Warnings()
		if !slices.Equal(got, want) {
			t.Errorf("got %.200q, want %.200q", got, want)
		}
		all := 0
		for _, text := range got {
			all += utf8.RuneCountInString(text)
			// kube-apiserver drops silently what it would refuse here.
			if _, err := utilnet.NewWarningHeader(299, "", text); err != nil {
				t.Errorf("%.200q: %v", text, err)
			}
		}
		if all > 4096 {
			t.Errorf("got %d characters, want at most 4096", all)
		}
	}
	long := func(n int) string { return strings.Repeat("é", n) }
	f(nil)
	f([]string{""})
	f([]string{" \n\t "})
	f([]string{"a"}, "a")
	f([]string{"a", "b", "a"}, "a", "b")
	f([]string{"a\nb", "a b", "a\tb"}, "a b")
	f([]string{"\x00a\u0085b\x7f\u009f"}, "a b")
	f([]string{"a\xffb"}, "a\ufffdb")
	f([]string{long(4095), "x", "y"}, long(4095), "x")
	f([]string{long(3000), long(3000), "x"}, long(3000), "x")
	f([]string{long(4095), "xy"}, long(4095), "x")
	f([]string{long(4096), "x"}, long(4096))
	f([]string{long(4097), "x"}, long(4096))
	f([]string{"x", long(4096)}, "x", long(4095))
	f([]string{long(4096) + "x", long(4096) + "y"}, long(4096))

	for r := rune(0); r < 0x100; r++ {
		want := "a" + string(r) + "b"
		if unicode.IsControl(r) {
			want = "a b"
		}
		f([]string{"a" + string(r) + "b"}, want)
	}
}

func TestAnnotate(t *testing.T) {
	f := func(key string, valid bool) {
		t.Helper()
		var r codec.Response
		err := r.Annotate(key, "v")
		if (err == nil) != valid {
			t.Errorf("%q: got %v, want valid=%v", key, err, valid)
		}
		// The checks of kube-apiserver (k8s.io/apiserver pkg/admission
		// attributes.go).
		whole := "webhook.example.com/" + key
		accepted := strings.Count(whole, "/") == 1 && len(validation.IsQualifiedName(whole)) == 0
		if accepted != valid {
			t.Errorf("%q: kube-apiserver has %v", key, accepted)
		}
	}
	f("a", true)
	f("Z", true)
	f("0", true)
	f("a-b_c.D", true)
	f("a--b", true)
	f(strings.Repeat("a", 62), true)
	f(strings.Repeat("a", 63), true)
	f(strings.Repeat("a", 64), false)
	f("a"+strings.Repeat("-", 61)+"a", true)
	f("", false)
	f("-a", false)
	f("a-", false)
	f(".", false)
	f("_a", false)
	f("a/b", false)
	f("/a", false)
	f("a b", false)
	f("a\n", false)
	f("\na", false)
	f("é", false)
	f("a:b", false)
	f("a\x00", false)

	rng := seed.Rand(t)
	for range 2000 {
		const letters = "ab9-_./ é"
		var key []byte
		for range rng.IntN(5) {
			key = append(key, letters[rng.IntN(len(letters))])
		}
		var r codec.Response
		whole := "webhook.example.com/" + string(key)
		accepted := strings.Count(whole, "/") == 1 && len(validation.IsQualifiedName(whole)) == 0
		if err := r.Annotate(string(key), ""); (err == nil) != accepted {
			t.Errorf("%q: got %v, kube-apiserver has %v", key, err, accepted)
		}
	}
	got := answer(t, codec.APIVersionV1, "1", func(r *codec.Response) {
		for _, value := range []string{"first", "second"} {
			if err := r.Annotate("k", value); err != nil {
				t.Error(err)
			}
		}
	})
	if len(got.AuditAnnotations) != 1 || got.AuditAnnotations["k"] != "first" {
		t.Errorf("got %q, want the first", got.AuditAnnotations)
	}
}
