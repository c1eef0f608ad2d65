// Command show prints the table of what the tests counted: show <folder>
// [<README to write it into>]. It fails if anything differs that is not listed,
// or if a plugin is missing.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers/plugins"
)

func main() {
	table, seeds, err := show(os.Args[1])
	fmt.Print(table, seeds)
	if err == nil && len(os.Args) > 2 {
		err = write(os.Args[2], table)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "show:", err)
		os.Exit(1)
	}
}

func show(dir string) (table, seeds string, err error) {
	rows, err := tally.Read(dir)
	if err != nil {
		return "", "", err
	}
	table, seeds = tally.Table(rows), tally.Seeds(rows)
	for _, p := range plugins.InTree(plugins.DefaultOptions()) {
		if !slices.ContainsFunc(rows, func(r tally.Row) bool { return r.Plugin == p.Name }) {
			return table, seeds, fmt.Errorf("%s: got no cases, want some", p.Name)
		}
	}
	for _, r := range rows {
		if len(r.Different) > 0 {
			return table, seeds, fmt.Errorf("%s, %s: %d cases differ and are not listed", r.Plugin, r.Test, len(r.Different))
		}
	}
	return table, seeds, nil
}

// The lines between which a README has the table.
const begin, end = "<!-- table: written by make e2e -->\n", "<!-- end -->\n"

func write(readme, table string) error {
	content, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(content), begin)
	_, after, found := strings.Cut(rest, end)
	if !ok || !found {
		return fmt.Errorf("%s: got no place for the table, want the lines %q and %q", readme, begin, end)
	}
	return os.WriteFile(readme, []byte(before+begin+"```text\n"+table+"```\n"+end+after), 0o644)
}
