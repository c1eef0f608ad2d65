package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A group is a part of the navigation.
type group struct {
	Title     string     `json:"title"`
	Collapsed bool       `json:"collapsed"` // unless it has the page
	Documents []document `json:"documents"`
}

// A document is a Markdown file of the repository, and its page.
type document struct {
	Source string `json:"source"` // its path in the repository
	Title  string `json:"title"`  // its first heading
	URL    string `json:"url"`    // of the page, relative to the root
}

var title = regexp.MustCompile(`(?m)^# (.+)$`)

// navigation reads pages.yaml and the titles of the documents.
func navigation(repository string) ([]group, error) {
	text, err := os.ReadFile("pages.yaml")
	if err != nil {
		return nil, err
	}
	var listed []struct {
		Title     string
		Collapsed bool
		Documents []string // names or patterns
	}
	if err := yaml.Unmarshal(text, &listed); err != nil {
		return nil, fmt.Errorf("pages.yaml: %w", err)
	}
	var groups []group
	var known []string
	for _, l := range listed {
		g := group{Title: l.Title, Collapsed: l.Collapsed}
		var sources []string
		for _, pattern := range l.Documents {
			found, err := glob(repository, pattern)
			if err != nil {
				return nil, fmt.Errorf("pages.yaml: %w", err)
			}
			if len(found) == 0 {
				return nil, fmt.Errorf("pages.yaml: there is no %s", pattern)
			}
			sources = append(sources, found...)
		}
		for _, source := range sources {
			text, err := os.ReadFile(filepath.Join(repository, source))
			if err != nil {
				return nil, fmt.Errorf("pages.yaml: %w", err)
			}
			heading := title.FindSubmatch(text)
			if heading == nil {
				return nil, fmt.Errorf("%s: got no heading, want a line that begins with \"# \"", source)
			}
			plain := strings.ReplaceAll(string(heading[1]), "`", "") // the navigation is no Markdown
			g.Documents = append(g.Documents, document{Source: source, Title: plain, URL: pageOf(source)})
			known = append(known, source)
		}
		groups = append(groups, g)
	}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		documents, err := glob(repository, pattern)
		if err != nil {
			return nil, err
		}
		for _, source := range documents {
			if !slices.Contains(known, source) {
				return nil, fmt.Errorf("pages.yaml: %s is missing", source)
			}
		}
	}
	return groups, nil
}

// glob returns the names of files, relative to the repository.
func glob(repository, pattern string) (names []string, err error) {
	found, err := filepath.Glob(filepath.Join(repository, pattern))
	for _, name := range found {
		relative, err := filepath.Rel(repository, name)
		if err != nil {
			return nil, err
		}
		names = append(names, filepath.ToSlash(relative))
	}
	return names, err
}

// pageOf returns the URL of a document's page: handlers/x/README.md is at handlers/x.html.
func pageOf(source string) string {
	name := strings.ToLower(strings.TrimSuffix(source, ".md"))
	switch dir, base := path.Split(name); {
	case name == "readme":
		return "index.html"
	case base == "readme":
		return strings.TrimSuffix(dir, "/") + ".html"
	}
	return name + ".html"
}

// writeSources writes hugo's input into a folder: content, data, and the configuration that names
// them.
func writeSources(repository, dir string, groups []group) error {
	urls := make(map[string]string)
	var errs []error
	for _, g := range groups {
		for _, d := range g.Documents {
			urls[d.Source] = d.URL
			errs = append(errs, writeContent(repository, dir, d))
		}
	}
	images, err := glob(repository, "docs/*.svg")
	pictures, wrong := glob(repository, "docs/*.png")
	images = append(images, pictures...)
	errs = append(errs, err, wrong)
	for _, image := range images {
		text, err := os.ReadFile(filepath.Join(repository, image))
		errs = append(errs, err, write(filepath.Join(dir, "static", image), text))
	}
	errs = append(errs, writeJSON(filepath.Join(dir, "data", "navigation.json"), groups),
		writeJSON(filepath.Join(dir, "data", "documents.json"), urls))
	mounts := fmt.Sprintf("module:\n  mounts:\n  - {source: layouts, target: layouts}\n  - {source: static, target: static}\n"+
		"  - {source: %[1]q, target: content}\n  - {source: %[2]q, target: data}\n  - {source: %[3]q, target: static}\n",
		filepath.Join(dir, "content"), filepath.Join(dir, "data"), filepath.Join(dir, "static"))
	return errors.Join(append(errs, write(filepath.Join(dir, "mounts.yaml"), []byte(mounts)))...)
}

// writeContent writes the content of a page: the document with front matter.
func writeContent(repository, dir string, d document) error {
	text, err := os.ReadFile(filepath.Join(repository, d.Source))
	if err != nil {
		return err
	}
	matter, err := json.Marshal(map[string]any{
		"title": d.Title, "url": "/" + d.URL, "source": d.Source, "root": strings.Repeat("../", strings.Count(d.URL, "/")),
	})
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(d.URL, ".html") + ".md"
	if d.URL == "index.html" {
		name = "_index.md"
	}
	return write(filepath.Join(dir, "content", name), slices.Concat(matter, []byte("\n\n"), text))
}

func writeJSON(name string, content any) error {
	text, err := json.Marshal(content)
	return errors.Join(err, write(name, text))
}

func write(name string, text []byte) error {
	return errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, text, 0o644))
}
