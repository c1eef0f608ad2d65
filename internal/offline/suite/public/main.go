// Command public runs the tests of public repositories of policies with fastadmit test, and
// counts the cases that end as their authors expect. The repositories are folders below the
// argument: policies (of github.com/kyverno), gatekeeper-library (of
// github.com/open-policy-agent) and cel-admission-library (of github.com/kubescape). With -convert, it counts the cases
// that end as before after --convert-tests.
package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	binary := flag.String("binary", "bin/fastadmit", "the fastadmit to run")
	convertTests := flag.Bool("convert", false, "compare the cases with those of suites that are made of them")
	verbose := flag.Bool("v", false, "also print the cases that do not end as expected")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "want one argument: the folder with the repositories")
		os.Exit(2)
	}
	count := test
	if *convertTests {
		count = convert
	}
	if err := countAll(*binary, flag.Arg(0), *verbose, count); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// group are suites that are counted together.
type group struct {
	name  string
	paths []string
}

// countAll counts the cases of all groups.
func countAll(binary, dir string, verbose bool, count func(binary string, g group, verbose bool) (passed, all int, err error)) error {
	groups, err := find(dir)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "suites")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	controls, err := writeControls(filepath.Join(dir, "cel-admission-library"), scratch)
	if err != nil {
		return err
	}
	if controls {
		groups = append(groups, group{"kubescape/cel-admission-library", []string{scratch}})
	}
	if len(groups) == 0 {
		return fmt.Errorf("%s has none of the folders policies, gatekeeper-library, cel-admission-library", dir)
	}
	passed, all := 0, 0
	for _, g := range groups {
		p, n, err := count(binary, g, verbose)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		passed, all = passed+p, all+n
	}
	fmt.Printf("%-40s %d of %d cases as expected\n", "all", passed, all)
	if all == 0 {
		return errors.New("no case was run")
	}
	const percentMin = 99
	if passed*100 < all*percentMin {
		return fmt.Errorf("less than %d %% of the cases end as expected", percentMin)
	}
	return nil
}

// find returns the folders with suites whose policies are written in CEL.
func find(dir string) (groups []group, err error) {
	for _, suffix := range []string{"vpol", "mpol", "cel"} {
		folders, err := filepath.Glob(filepath.Join(dir, "policies", "*-"+suffix))
		if err != nil {
			return nil, err
		}
		folders = slices.DeleteFunc(folders, func(folder string) bool { return !has(folder, "kyverno-test.yaml", "") })
		if len(folders) > 0 {
			groups = append(groups, group{"kyverno/policies *-" + suffix, folders})
		}
	}
	library := group{name: "open-policy-agent/gatekeeper-library"}
	root := filepath.Join(dir, "gatekeeper-library", "library")
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "template.yaml" && has(filepath.Dir(path), "template.yaml", "K8sNativeValidation") &&
			has(filepath.Dir(path), "suite.yaml", "") {
			library.paths = append(library.paths, filepath.Dir(path))
		}
		return err
	})
	if len(library.paths) > 0 {
		groups = append(groups, library)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return groups, err
}

// has reports whether a folder has a file with a name that contains a text.
func has(folder, name, text string) (found bool) {
	_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error { // an error means that there is none
		if err == nil && entry.Name() == name {
			content, err := os.ReadFile(path)
			found = found || err == nil && strings.Contains(string(content), text)
		}
		return nil
	})
	return found
}

// test runs the suites of a group, and returns how many cases passed, and how many there are.
func test(binary string, g group, verbose bool) (passed, all int, err error) {
	suites, err := run(binary, g.paths...)
	if err != nil {
		return 0, 0, err
	}
	for _, suite := range suites {
		for i := range suite.Cases {
			c := &suite.Cases[i]
			all++
			if c.Failure == nil && c.Error == nil {
				passed++
			} else if verbose {
				fmt.Printf("%s %s\n\t%s\n", suite.File, c.Name, strings.ReplaceAll(c.text(), "\n", "\n\t"))
			}
		}
	}
	fmt.Printf("%-40s %d of %d cases as expected\n", g.name, passed, all)
	return passed, all, nil
}

// A testSuite is a suite in a report of JUnit.
type testSuite struct {
	File  string     `xml:"name,attr"`
	Cases []testCase `xml:"testcase"`
}

type testCase struct {
	Name    string  `xml:"name,attr"`
	Failure *string `xml:"failure"`
	Error   *string `xml:"error"`
	Skipped *string `xml:"skipped"`
}

// run runs suites.
func run(binary string, args ...string) ([]testSuite, error) {
	command := exec.Command(binary, append([]string{"test", "-o", "junit"}, args...)...) //nolint:gosec // the arguments are files and folders
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil && stdout.Len() == 0 {
		return nil, fmt.Errorf("%w: %s", err, &stderr)
	}
	var report struct {
		Suites []testSuite `xml:"testsuite"`
	}
	err := xml.Unmarshal(stdout.Bytes(), &report)
	return report.Suites, err
}
