package handlers_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/handlers"
)

// TestTable compares the table of plugins, without the rules, with testdata/table.txt, so
// that changes of it are noticed.
func TestTable(t *testing.T) {
	var got strings.Builder
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		fmt.Fprint(&got, p.Name, ":")
		for _, property := range []struct {
			has  bool
			name string
		}{
			{p.Mutates, "mutates"}, {p.Validates, "validates"}, {p.OnByDefault, "on by default"}, {p.OutOfTree, "own"},
			{p.SideEffects != "", "side effects " + string(p.SideEffects)}, {p.LastRelease != "", "until v" + p.LastRelease},
		} {
			if property.has {
				fmt.Fprint(&got, " ", property.name, ",")
			}
		}
		fmt.Fprintln(&got)
		for _, need := range p.Needs {
			verbs := slices.Sorted(slices.Values(need.Verbs))
			fmt.Fprintf(&got, "  needs %s: %s\n", need.Kind, verbs)
		}
	}
	const golden = "testdata/table.txt"
	if flag.Lookup("update").Value.String() == "true" { // the flag is defined in admissiontest
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got.String() != string(want) {
		t.Errorf("%v, got\n%s\nwant\n%s\n-update writes it anew", err, got.String(), want)
	}
}
