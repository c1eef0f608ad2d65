package codec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

const v1Head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":`

func TestDecodeRefuses(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		r := codec.Acquire()
		defer r.Release()
		err := r.Decode([]byte(body))
		if want = "cannot decode AdmissionReview: " + want; err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %v", body, err, want)
		}
	}
	const end = "got the end of the text, "
	f("", "the body is empty")
	f(" \r\n\t", "the body is empty")
	f("null", `invalid JSON at byte 0: got "null", want an object`)
	f("[]", `invalid JSON at byte 0: got "[]", want an object`)
	f("\x00", `invalid JSON at byte 0: got "\x00", want an object`)
	f("{}", `kind: got nothing, want "AdmissionReview"`)
	f("{", "invalid JSON at byte 1: "+end+"want ',' or a closing bracket")
	f("{}{}", `invalid JSON at byte 2: got "{}", want nothing behind the object`)
	f(v1Head+`{"uid":"1"}}x`, `invalid JSON at byte 83: got "x", want nothing behind the object`)

	f(`{"kind":"Pod","apiVersion":"v1"}`, `kind: got "Pod", want "AdmissionReview"`)
	f(`{"kind":1}`, `kind: got 1, want "AdmissionReview"`)
	f(`{"kind":null}`, `kind: got null, want "AdmissionReview"`)
	f(`{"Kind":"AdmissionReview"}`, `kind: got nothing, want "AdmissionReview"`)
	f(`{"kind":"`+strings.Repeat("é", 40)+`"}`, `kind: got "`+strings.Repeat("é", 31)+"\ufffd"+`..., want "AdmissionReview"`)
	const versions = `, want "admission.k8s.io/v1" or "admission.k8s.io/v1beta1"`
	f(`{"kind":"AdmissionReview"}`, `apiVersion: got nothing`+versions)
	f(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2"}`, `apiVersion: got "admission.k8s.io/v2"`+versions)
	f(`{"kind":"AdmissionReview","apiVersion":{}}`, `apiVersion: got {}`+versions)

	f(v1Head+`null}`, "request: got nothing, want an AdmissionRequest")
	f(v1Head+`[]}`, "request: got [], want an AdmissionRequest")
	f(v1Head+`"x"}`, `request: got "x", want an AdmissionRequest`)
	const noUID = "request.uid: got nothing, want the request's unique identifier"
	f(v1Head+`{}}`, noUID)
	f(v1Head+`{"uid":""}}`, noUID)
	f(v1Head+`{"uid":null}}`, noUID)
	f(v1Head+`{"UID":"1"}}`, noUID)
	f(v1Head+`{"uid":1}}`, "request.uid: got 1, want a string")

	field := func(name, got, want string) {
		t.Helper()
		f(v1Head+`{"uid":"1","`+name+`":`+got+`}}`, "request."+name+": got "+got+", want "+want)
	}
	for _, name := range []string{"kind", "resource", "requestKind", "requestResource", "userInfo", "object", "oldObject", "options"} {
		field(name, `"x"`, "an object")
		field(name, `[]`, "an object")
		field(name, `true`, "an object")
	}
	for _, name := range []string{"subResource", "requestSubResource", "name", "namespace", "operation"} {
		field(name, `{}`, "a string")
		field(name, `1`, "a string")
	}
	field("dryRun", `"true"`, "a boolean")
	field("dryRun", `0`, "a boolean")

	f(v1Head+`{"uid":"\x"}}`, `invalid JSON at byte 79: got "\\x", want valid escapes in a string`)
	f(v1Head+"{\"uid\":\"\xff\"}}", `invalid JSON at byte 79: got "\xff", want a string in UTF-8`)
	f(v1Head+`{"uid":"1" "name":"a"}}`, `invalid JSON at byte 82: got "\"name\":\"a\"}}", want ',' or a closing bracket`)
	f(v1Head+`{"uid":"1","object":}}`, `invalid JSON at byte 91: got "}}", want a complete value`)
	f(v1Head+`{"uid":"1","object":{"a":"}}`, `invalid JSON at byte 91: got "{\"a\":\"}}", want a complete value`)
}

// TestEnvelope tests unusual envelopes that are accepted.
func TestEnvelope(t *testing.T) {
	f := func(body string, want map[string]string) {
		t.Helper()
		r := codec.Acquire()
		defer r.Release()
		if err := r.Decode([]byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
			return
		}
		got := map[string]string{
			"uid": r.UID(), "name": r.Name(), "kind": r.Kind().Group + "/" + r.Kind().Kind, "object": r.Object.Root().JSON(),
			"requestKind": r.RequestKind().Group + "/" + r.RequestKind().Kind, "options": r.Options.Root().JSON(),
		}
		for name, want := range want {
			if got[name] != want {
				t.Errorf("%s: %s: got %q, want %q", body, name, got[name], want)
			}
		}
		if r.Err() != nil {
			t.Errorf("%s: %v", body, r.Err())
		}
	}
	type fields = map[string]string
	// Of duplicate fields of the envelope the last one counts; nothing is merged.
	f(v1Head+`{"uid":"1","uid":"2"}}`, fields{"uid": "2"})
	f(v1Head+`{"uid":"1","name":"a","name":null}}`, fields{"name": ""})
	f(v1Head+`{"uid":"1","kind":{"kind":"A"},"kind":{"group":"b"}}}`, fields{"kind": "b/"})
	f(v1Head+`{"uid":"1","object":{"a":1},"object":{"b":2}}}`, fields{"object": `{"b":2}`})
	f(v1Head+`{"uid":"1","object":{"a":1},"object":null}}`, fields{"object": ""})
	f(v1Head+`{"uid":"1","object":{"a":1}},"request":{"uid":"2"}}`, fields{"uid": "2", "object": ""})
	f(v1Head+`{"uid":"1","name":"a"},"request":{"uid":"2"}}`, fields{"uid": "2", "name": ""})
	f(`{"kind":"Pod","kind":"AdmissionReview","apiVersion":"v1",`+v1Head[1:]+`{"uid":"1"}}`, fields{"uid": "1"})
	// Within a kind or resource the last one counts, too.
	f(v1Head+`{"uid":"1","kind":{"kind":"A","kind":"B"}}}`, fields{"kind": "/B"})

	f(v1Head+`{"uid":"1","object":null,"options":null,"kind":null}}`, fields{"object": "", "options": "", "kind": "/"})
	f(v1Head+`{"uid":"1","\u006eame":"\u0061"}}`, fields{"name": "a"})
	// An unescaped name is not unescaped again.
	f(v1Head+`{"uid":"1","\\u006eame":"a","\\Resou":1,"\u005cu0075id":"2"}}`, fields{"uid": "1", "name": ""})
	f(v1Head+`{"uid":"1","kind":{"kind":"A"},"requestKind":{"kind":"A"},"name":"n"}}`, fields{"requestKind": "/A", "name": "n"})
	f(v1Head+`{"uid":"1","kind":{"kind":"A"},"requestKind":{"kind":"A","group":"g"},"name":"n"}}`,
		fields{"kind": "/A", "requestKind": "g/A", "name": "n"})
	f(v1Head+`{"uid":"1","kind":{},"requestKind": {"kind":"A"},"name" :"n"}}`, fields{"requestKind": "/A", "name": "n"})
	f(v1Head+`{"options":{"a":1},"uid":"1","object":{"b":2}},"more":[{}]}`, fields{"uid": "1", "options": `{"a":1}`, "object": `{"b":2}`})
}

// TestErr expects errors to name the part of the review.
func TestErr(t *testing.T) {
	f := func(read func(r *codec.Review), want string) {
		t.Helper()
		r := codec.Acquire()
		defer r.Release()
		body := v1Head + "{\"uid\":\"1\",\"name\":\"\t\",\"object\":{\"a\" 1},\"oldObject\":{\"a\":\"\\x\"},\"options\":{]}}}"
		if err := r.Decode([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if err := r.Err(); err != nil {
			t.Errorf("before reading: %v", err)
		}
		read(r)
		if err := r.Err(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	f(func(r *codec.Review) { r.Name() },
		`AdmissionReview: invalid JSON at byte 90: got "\t", want no control character in a string`)
	f(func(r *codec.Review) { r.Object.Get("a") },
		`request.object: invalid JSON at byte 5: got "1}", want ':' behind a member name`)
	f(func(r *codec.Review) { _ = r.OldObject.Get("a").String() },
		`request.oldObject: invalid JSON at byte 6: got "\\x", want valid escapes in a string`)
	f(func(r *codec.Review) { r.Options.Root().Len() },
		`request.options: invalid JSON at byte 1: got "]}", want a member name in quotes`)
	f(func(r *codec.Review) { r.Object.Set("", "a") },
		`request.object: cannot edit "/a": the new value is not valid JSON`)
}

// TestReuse decodes one body after the other into the same Review.
func TestReuse(t *testing.T) {
	r := codec.Acquire()
	defer r.Release()
	full := v1Head + `{"uid":"1","name":"a","dryRun":true,"object":{"a":{}},"options":{"b":1},"userInfo":{"username":"u"}}}`
	for range 2 {
		if err := r.Decode([]byte(full)); err != nil {
			t.Fatal(err)
		}
		r.Object.Set("1", "a")
		r.Options.Set("", "b")
		r.Response.Allowed = true
		r.Response.Patch = append(r.Response.Patch, '1')
		r.Response.Status.Code = 400
		r.Response.Warn("w")
		if err := r.Response.Annotate("k", "v"); err != nil {
			t.Fatal(err)
		}
		if err := r.Decode([]byte("{")); err == nil {
			t.Fatal("no error")
		}
		if err := r.Decode(request(codec.APIVersionV1beta1, "2")); err != nil {
			t.Fatal(err)
		}
		if r.UID() != "2" || r.APIVersion() != codec.APIVersionV1beta1 || r.Name()+r.Username() != "" || r.DryRun() {
			t.Error("fields of the review before are still there")
		}
		if r.Object.Root().Exists() || r.Options.Root().Exists() || r.Object.Changes() != 0 || r.Err() != nil {
			t.Errorf("objects of the review before are still there: %v", r.Err())
		}
		if a := &r.Response; a.Allowed || len(a.Patch) > 0 || a.Status.Code != 0 || len(a.Warnings()) > 0 {
			t.Error("the response before is still there")
		}
	}
	// Values set in a Review before Decode are removed, too.
	fresh := codec.Acquire()
	defer fresh.Release()
	fresh.Response.Allowed = true
	fresh.Object.Set("", "a")
	fresh.OldObject.Reset([]byte("{}"))
	if err := fresh.Decode([]byte(full)); err != nil || fresh.Err() != nil || fresh.Response.Allowed || fresh.OldObject.Root().Exists() {
		t.Errorf("got %v, %v, allowed=%v", err, fresh.Err(), fresh.Response.Allowed)
	}
}

func TestRollback(t *testing.T) {
	r := codec.Acquire()
	defer r.Release()
	if err := r.Decode([]byte(v1Head + `{"uid":"1","object":{"a":1}}}`)); err != nil {
		t.Fatal(err)
	}
	say := func(text string) {
		r.Object.Set(`"`+text+`"`, text)
		r.Response.Warn(text)
		if err := r.Response.Annotate(text, text); err != nil {
			t.Fatal(err)
		}
	}
	say("kept")
	r.Checkpoint()
	say("gone")
	r.Object.Set("nonsense", "a")
	if r.Err() == nil {
		t.Fatal("nonsense was taken")
	}
	r.Rollback()
	say("later")
	if got := r.Object.Root().JSON(); got != `{"a":1,"kept":"kept","later":"later"}` || r.Err() != nil {
		t.Errorf("got %s, %v", got, r.Err())
	}
	r.Response.Allowed = true
	want := `"auditAnnotations":{"kept":"kept","later":"later"},"warnings":["kept","later"]}}`
	if got := string(r.AppendResponse(nil)); !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s at its end", got, want)
	}
}

// TestObjectTwice tests duplicate objects: the last one counts, as with encoding/json,
// also if it is as long as the one before.
func TestObjectTwice(t *testing.T) {
	for _, objects := range [][2]string{{`{"a":1}`, `{"b":2}`}, {`{"a":1}`, `{"a":22}`}, {`{"a":1}`, `{}`},
		{`{"a":1,"spec":{}}`, `{"a":2,"spec":{}}`}} {
		r := codec.Acquire()
		if err := r.Decode(fmt.Appendf(nil, `%s{"uid":"1","object":%s,"object":%s,"oldObject":%[2]s,"oldObject":%[3]s}}`,
			v1Head, objects[0], objects[1])); err != nil {
			t.Fatal(err)
		}
		if got, old := r.Object.Root().JSON(), r.OldObject.Root().JSON(); got != objects[1] || old != objects[1] {
			t.Errorf("%s: got %s and %s, want the second", objects, got, old)
		}
		if got, want := r.Object.Get("a").JSON(), ""; objects[1] == `{"b":2}` && got != want {
			t.Errorf("%s: got %s for what the second has not", objects, got)
		}
		r.Release()
	}
}
