package fastadmit_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/docs"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// pluginSections are the sections of a plugin's README, in this order.
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

// TestConventionsPluginExamples runs every "fastadmit review" in the README of a plugin, with the plugin's testdata
// and the configuration that the README shows. The folder cluster in testdata is used for --cluster-state-dir, its
// policies and webhooks for staticManifestsDir, and the manifests come from testdata of the root.
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

// checkExample runs an example. The review may be denied, but must not fail.
func checkExample(t *testing.T, command, plugin string) {
	t.Helper()
	args := strings.Fields(command)
	if args[1] != "review" || strings.ContainsAny(command, `'"$|&;<>*\`) {
		t.Fatalf("%s: want fastadmit review with words that the shell leaves alone", command)
	}
	if !strings.Contains(command+" ", "-admission-plugins="+plugin+" ") {
		t.Errorf("%s: want it to enable %s", command, plugin)
	}
	stdout, stderr, code := docs.Run(args[1:])
	// Plugins that check only some requests, such as approvals, have an example that shows that.
	if stderr != "" && stderr != "fastadmit: warning: "+report.NothingChecked+"\n" || stdout == "" || code > 1 {
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

// writeConfigurations writes the AdmissionConfiguration that a README shows as admission.yaml, and the plugin's own
// configuration under the name that the former refers to.
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

// TestConventionsGenerated compares everything that "make docs" generates.
func TestConventionsGenerated(t *testing.T) {
	texts, err := docs.Generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range texts {
		content, err := docs.Read(name)
		if (err == nil) != (want != "") {
			t.Errorf("%s: got a file: %v, want one: %v. Run make docs", name, err == nil, want != "")
			continue
		}
		got := strings.Split(content, "\n")
		for i, line := range strings.Split(want, "\n") {
			if i >= len(got) || got[i] != line {
				t.Errorf("%s:%d is not current: run make docs. Want the line\n%s", name, i+1, line)
				break
			}
		}
		if len(got) > strings.Count(want, "\n")+1 {
			t.Errorf("%s is not current: run make docs. Got %d lines, want %d", name, len(got), strings.Count(want, "\n")+1)
		}
	}
}

// TestConventionsCommands requires a section for each command in docs/flags.md.
func TestConventionsCommands(t *testing.T) {
	page := read(t, "docs/flags.md")
	for _, cmd := range app.NewCommand().Commands() {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		if !strings.Contains(page, "\n## fastadmit "+cmd.Name()+"\n") {
			t.Errorf("docs/flags.md has no section on fastadmit %s", cmd.Name())
		}
		if cmd.HasAvailableLocalFlags() && !strings.Contains(page, "<!-- generated: flags "+cmd.Name()+" -->") {
			t.Errorf("docs/flags.md does not have the flags of fastadmit %s", cmd.Name())
		}
	}
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

// anchors returns the anchors that GitHub gives to the headings of a document.
func anchors(document string) (names []string) {
	dropped := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, match := range heading.FindAllStringSubmatch(withoutFences(document), -1) {
		plain := dropped.ReplaceAllString(strings.ToLower(match[1]), "")
		names = append(names, strings.ReplaceAll(plain, " ", "-"))
	}
	return names
}

// TestConventionsSite finds documents that the site does not list: make site fails for them.
func TestConventionsSite(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^  - (.+)$`).FindAllStringSubmatch(read(t, "tools/site/pages.yaml"), -1)
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		documents, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range documents {
			if !slices.ContainsFunc(listed, func(line []string) bool {
				matched, err := path.Match(line[1], filepath.ToSlash(document))
				return matched && err == nil
			}) {
				t.Errorf("tools/site/pages.yaml has no %s", document)
			}
		}
	}
}

// TestConventionsSecurity checks that every test that SECURITY.md and docs/support.md name exists, as
// `folder.TestName`, and that each attack in the tables of SECURITY.md names one.
func TestConventionsSecurity(t *testing.T) {
	declared := map[string]bool{}
	tests := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, name := range files(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, match := range tests.FindAllStringSubmatch(read(t, name), -1) {
			declared[path.Base(path.Dir(name))+"."+match[1]] = true
		}
	}
	named := regexp.MustCompile("`([a-z0-9]*\\.?(?:Test|Fuzz)\\w+)`")
	for _, page := range []string{"SECURITY.md", "docs/support.md"} {
		found := named.FindAllStringSubmatch(read(t, page), -1)
		if len(found) == 0 {
			t.Errorf("%s: got no test, want those that show what it says", page)
		}
		for _, match := range found {
			if !declared[match[1]] {
				t.Errorf("%s: got the test %s, want folder.TestName of a test that exists", page, match[1])
			}
		}
	}
	inTable := false
	for line := range strings.Lines(read(t, "SECURITY.md")) {
		cells := strings.Split(line, "|")
		switch {
		case len(cells) != 5:
			inTable = false
		case strings.TrimSpace(cells[3]) == "shown by":
			inTable = true
		case inTable && !strings.HasPrefix(line, "|---") && !named.MatchString(cells[3]):
			t.Errorf("SECURITY.md: no test shows %q", line)
		}
	}
}

// TestConventionsDocuments checks what readers rely on: a README short enough to read at once, apart from tables for
// reference, a changelog with the newest entries on top, and commands that exist.
func TestConventionsDocuments(t *testing.T) {
	const readmeLinesMax = 200
	written := docs.WithoutGenerated(read(t, "README.md"))
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

// TestConventionsWords finds unfinished parts, and paths that exist on one machine only. It leaves out recordings
// and checksums, which other programs wrote.
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
