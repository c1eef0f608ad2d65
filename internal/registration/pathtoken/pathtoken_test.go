package pathtoken_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fastadmit/fastadmit/internal/registration/pathtoken"
)

func TestNew(t *testing.T) {
	first, second := pathtoken.New(), pathtoken.New()
	if first == second || len(first) != pathtoken.LengthMin || pathtoken.Check(first) != nil {
		t.Errorf("got %q and %q, want two tokens of %d characters", first, second, pathtoken.LengthMin)
	}
	if longest := strings.Repeat("a", pathtoken.LengthMax); len(validation.IsDNS1123Label(longest)) > 0 ||
		len(validation.IsDNS1123Label(longest+"a")) == 0 {
		t.Errorf("got LengthMax %d, want what a DNS label may have", pathtoken.LengthMax)
	}
}

func TestParse(t *testing.T) {
	a, b := strings.Repeat("a", pathtoken.LengthMin), strings.Repeat("0", pathtoken.LengthMax)
	f := func(text string, want ...string) {
		t.Helper()
		if got, err := pathtoken.Parse(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	f(a, a)
	f(a+"\n", a)
	f("\n "+a+" \r\n\n"+b+"\n", a, b)
	f(strings.Repeat(a+"\n", pathtoken.TokensMax), slices.Repeat([]string{a}, pathtoken.TokensMax)...)

	wrong := func(text, want string) {
		t.Helper()
		got, err := pathtoken.Parse(text)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		} else if strings.Contains(err.Error(), "aaa") {
			t.Errorf("%q: got %v, which shows a token", text, err)
		}
	}
	wrong("", "got 0 path tokens, want 1 to 16")
	wrong("\n", "got 0 path tokens")
	wrong(strings.Repeat(a+"\n", pathtoken.TokensMax+1), "got 17 path tokens")
	wrong(a[1:], "line 1: got a path token of 25 characters, want 26 to 63")
	wrong(a+"\n"+b+"0", "line 2: got a path token of 64 characters")
	for _, c := range []string{"A", "-", "_", "/", ".", " ", "é", "\x00", "`", "{", ":"} {
		wrong(a+c+a, "line 1: got a path token whose character 27 is not a lower-case letter or digit")
	}
}

func TestOf(t *testing.T) {
	longest := strings.Repeat("a", pathtoken.LengthMax)
	f := func(path, want string) {
		t.Helper()
		if got := pathtoken.Of([]byte(path)); string(got) != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
	}
	f("/a/mutate", "a")
	f("/a", "a")
	f("/a?timeout=1s", "a")
	f("/a/b?c/d", "a")
	f("/"+longest, longest)
	f("/"+longest+"/", longest)
	f("/"+longest+"a", "")
	f("/"+longest+"a/", "")
	f("", "")
	f("/", "")
	f("//a", "")
	f("a/b", "")
	f("https://a/b", "")
}

// FuzzParse reads any file of tokens. What Parse returns are tokens, which are found in paths.
func FuzzParse(f *testing.F) {
	f.Add(strings.Repeat("a", pathtoken.LengthMin) + "\n\n " + strings.Repeat("0", pathtoken.LengthMax) + " \r\n")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := pathtoken.Parse(text)
		if (len(tokens) == 0) != (err != nil) {
			t.Fatalf("%q: got %q, %v", text, tokens, err)
		}
		for _, token := range tokens {
			if err := pathtoken.Check(token); err != nil || string(pathtoken.Of([]byte("/"+token+"/mutate"))) != token {
				t.Errorf("%q: got the token %q, %v", text, token, err)
			}
		}
	})
}
