package printable

import "testing"

func TestPlain(t *testing.T) {
	f := func(text, want, wantWord string) {
		t.Helper()
		if got := Plain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		if got := Word(text); got != wantWord {
			t.Errorf("%q: got the word %q, want %q", text, got, wantWord)
		}
	}
	f("", "", "")
	f("größer 日本 ::x", "größer 日本 ::x", "größer 日本 ::x")
	f("a\n\tb\n", "a\n\tb\n", `a\n\tb\n`)
	f("a\r\x1b[0m\x7f\u009b\u202e\u2028", `a\r\x1b[0m\x7f\u009b\u202e\u2028`, `a\r\x1b[0m\x7f\u009b\u202e\u2028`)
	f("a\u200bb\u3164\ufe0f", `a\u200bb\u3164\ufe0f`, `a\u200bb\u3164\ufe0f`)
	f("\xff\xfea\ufffd", `\xff\xfea�`, `\xff\xfea�`)
	f("::a\n \t::b\n##[c]", "\\::a\n \t\\::b\n##\\[c]", `::a\n \t::b\n##\[c]`)
}
