package fastadmit_test

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission/example/creator"
	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
	"github.com/fastadmit/fastadmit/handlers"
)

// documents returns the names of all Markdown files.
func documents(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(files(t), func(name string) bool { return path.Ext(name) != ".md" })
}

// fastadmit runs the command in this process.
func fastadmit(args []string, options ...app.Option) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	cmd := app.NewCommand(options...)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = app.Execute(cmd)
	return out.String(), errs.String(), code
}

// pluginSections are what the README of a plugin has, in this order.
var pluginSections = []string{"Name", "Description", "Configuration", "Examples", "Metrics", "See also"}

// TestConventionsPlugins compares the folders of handlers with the table. The folder
// internal has the code that several handlers share.
func TestConventionsPlugins(t *testing.T) {
	names := make(map[string]string) // of plugins, by folder
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		names[strings.ToLower(plugin.Name)] = plugin.Name
	}
	entries, err := os.ReadDir("handlers")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		folder := entry.Name()
		if !entry.IsDir() || folder == "internal" || folder == "testdata" {
			continue
		}
		name, ok := names[folder]
		if !ok {
			t.Errorf("handlers/%s is no plugin of the table in handlers", folder)
			continue
		}
		delete(names, folder)
		for _, file := range []string{folder + ".go", folder + "_test.go", "README.md", "testdata"} {
			if _, err := os.Stat(path.Join("handlers", folder, file)); err != nil {
				t.Errorf("plugin %s: %v", name, err)
			}
		}
		checkPluginReadme(t, path.Join("handlers", folder, "README.md"), name)
	}
	for folder, name := range names {
		t.Errorf("the table has plugin %s, and there is no folder handlers/%s", name, folder)
	}
}

func checkPluginReadme(t *testing.T, file, plugin string) {
	var sections []string
	for line := range strings.Lines(withoutFences(read(t, file))) {
		if title, ok := strings.CutPrefix(line, "# "); ok && strings.TrimSpace(title) != plugin {
			t.Errorf("%s: got title %q, want %q", file, strings.TrimSpace(title), plugin)
		}
		if section, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, strings.TrimSpace(section))
		}
	}
	if !slices.Equal(sections, pluginSections) {
		t.Errorf("%s: got sections %q, want %q", file, sections, pluginSections)
	}
}

// TestConventionsPluginExamples runs every "fastadmit review" in the README of
// a plugin: with the plugin's testdata, of which the folder cluster is for
// --cluster-state-dir, and policies and webhooks for staticManifestsDir, with the manifests in testdata here, and with the
// configuration that the README shows.
func TestConventionsPluginExamples(t *testing.T) {
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		t.Run(plugin.Name, func(t *testing.T) {
			folder := path.Join("handlers", strings.ToLower(plugin.Name))
			readme := read(t, path.Join(folder, "README.md"))
			var commands []string
			for _, block := range fences(readme, "sh") {
				for line := range strings.Lines(block) {
					if strings.HasPrefix(line, "fastadmit ") {
						commands = append(commands, strings.TrimSpace(line))
					}
				}
			}
			if len(commands) == 0 {
				t.Fatal("got no example, want one that runs fastadmit review")
			}
			dir := t.TempDir()
			copyManifests(t, dir, "testdata")
			copyManifests(t, dir, path.Join(folder, "testdata"))
			for _, sub := range [...]string{"cluster", "policies", "webhooks"} {
				copyManifests(t, path.Join(dir, sub), path.Join(folder, "testdata", sub))
			}
			writeConfigurations(t, dir, readme)
			t.Chdir(dir)
			for _, command := range commands {
				checkExample(t, command, plugin.Name)
			}
		})
	}
}

// checkExample runs an example. It may be denied, and must not go wrong.
func checkExample(t *testing.T, command, plugin string) {
	t.Helper()
	args := strings.Fields(command)
	if args[1] != "review" || strings.ContainsAny(command, `'"$|&;<>*\`) {
		t.Fatalf("%s: want fastadmit review with words that the shell leaves alone", command)
	}
	if !strings.Contains(command+" ", "-admission-plugins="+plugin+" ") {
		t.Errorf("%s: want it to enable %s", command, plugin)
	}
	stdout, stderr, code := fastadmit(args[1:])
	if stderr != "" || stdout == "" || code > 1 {
		t.Errorf("%s: got exit code %d, standard error %q and standard output %q", command, code, stderr, stdout)
	}
}

func copyManifests(t *testing.T, dir, from string) {
	t.Helper()
	manifests, err := filepath.Glob(path.Join(from, "*.yaml"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, manifest := range manifests {
		writeFile(t, path.Join(dir, path.Base(manifest)), read(t, manifest))
	}
}

// writeConfigurations writes the AdmissionConfiguration that a README shows,
// as admission.yaml, and the plugin's own under the name that is in there.
func writeConfigurations(t *testing.T, dir, readme string) {
	t.Helper()
	blocks := fences(readme, "yaml")
	for _, block := range blocks {
		var admission struct {
			Kind    string
			Plugins []struct{ Path string }
		}
		if err := yaml.Unmarshal([]byte(block), &admission); err != nil {
			t.Fatal(err)
		}
		if admission.Kind != "AdmissionConfiguration" {
			continue
		}
		writeFile(t, path.Join(dir, "admission.yaml"), block)
		for _, plugin := range admission.Plugins {
			if plugin.Path == "" {
				continue
			}
			writeFile(t, path.Join(dir, plugin.Path), blocks[0])
		}
	}
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// fences returns the contents of the fenced blocks in that language.
func fences(document, language string) (blocks []string) {
	for _, match := range fence.FindAllStringSubmatch(document, -1) {
		if match[1] == language {
			blocks = append(blocks, match[2])
		}
	}
	return blocks
}

func withoutFences(document string) string { return fence.ReplaceAllString(document, "") }

// generated is a block that is not written by hand: what it is made of, and
// the block.
var generated = regexp.MustCompile(`(?s)<!-- generated: (.*?) -->\n(.*?)<!-- end -->`)

// TestConventionsGenerated makes the generated blocks of all documents anew:
// "plugins" is the table of plugins, "not here" that of those that are not in it, "times" a sentence on the tables of "make compare", "dependencies" one on modules, "file NAME" a file beside the document,
// "run ARGUMENTS" what bin/fastadmit prints, and "example ARGUMENTS" what the
// binary with the plugin of admission/README.md does.
func TestConventionsGenerated(t *testing.T) {
	for _, name := range documents(t) {
		document := read(t, name)
		if begun := strings.Count(document, "<!-- generated:"); begun != len(generated.FindAllString(document, -1)) {
			t.Errorf("%s: got %d generated blocks that do not all have an end", name, begun)
		}
		current := generated.ReplaceAllStringFunc(document, func(block string) string {
			what := generated.FindStringSubmatch(block)[1]
			want := fmt.Sprintf("<!-- generated: %s -->\n%s<!-- end -->", what, generate(t, name, what))
			if block != want && !*update {
				t.Errorf("%s is not current, make docs writes it anew\ngot\n%s\nwant\n%s", name, block, want)
			}
			return want
		})
		if *update && current != document {
			writeFile(t, name, current)
		}
	}
}

func generate(t *testing.T, document, what string) string {
	verb, rest, _ := strings.Cut(what, " ")
	switch what {
	case "not here":
		return notHereTable()
	case "times":
		return times(t)
	case "dependencies":
		return dependencies(t)
	}
	switch verb {
	case "plugins":
		return pluginTable(t)
	case "flags":
		return flagTable(t, rest)
	case "metrics":
		return metricTable(t)
	case "crd":
		file, kind, _ := strings.Cut(rest, " ")
		return resourceTable(t, "deploy/chart/files/"+file, kind)
	case "configuration":
		return configurationTable(t, rest)
	case "file":
		language := strings.TrimPrefix(path.Ext(rest), ".")
		return "```" + language + "\n" + read(t, path.Join(path.Dir(document), rest)) + "```\n"
	case "run":
		stdout, stderr, _ := fastadmit(strings.Fields(rest))
		return "```console\n$ bin/fastadmit " + rest + "\n" + stdout + stderr + "```\n"
	case "example":
		stdout, stderr, _ := fastadmit(strings.Fields(rest), app.WithPlugin(creator.Plugin()))
		return "```console\n$ go run ./admission/example " + rest + "\n" + stdout + stderr + "```\n"
	}
	t.Fatalf("%s: got a generated block of %q, want plugins, not here, times, dependencies, flags, metrics, configuration, crd, file, run or example", document, what)
	return ""
}

var direct = regexp.MustCompile(`(?m)^(?:require )?\s*\S+ v\S+$`)

// dependencies counts the modules of go.mod and of testdata/linked_modules.txt.
func dependencies(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("fastadmit has %d direct dependencies. The binary links %d modules and has about 70 MB, in a release 50 MB.\n",
		len(direct.FindAllString(read(t, "go.mod"), -1)), strings.Count(read(t, "testdata/linked_modules.txt"), "\n"))
}

var ratioInTable = regexp.MustCompile(`, ([0-9.]+)x`)

// times says in a sentence what the tables of make compare say of controller-runtime: its ratio to fastadmit at 100 requests a
// second in README.md, whose rows have ratios to the floor, and those at saturation in bench/README.md.
func times(t *testing.T) string {
	t.Helper()
	ratios := func(document, row string) (all []float64) {
		_, line, _ := strings.Cut(read(t, document), "\n| "+row)
		line, _, _ = strings.Cut(line, "\n")
		for _, m := range ratioInTable.FindAllStringSubmatch(line, -1) {
			ratio, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ratio)
		}
		if len(all) < 2 {
			t.Fatalf("%s: got the row %q of %s, want one with ratios", document, line, row)
		}
		return all
	}
	const at100 = 1 // the column after 20 a second
	rate := ratios("README.md", "controllerruntime |")[at100] / ratios("README.md", "fastadmit |")[at100]
	full := ratios("bench/README.md", "sigs.k8s.io/controller-runtime")
	return fmt.Sprintf("For the same call, a webhook written with controller-runtime needs %.0f times the processor time at 100 calls a second, and %.0f to %.0f times at saturation.\n",
		rate, slices.Min(full), slices.Max(full))
}

func notHereTable() string {
	table := "| plugin | in Kubernetes | why it is not here |\n|---|---|---|\n"
	for _, p := range handlers.NotHere() {
		table += fmt.Sprintf("| %s | v%s to v%s | It %s. |\n", p.Name, p.First, p.Last, p.Reason)
	}
	return table
}

// pluginTable makes what "fastadmit plugins" prints a Markdown table.
func pluginTable(t *testing.T) string {
	const columns = 6
	stdout, _, _ := fastadmit([]string{"plugins", "-o", "wide"})
	table := "| plugin | what it does | kind | in kube-apiserver | needs |\n|---|---|---|---|---|\n"
	for i, line := range strings.Split(strings.TrimSpace(stdout), "\n") {
		cells := regexp.MustCompile(`  +`).Split(line, -1)
		if len(cells) != columns {
			t.Fatalf("fastadmit plugins -o wide: got %d columns, want %d in %q", len(cells), columns, line)
		}
		if i == 0 {
			continue
		}
		table += fmt.Sprintf("| [%s](../handlers/%s/README.md) | %s | %s | %s | %s |\n",
			cells[0], strings.ToLower(cells[0]), cells[3], strings.ReplaceAll(cells[1], ",", ", "), cells[5], cells[4])
	}
	return table
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	code    = regexp.MustCompile("`[^`\n]*`")
)

// TestConventionsLinks resolves links to files and headings of the repository.
func TestConventionsLinks(t *testing.T) {
	for _, name := range documents(t) {
		text := code.ReplaceAllString(withoutFences(read(t, name)), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(match[1], "#")
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s: %v", name, match[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: link to %s: got headings %q, want one for %q", name, match[1], anchors(read(t, target)), anchor)
			}
		}
	}
}

// anchors returns what GitHub makes of the headings of a document.
func anchors(document string) (names []string) {
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, match := range heading.FindAllStringSubmatch(withoutFences(document), -1) {
		plain := dropped.ReplaceAllString(strings.ToLower(match[1]), "")
		names = append(names, strings.ReplaceAll(plain, " ", "-"))
	}
	return names
}

// TestConventionsDocuments holds the documents to what readers count on: a
// README to be read in one go, apart from tables in which one looks something
// up, what is new on top, and commands that exist.
func TestConventionsDocuments(t *testing.T) {
	const readmeLinesMax = 200
	written := generated.ReplaceAllString(read(t, "README.md"), "")
	if lines := strings.Count(written, "\n"); lines >= readmeLinesMax {
		t.Errorf("README.md: got %d lines, want less than %d", lines, readmeLinesMax)
	}
	changes := regexp.MustCompile(`(?m)^## (.*)$`).FindStringSubmatch(read(t, "CHANGELOG.md"))
	if changes == nil || changes[1] != "Unreleased" {
		t.Errorf("CHANGELOG.md: got %q first, want Unreleased", changes)
	}
	makefile := read(t, "Makefile")
	for _, name := range documents(t) {
		for _, match := range regexp.MustCompile("(?m)(?:^|[$] |`)make ([a-z-]+)(?:`|$)").FindAllStringSubmatch(read(t, name), -1) {
			if !strings.Contains(makefile, "\n"+match[1]+":") {
				t.Errorf("%s: speaks of make %s, which is no target", name, match[1])
			}
		}
	}
}

// TestConventionsWords finds what was left unfinished, and paths that exist on
// one machine only. The recordings and checksums are not ours.
func TestConventionsWords(t *testing.T) {
	unwanted := regexp.MustCompile(strings.Join([]string{
		`\bTO` + `DO\b`, `\bFIX` + `ME\b`, `\bXX` + `X\b`, `/wo` + `rk/`, `\.\./sha` + `red`, `/ho` + `me/[a-z]`, `/ro` + `ot/`,
	}, "|"))
	for _, name := range files(t) {
		if ext := path.Ext(name); ext == ".sum" || ext == ".http" || ext == ".json" {
			continue
		}
		content := read(t, name)
		if !utf8.ValidString(content) || strings.Contains(content, "\x00") {
			continue
		}
		line := 0
		for text := range strings.Lines(content) {
			line++
			if found := unwanted.FindString(text); found != "" {
				t.Errorf("%s:%d: got %q", name, line, found)
			}
		}
	}
}
