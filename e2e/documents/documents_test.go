// Package documents reads the commands in all documents, those that no other test runs among them, and checks that
// their subcommands, flags, make targets, chart values, packages and files exist.
package documents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const root = "../.."

// checked are the programs whose arguments this test checks; others are programs that scripts may
// call without a check.
var (
	checked = []string{"fastadmit", "my-fastadmit", "helm", "kubectl", "make", "go"}
	others  = []string{"brew", "buildah", "cat", "curl", "docker", "grep", "kind", "minisign", "openssl", "sed", "sha256sum", "skopeo",
		"sleep", "tar", "volumelabels"}
)

// A script is shell code in a document.
type script struct{ document, text string }

// A call is a program that a script calls.
type call struct {
	folder    string
	arguments []string // with the program
}

func TestCommands(t *testing.T) {
	folder := checkout(t)
	p := &programs{folder: folder, helped: make(map[string]error)}
	var err error
	if p.fastadmit, err = filepath.Abs(cluster.Binary); err != nil {
		t.Fatal(err)
	}
	if p.kubectl, err = filepath.Abs(cluster.Built("kubernetes/kubectl")); err != nil {
		t.Fatal(err)
	}
	p.helm = walkthrough.Tool(t, "helm")
	calls := 0
	for _, s := range scripts(t) {
		made, err := s.run(t, folder)
		if err != nil {
			t.Errorf("%s: %v\n%s", s.document, err, s.text)
		}
		for _, c := range made {
			if err := p.check(t, c); err != nil {
				t.Errorf("%s: %s: %v", s.document, strings.Join(c.arguments, " "), err)
			}
		}
		calls += len(made)
	}
	if calls < 100 {
		t.Errorf("got %d commands in the documents, want more", calls)
	}
}

var (
	ofFence   = regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```$")
	ofConsole = regexp.MustCompile(`(?m)^\$ (.*)$`)
	ofAction  = regexp.MustCompile(`(?m)^ *(?:- )?run: (.*)$`)
	ofText    = regexp.MustCompile("`((?:bin/)?(?:" + strings.Join(checked, "|") + ") [^`]*)`")
)

// scripts returns the shell code of all documents: blocks, consoles, GitHub's workflows, and the
// commands in the text.
func scripts(t *testing.T) (all []script) {
	t.Helper()
	names := strings.Fields(walkthrough.Run(t, nil, "git", "-C", root, "ls-files", "*.md", "deploy/chart/templates/NOTES.txt"))
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range ofFence.FindAllStringSubmatch(string(content), -1) {
			text := strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n")
			switch m[2] {
			case "sh":
				all = append(all, script{name, text})
			case "console":
				var lines []string
				for _, line := range ofConsole.FindAllStringSubmatch(text, -1) {
					lines = append(lines, line[1])
				}
				all = append(all, script{name, strings.Join(lines, "\n")})
			case "yaml":
				for _, line := range ofAction.FindAllStringSubmatch(text, -1) {
					all = append(all, script{name, line[1]})
				}
			}
		}
		for _, m := range ofText.FindAllStringSubmatch(ofFence.ReplaceAllString(string(content), ""), -1) {
			all = append(all, script{name, strings.Join(strings.Fields(m[1]), " ")})
		}
	}
	return all
}

// checkout returns a folder with the files of the repository, in which scripts may write, and bin/ with a program of each
// name that writes its arguments into the file calls and does nothing else, and mkdir.
func checkout(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(absolute)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Name() != "bin" {
			if err := os.Symlink(filepath.Join(absolute, entry.Name()), filepath.Join(folder, entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Mkdir(filepath.Join(folder, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	mkdir, err := exec.LookPath("mkdir") // what is written there needs the folder
	if err == nil {
		err = os.Symlink(mkdir, filepath.Join(folder, "bin", "mkdir"))
	}
	if err != nil {
		t.Fatal(err)
	}
	const recorder = "#!/bin/sh\n" + `printf '%s\0' "$PWD" "$#" "${0##*/}" "$@" >>"$CALLS"` + "\n"
	for _, name := range slices.Concat(checked, others) {
		if err := os.WriteFile(filepath.Join(folder, "bin", name), []byte(recorder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// run lets a shell run the script, and returns the calls. A program that this test does not know is an error.
func (s script) run(t *testing.T, folder string) ([]call, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "calls")
	cmd := exec.CommandContext(ctx, "/bin/sh", "-euc", s.text)
	cmd.Dir = folder
	cmd.Env = []string{"PATH=" + filepath.Join(folder, "bin"), "CALLS=" + file, "HOME=" + folder}
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("it calls no program: %w", err)
	}
	var calls []call
	for words := strings.Split(strings.TrimSuffix(string(written), "\x00"), "\x00"); len(words) > 0; {
		var count int
		if _, err := fmt.Sscan(words[1], &count); err != nil {
			return nil, err
		}
		calls = append(calls, call{folder: words[0], arguments: words[2 : 3+count]})
		words = words[3+count:]
	}
	return calls, nil
}

// programs are the real programs.
type programs struct {
	folder, fastadmit, kubectl, helm string
	helped                           map[string]error // by command line
}

func (p *programs) check(t *testing.T, c call) error {
	t.Helper()
	if err := c.files(); err != nil {
		return err
	}
	arguments := c.arguments[1:]
	switch c.arguments[0] {
	case "fastadmit", "my-fastadmit":
		return p.help(p.fastadmit, arguments)
	case "kubectl":
		if len(arguments) > 0 && arguments[0] == "fastadmit" {
			return p.help(p.fastadmit, arguments[1:]) // a plugin
		}
		if len(arguments) > 0 && arguments[0] == "krew" {
			return nil // a plugin of others
		}
		return p.help(p.kubectl, arguments)
	case "helm":
		if err := p.help(p.helm, arguments); err != nil {
			return err
		}
		return p.values(arguments)
	case "make":
		return makes(arguments)
	case "go":
		return packages(c)
	}
	return nil
}

// command are the words before the flags and arguments in the usage of a command.
var command = regexp.MustCompile(`(?m)^Usage:\n +\S+((?: [a-z][a-z-]*)*)`)

// help asks a program for help on a command. It parses the flags before, and says which of them it does not know.
func (p *programs) help(program string, arguments []string) error {
	if end := slices.Index(arguments, "--"); end >= 0 {
		arguments = arguments[:end]
	}
	// For documents that mention "helm upgrade ...".
	arguments = slices.DeleteFunc(slices.Clone(arguments), func(word string) bool { return word == "..." })
	line := program + " " + strings.Join(arguments, " ")
	if err, ok := p.helped[line]; ok {
		return err
	}
	cmd := exec.Command(program, append(arguments, "--help")...)
	cmd.Env = []string{"HOME=" + p.folder}
	output, err := cmd.CombinedOutput()
	usage := command.FindStringSubmatch(string(output))
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %s", err, output)
	case usage == nil:
		err = fmt.Errorf("there is no help: %s", output)
	default:
		words := strings.Fields(usage[1])
		if len(words) == 0 || slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(arguments, word) }) {
			err = fmt.Errorf("there is no such command: the help is on %q", usage[0])
		}
	}
	p.helped[line] = err
	return err
}

// values renders the chart with the command's values. Templates may require more values, the schema
// may not.
func (p *programs) values(arguments []string) error {
	set := []string{"template", "fastadmit", root + "/deploy/chart"}
	for i, argument := range arguments {
		switch {
		case strings.HasPrefix(argument, "--set="), strings.HasPrefix(argument, "--set-string="):
			set = append(set, argument)
		case argument == "--set", argument == "--set-string":
			set = append(set, argument, arguments[i+1])
		}
	}
	if len(set) == 3 {
		return nil
	}
	output, err := exec.Command(p.helm, set...).CombinedOutput()
	if err != nil && strings.Contains(string(output), "schema") {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
}

// makes checks the targets and the variables.
func makes(arguments []string) error {
	makefile, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		return err
	}
	for _, argument := range arguments {
		name, _, isVariable := strings.Cut(argument, "=")
		wanted := "(?m)^" + regexp.QuoteMeta(name) + ":"
		if isVariable {
			wanted = `\$\(` + regexp.QuoteMeta(name) + `\)`
		}
		if !regexp.MustCompile(wanted).Match(makefile) {
			return fmt.Errorf("the Makefile has no %s", name)
		}
	}
	return nil
}

// packages checks the packages of the repository that a go command names.
func packages(c call) error {
	folder := c.folder
	if c.arguments[1] == "-C" {
		folder = filepath.Join(folder, c.arguments[2])
	}
	for _, argument := range c.arguments[1:] {
		if !strings.HasPrefix(argument, "./") {
			continue
		}
		cmd := exec.Command("go", "list", argument)
		cmd.Dir = folder
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
	}
	return nil
}

// files checks the names of files in the repository.
func (c call) files() error {
	for _, argument := range c.arguments[1:] {
		_, value, _ := strings.Cut(argument, "=")
		for _, word := range append(strings.Split(argument, ","), strings.Split(value, ",")...) {
			first, rest, isPath := strings.Cut(word, "/")
			if !isPath || first == "" || rest == "" || c.arguments[0] == "kubectl" && filepath.Ext(word) != ".yaml" {
				continue
			}
			if info, err := os.Stat(filepath.Join(c.folder, first)); first == "." || first == ".." || err != nil || !info.IsDir() {
				continue
			}
			if _, err := os.Stat(filepath.Join(c.folder, word)); err != nil {
				return err
			}
		}
	}
	return nil
}
