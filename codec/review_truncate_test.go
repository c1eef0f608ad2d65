package codec_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/allocs"
)

// TestTruncateString measures the truncated text as JSON of encoding/json, which
// escapes HTML, and of AppendString.
func TestTruncateString(t *testing.T) {
	const bound = 600
	written := func(s string) int {
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		most := max(len(text), len(codec.AppendString(nil, s))) - len(`""`)
		for _, r := range s { // characters with the longest escapes
			if r == 0x7f {
				most += len(`\u007f`) - 1
			} else if n := utf8.RuneLen(r); r > 0x7f && r != '\u2028' && r != '\u2029' && !codec.IsPrintable(r) {
				most += len(utf16.Encode([]rune{r}))*len(`\u0080`) - n
			}
		}
		return most
	}
	f := func(s string) {
		t.Helper()
		fits := written(s) <= bound
		got := codec.TruncateString(s, bound)
		if fits != (got == s) {
			t.Fatalf("%.20q, %d bytes, %d written: got %q", s, len(s), written(s), got)
		}
		if written(got) > bound {
			t.Fatalf("%.20q, %d bytes: got %q, which is longer than %d", s, len(s), got, bound)
		}
		if fits {
			return
		}
		begin, note, _ := strings.Cut(got, "... (truncated, ")
		if !strings.HasPrefix(s, begin) || note != itoa(len(s))+" bytes)" || utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Fatalf("%.20q, %d bytes: got %q", s, len(s), got)
		}
		if written(got) < bound-2*escapedMax {
			t.Fatalf("%.20q: got %q, which is shorter than it has to be", s, got)
		}
	}
	for _, c := range []string{"a", `"`, `\`, "<", ">", "&", "\x00", "\x1f", "\r", "\u007f", "é", "€", "\u2028", "\u2029", "😀",
		"\xff", "\ufffd", "a\xe2\x82", "\u009b", "\u202e", "\U000e0001", "\n", "\t"} {
		for n := range bound + 2 {
			if s := strings.Repeat(c, n); written(s) > bound-2*escapedMax*len(c) && written(s) <= bound+2*escapedMax*len(c) {
				f(s) // around the limit
			}
		}
		for shift := range 8 {
			f(strings.Repeat("a", shift) + strings.Repeat(c, bound))
		}
	}
	f("")
	f(strings.Repeat("a", 1<<20))
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

const escapedMax = 6

func TestTruncateStringAllocatesNothing(t *testing.T) {
	for _, s := range []string{"short", strings.Repeat("a", 600)} {
		if n := allocs.PerRun(100, func() { codec.TruncateString(s, 600) }); n != 0 {
			t.Errorf("%d bytes: got %v allocations", len(s), n)
		}
	}
}
