package app

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission"
)

// TestEmulatedHears expects that a newer version is taken after enough equal answers in a row, and
// an older one at once.
func TestEmulatedHears(t *testing.T) {
	parse := func(text string) admission.Version {
		v, _, err := admission.ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	e := &emulated{answered: parse("1.34")}
	hear := func(text, want string, wantChange bool) {
		t.Helper()
		if changed := e.hear(parse(text)); changed != wantChange || e.answered.String() != want {
			t.Errorf("after %s: got %s, changed %v, want %s, %v", text, e.answered, changed, want, wantChange)
		}
	}
	for range emulatedAgreeMin - 1 {
		hear("1.35", "1.34", false)
	}
	hear("1.34", "1.34", false) // another API server
	for range emulatedAgreeMin - 1 {
		hear("1.35", "1.34", false)
	}
	hear("1.35", "1.35", true)
	hear("1.35", "1.35", false)
	hear("1.36", "1.35", false)
	hear("1.34", "1.34", true) // back
}
