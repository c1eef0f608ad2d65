package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// converted is the name of a suite that is made of a test, beside it.
const converted = "converted.test.yaml"

// outside lets a test read files beside its folder, where Kyverno's tests have their policies.
const outside = "--allow-files-outside"

// convert converts the tests of a group, and compares how their cases and those of the suites end. Suites are written beside the
// tests, because both name the same files, and removed again.
func convert(binary string, g group, verbose bool) (same, all int, err error) {
	without := 0
	for _, path := range g.paths {
		err := filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || !slices.Contains([]string{"kyverno-test.yaml", "suite.yaml"}, entry.Name()) {
				return err
			}
			b, err := both(binary, file)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if verbose && b.refused != "" {
				fmt.Print(b.refused)
			}
			for _, name := range slices.Sorted(maps.Keys(b.there)) {
				ending := b.there[name]
				got, ok := b.here[name]
				switch {
				case ending == "skipped":
					continue
				case !ok:
					without++
				case got == ending:
					same++
				case verbose:
					fmt.Printf("%s %s: %s there, %s here\n", file, name, ending, got)
				}
				all++
			}
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
	}
	fmt.Printf("%-40s %d of %d cases converted, %d of them end alike\n", g.name, all-without, all, same)
	return same, all - without, nil
}

// comparison has how the cases of a test end, and those of the suite that is made of it.
type comparison struct {
	there, here map[string]string
	refused     string // why cases are not converted
}

func both(binary, file string) (b comparison, err error) {
	if b.there, err = endings(binary, file); err != nil {
		return b, err
	}
	command := exec.Command(binary, "test", "--convert-tests", "--skip-untranslatable", outside, file) //nolint:gosec // the argument is a file
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return b, fmt.Errorf("%w: %s", err, &stderr)
	}
	b.refused = stderr.String()
	if stdout.Len() == 0 {
		return b, nil
	}
	suite := filepath.Join(filepath.Dir(file), converted)
	const readable = 0o600
	if err := os.WriteFile(suite, stdout.Bytes(), readable); err != nil {
		return b, err
	}
	b.here, err = endings(binary, suite)
	return b, errors.Join(err, os.Remove(suite))
}

// endings runs a suite, and returns how each case ends.
func endings(binary, file string) (map[string]string, error) {
	suites, err := run(binary, outside, file)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string)
	for _, s := range suites {
		for _, c := range s.Cases {
			name := c.Name
			for n := 2; all[name] != ""; n++ { // as a converted suite calls it
				name = fmt.Sprintf("%s (%d)", c.Name, n)
			}
			all[name] = c.ending()
		}
	}
	return all, nil
}

// ending says how a case ends.
func (c *testCase) ending() string {
	switch {
	case c.Error != nil:
		return "broken"
	case c.Failure != nil:
		return "failed"
	case c.Skipped != nil:
		return "skipped"
	}
	return "passed"
}

// text returns what is wrong with a case.
func (c *testCase) text() string {
	text := c.Failure
	if text == nil {
		text = c.Error
	}
	return strings.TrimSpace(*text)
}
