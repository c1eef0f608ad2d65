package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestHomebrew compares the formula with the golden file, into which it puts the checksums. If there is ruby, it reads the formula.
func TestHomebrew(t *testing.T) {
	r := made(t, "", "registry.example.com")
	golden, err := os.ReadFile("testdata/" + formulaName)
	if err != nil {
		t.Fatal(err)
	}
	want := string(golden)
	for name, sum := range sums(t, r) {
		want = strings.ReplaceAll(want, `"SHA256 of `+name+`"`, `"`+sum+`"`)
	}
	if got := string(read(t, r, formulaName)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		if text, err := exec.CommandContext(t.Context(), ruby, "-wc", r.path(formulaName)).CombinedOutput(); err != nil ||
			string(text) != "Syntax OK\n" {
			t.Errorf("ruby -wc: got %v %s", err, text)
		}
	}
}
