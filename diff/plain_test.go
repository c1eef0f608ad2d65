package diff

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// TestIsPlain puts every byte at every place of a text and compares with what
// codec makes a string of.
func TestIsPlain(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				text := bytes.Repeat([]byte("a"), length)
				text[at] = byte(c)
				want := string(codec.AppendString(nil, string(text))) == `"`+string(text)+`"` && c < 0x80
				if got := isPlain(text); got != want {
					t.Fatalf("%q: got %v, want %v", text, got, want)
				}
			}
		}
	}
}
