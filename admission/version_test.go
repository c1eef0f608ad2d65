package admission_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission"
)

func TestParseVersion(t *testing.T) {
	f := func(text, want string, wantKnown bool) {
		t.Helper()
		v, known, err := admission.ParseVersion(text)
		if got := v.String(); err != nil || got != want || known != wantKnown {
			t.Errorf("%s: got %s, known %v, %v, want %s, known %v", text, got, known, err, want, wantKnown)
		}
	}
	f("1.33", "1.33", true)
	f("1.37", "1.37", true)
	f("1.32", "1.33", false)
	f("1.38", "1.37", false)
	for _, text := range []string{"", "1", "1.", "1.x", "2.34", "1.34.1", "v1.34", "1.-34", "1.99999"} {
		if _, _, err := admission.ParseVersion(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

func TestVersionAtLeast(t *testing.T) {
	v, _, err := admission.ParseVersion("1.34")
	if err != nil || !v.AtLeast(1, 33) || !v.AtLeast(1, 34) || v.AtLeast(1, 35) || v.AtLeast(2, 0) {
		t.Errorf("got another order of releases, %v", err)
	}
	if newest := (admission.Version{}); newest != admission.Newest() || !newest.AtLeast(1, 37) || newest.AtLeast(1, 38) {
		t.Errorf("got %s as the zero version, want the newest", newest)
	}
}
