package codec_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fastadmit/fastadmit/codec"
)

func TestAppendString(t *testing.T) {
	f := func(s, want string) {
		t.Helper()
		if got := string(codec.AppendString([]byte("before"), s)); got != "before"+want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
		checkString(t, s)
	}
	f("", `""`)
	f("plain", `"plain"`)
	f(`q"b\`, `"q\"b\\"`)
	f("\n\t\r\b\f\x00\x1f\x7f", `"\n\t\u000d\u0008\u000c\u0000\u001f`+"\x7f\"")
	f("<a>&\u2028\u2029", "\"<a>&\u2028\u2029\"")
	f("é世😀", `"é世😀"`)
	f("\xff", "\"\ufffd\"")
	f("a\xc3\xc3b\xf0\x9f", "\"a\ufffd\ufffdb\ufffd\ufffd\"")
	f("\ufffd", "\"\ufffd\"")
	f("\xed\xa0\x80", "\"\ufffd\ufffd\ufffd\"") // a surrogate
}

// TestAppendStringEveryByte puts every byte at every place of a string, because
// strings are read eight bytes at a time.
func TestAppendStringEveryByte(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				text := bytes.Repeat([]byte("a"), length)
				text[at] = byte(c)
				checkString(t, string(text))
			}
		}
	}
}

// checkString compares AppendString with encoding/json, and reads the result
// back.
func checkString(t *testing.T, s string) {
	t.Helper()
	got := codec.AppendString(nil, s)
	want, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if fromBytes := codec.AppendStringBytes(nil, []byte(s)); !bytes.Equal(fromBytes, got) {
		t.Errorf("%q: got %s from bytes, %s from a string", s, fromBytes, got)
	}
	var a, b string
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatalf("%q: %v in %s", s, err, got)
	}
	if err := json.Unmarshal(want, &b); err != nil {
		t.Fatal(err)
	}
	if a != b || !utf8.Valid(got) {
		t.Errorf("%q: got %s, encoding/json has %s", s, got, want)
	}
	var o codec.Object
	o.Reset(got)
	if back := o.Root().String(); back != a || !o.Root().EqualString(a) || o.Err() != nil {
		t.Errorf("%q: read back as %q, %v", s, back, o.Err())
	}
	if utf8.ValidString(s) && a != s {
		t.Errorf("%q: comes back as %q", s, a)
	}
}

// FuzzAppendString compares AppendString with encoding/json.
func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "plain", "q\"\\\n\x00\x7f", "é世😀\u2028", "\xff\xc3a", "\xed\xa0\x80", strings.Repeat("a\"", 40)} {
		f.Add(seed)
	}
	f.Fuzz(checkString)
}
