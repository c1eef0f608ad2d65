// Command show prints the tables of the tests' counts: show <folder> [<README to write them into>].
// It fails if there is a difference that is not listed, if a plugin is missing, or if there are no
// losses.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

func main() {
	table, err := show(os.Args[1])
	losses, lossErr := showLosses(os.Args[1])
	fmt.Print(table, losses)
	err = errors.Join(err, lossErr)
	if err == nil && len(os.Args) > 2 {
		err = write(os.Args[2], map[string]string{begin: table, beginLosses: losses})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "show:", err)
		os.Exit(1)
	}
}

func show(dir string) (table string, err error) {
	rows, err := tally.Read(dir)
	if err != nil {
		return "", err
	}
	table = tally.Table(rows)
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		if !slices.ContainsFunc(rows, func(r tally.Row) bool { return r.Plugin == p.Name }) {
			return table, fmt.Errorf("%s: got no cases, want some", p.Name)
		}
	}
	for _, r := range rows {
		if len(r.Different) > 0 {
			return table, fmt.Errorf("%s, %s: %d cases differ and are not listed", r.Plugin, r.Test, len(r.Different))
		}
	}
	return table, nil
}

// showLosses returns the table of losses. The tests have checked each row.
func showLosses(dir string) (string, error) {
	rows, err := tally.ReadLosses(dir)
	if err == nil && len(rows) == 0 {
		err = errors.New("losses: got no row, want some, or why there is none")
	}
	return tally.LossTable(rows), err
}

// The lines between which a README has the tables.
const (
	begin       = "<!-- table: written by make e2e-full -->\n"
	beginLosses = "<!-- losses: written by make e2e-full -->\n"
	end         = "<!-- end -->\n"
)

// write writes the tables, each behind the line that it begins with.
func write(readme string, tables map[string]string) error {
	content, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	text := string(content)
	for begin, table := range tables {
		before, rest, ok := strings.Cut(text, begin)
		_, after, found := strings.Cut(rest, end)
		if !ok || !found {
			return fmt.Errorf("%s: got no place for a table, want the lines %q and %q", readme, begin, end)
		}
		text = before + begin + "```text\n" + table + "```\n" + end + after
	}
	return os.WriteFile(readme, []byte(text), 0o644)
}
