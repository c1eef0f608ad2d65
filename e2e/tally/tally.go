// Package tally counts how often fastadmit and Kubernetes gave the same result, and what was lost
// during events. Tests write their counts; the command tally/show makes the tables.
package tally

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Row is the result of one kind of test for one plugin.
type Row struct {
	Plugin    string
	Test      string // what was compared
	Cases     int
	Different []string // what differs
	// Listed are differences that README.md explains. Skipped are cases that were not run.
	Listed, Skipped []string
}

// Dir is the environment variable with the folder into which tests write. If it is empty, they do
// not write.
const Dir = "FASTADMIT_TALLY"

// Write keeps the row for the table.
func (r Row) Write() error {
	dir := os.Getenv(Dir)
	if dir == "" {
		return nil
	}
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Test+"-"+r.Plugin+".json"), content, 0o644)
}

// Read returns all rows in dir, sorted.
func Read(dir string) ([]Row, error) {
	rows, err := read[Row](dir)
	slices.SortFunc(rows, func(a, b Row) int {
		return strings.Compare(a.Plugin+" "+a.Test, b.Plugin+" "+b.Test)
	})
	return rows, err
}

// read returns the content of the files of a folder, ordered by name.
func read[T any](dir string) ([]T, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	all := make([]T, len(files))
	for i, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(content, &all[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, nil
}

// Table returns the rows as a table, and below it the differences.
func Table(rows []Row) string {
	var text strings.Builder
	t := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "PLUGIN\tTEST\tCASES\tEQUAL\tDIFFERENT\tLISTED\tSKIPPED")
	for _, r := range rows {
		equal := r.Cases - len(r.Different) - len(r.Listed)
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", r.Plugin, r.Test, r.Cases, equal, len(r.Different), len(r.Listed), len(r.Skipped))
	}
	_ = t.Flush() // a strings.Builder takes everything
	for _, r := range rows {
		for _, list := range []struct {
			what string
			all  []string
		}{{"different", r.Different}, {"listed", r.Listed}, {"skipped", r.Skipped}} {
			for i, s := range list.all {
				if slices.Index(list.all, s) < i {
					continue
				}
				fmt.Fprintf(&text, "%s, %s: %s: %s%s\n", r.Plugin, r.Test, list.what, s, times(list.all, s))
			}
		}
	}
	return text.String()
}

// times says how often a text is in a list, if it is there more than once.
func times(all []string, text string) string {
	n := 0
	for _, s := range all {
		if s == text {
			n++
		}
	}
	if n < 2 {
		return ""
	}
	return fmt.Sprintf(" (%d cases)", n)
}
