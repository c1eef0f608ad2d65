package diff_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/diff"
)

// objects yields the object and the old object of every recording.
func objects(t testing.TB, yield func(name string, object []byte)) {
	t.Helper()
	for _, name := range corpus.Names() {
		var review struct {
			Request struct{ Object, OldObject json.RawMessage }
		}
		if err := json.Unmarshal(corpus.MustRead(name), &review); err != nil {
			t.Fatal(err)
		}
		for _, object := range []json.RawMessage{review.Request.Object, review.Request.OldObject} {
			if len(object) > 0 && object[0] == '{' {
				yield(name, object)
			}
		}
	}
}

// podObject returns the object of a recorded Pod CREATE.
func podObject(t testing.TB) []byte {
	t.Helper()
	var review struct {
		Request struct{ Object json.RawMessage }
	}
	if err := json.Unmarshal(corpus.MustRead("pods-create-v1-1.json"), &review); err != nil {
		t.Fatal(err)
	}
	return review.Request.Object
}

// decoded returns text as encoding/json decodes it, with numbers as written.
func decoded(t testing.TB, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json: %v in %.300q", err, text)
	}
	return v
}

// applied returns text with the patch applied by the library that
// kube-apiserver uses.
func applied(t testing.TB, text, patch []byte) []byte {
	t.Helper()
	if len(patch) == 0 {
		return text
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("%v in patch %s", err, patch)
	}
	after, err := operations.Apply(text)
	if err != nil {
		t.Fatalf("%v: patch %s on %s", err, patch, text)
	}
	return after
}

// checkPatch fails unless the patch for o turns text, the document that o was
// reset to, into the current document of o. It returns the patch.
func checkPatch(t testing.TB, text []byte, o *codec.Object) []byte {
	t.Helper()
	if err := o.Err(); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	const before = "before"
	patch := diff.AppendPatch([]byte(before), o)
	if !bytes.HasPrefix(patch, []byte(before)) {
		t.Fatalf("what was in dst is gone: %s", patch)
	}
	patch = patch[len(before):]
	want := o.Root().AppendJSON(nil)
	if got := applied(t, text, patch); !reflect.DeepEqual(decoded(t, got), decoded(t, want)) {
		t.Fatalf("patch %s on %s:\n got %s\nwant %s", patch, text, got, want)
	}
	if reflect.DeepEqual(decoded(t, text), decoded(t, want)) && len(patch) > 0 {
		t.Fatalf("nothing changed, got patch %s", patch)
	}
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	return patch
}

// operations returns "op path" for each operation of a patch.
func operations(t testing.TB, patch []byte) (all []string) {
	t.Helper()
	var decoded []struct{ Op, Path string }
	if len(patch) > 0 {
		if err := json.Unmarshal(patch, &decoded); err != nil {
			t.Fatalf("%v in %s", err, patch)
		}
	}
	for _, operation := range decoded {
		all = append(all, operation.Op+" "+operation.Path)
	}
	return all
}
