package codec

import (
	"strings"
	"testing"
)

// beforeLast is a review as kube-apiserver writes it, up to the object.
const beforeLast = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","kind":{"kind":"K"},` +
	`"resource":{"resource":"r"},` +
	`"requestKind":{"kind":"K"},"requestResource":{"resource":"r"},"operation":"CREATE","userInfo":{"username":"u"},`

// TestLastObject tests reviews whose last object is found from the end, and similar
// ones that could mislead this search. The results must be equal.
func TestLastObject(t *testing.T) {
	manager := func(n int) string { // options of n bytes behind the bracket that opens them
		return `{"fieldManager":"` + strings.Repeat("m", n-len(`{"fieldManager":""}}}`)) + `"}`
	}
	const none = `"oldObject":null,"dryRun":false,"options":`
	for name, test := range map[string]struct {
		rest string // behind the object
		last bool
	}{
		"as written":             {none + `{"a":"b"}}}`, true},
		"white space around":     {none + `{"a":"b"}}}` + "\n", true},
		"dry run":                {`"oldObject":null,"dryRun":true,"options":{}}}`, true},
		"as many bytes":          {none + manager(lastObjectTailMax) + `}}`, true},
		"one fewer":              {none + manager(lastObjectTailMax-1) + `}}`, true},
		"one more":               {none + manager(lastObjectTailMax+1) + `}}`, false},
		"a bracket in a string":  {none + `{"a":"}"}}}`, false},
		"another":                {none + `{"a":"{"}}}`, false},
		"its text in a string":   {none + `{"a":",\"oldObject\":null,\"dryRun\":false,\"options\":{"}}}`, false},
		"an object in options":   {none + `{"a":{}}}}`, false},
		"no options":             {none + `null}}`, false},
		"no dryRun":              {`"oldObject":null,"options":{}}}`, false},
		"another order":          {`"dryRun":false,"oldObject":null,"options":{}}}`, false},
		"another field":          {none + `{},"x":1}}`, false},
		"another after request":  {none + `{}},"x":1}`, false},
		"white space":            {`"oldObject":null, "dryRun":false,"options":{}}}`, false},
		"space between brackets": {none + `{} }}`, false},
		"an unknown string":      {`"x":"y",` + none + `{}}}`, false},
	} {
		const object = `{"metadata":{"name":"n"}}`
		var r Review
		if err := r.Decode([]byte(beforeLast + `"object":` + object + `,` + test.rest)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if last := len(r.Object.nodes) == 0; last != test.last {
			t.Errorf("%s: noted from the end: got %v, want %v", name, last, test.last)
		}
		dryRun := strings.Contains(test.rest, "true")
		if got := r.Object.Root().JSON(); got != object || r.DryRun() != dryRun || r.OldObject.text != "" || r.Err() != nil {
			t.Errorf("%s: got %s, dryRun %v, oldObject %q, %v, want %s and %v", name, got, r.DryRun(), r.OldObject.text,
				r.Err(), object, dryRun)
		}
	}
}

// TestLastObjectLeading removes each field before the object: it may follow the
// object.
func TestLastObjectLeading(t *testing.T) {
	for _, f := range []field{fieldKind, fieldResource, fieldRequestKind, fieldRequestResource, fieldOperation, fieldUserInfo} {
		var r Review
		body := strings.Replace(beforeLast, `"`+RequestFields[f].Name+`":`, `"x":`, 1)
		if f == fieldKind {
			body = strings.Replace(beforeLast, `"uid":"1","kind"`, `"uid":"1","x"`, 1)
		}
		if err := r.Decode([]byte(body + `"object":{},"oldObject":null,"dryRun":false,"options":{}}}`)); err != nil ||
			len(r.Object.nodes) == 0 {
			t.Errorf("without %s: %v, the object is noted from the end", RequestFields[f].Name, err)
		}
	}
}

// TestLastOldObject tests the review of an update, whose last object is the old one.
func TestLastOldObject(t *testing.T) {
	var r Review
	const rest = `"object":{"a":1},"oldObject":{"a":[{}]},"dryRun":false,"options":{"b":"c"}}}`
	if err := r.Decode([]byte(beforeLast + rest)); err != nil {
		t.Fatal(err)
	}
	if len(r.Object.nodes) == 0 || len(r.OldObject.nodes) != 0 {
		t.Errorf("got %d and %d nodes, want the first object skipped and the second not", len(r.Object.nodes), len(r.OldObject.nodes))
	}
	if got, old := r.Object.Root().JSON(), r.OldObject.Root().JSON(); got != `{"a":1}` || old != `{"a":[{}]}` ||
		r.Options.text != `{"b":"c"}` {
		t.Errorf("got %s, %s and %s", got, old, r.Options.text)
	}
}
