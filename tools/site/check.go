package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// A page is an HTML file of the site.
type page struct {
	url      string // relative to the root
	ids      []string
	links    []string // of all elements that have href or src
	sections []section
}

// A section is a result of the search.
type section struct {
	Page  string `json:"page"`
	Title string `json:"title"`
	URL   string `json:"url"`
	Text  string `json:"text"`
}

func readPages(out string) (pages []*page, err error) {
	err = filepath.WalkDir(out, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".html" {
			return err
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		root, err := html.Parse(file)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		relative, err := filepath.Rel(out, name)
		if err != nil {
			return err
		}
		p := &page{url: filepath.ToSlash(relative)}
		p.visit(root, false)
		pages = append(pages, p)
		return nil
	})
	if err == nil && len(pages) == 0 {
		err = fmt.Errorf("got no pages in %s", out)
	}
	return pages, err
}

// visit collects ids and links, and the sections of the main part.
func (p *page) visit(node *html.Node, isMain bool) {
	for _, a := range node.Attr {
		switch a.Key {
		case "id":
			p.ids = append(p.ids, a.Val)
		case "href", "src":
			p.links = append(p.links, a.Val)
		}
	}
	isMain = isMain || node.DataAtom == atom.Main
	switch {
	case !isMain:
	case node.DataAtom == atom.Footer:
		isMain = false
	case slices.Contains([]atom.Atom{atom.H1, atom.H2, atom.H3}, node.DataAtom):
		p.addSection(node)
		isMain = false // its text is the title
	case node.Type == html.TextNode && len(p.sections) > 0:
		last := &p.sections[len(p.sections)-1]
		last.Text = strings.TrimSpace(last.Text + " " + strings.Join(strings.Fields(node.Data), " "))
	}
	for child := range node.ChildNodes() {
		p.visit(child, isMain)
	}
}

func (p *page) addSection(heading *html.Node) {
	s := section{Title: strings.TrimSpace(strings.TrimSuffix(text(heading), "#")), URL: p.url}
	s.Page = s.Title
	if len(p.sections) > 0 {
		s.Page = p.sections[0].Page
		for _, a := range heading.Attr {
			if a.Key == "id" {
				s.URL += "#" + a.Val
			}
		}
	}
	p.sections = append(p.sections, s)
}

func text(node *html.Node) string {
	if node.Type == html.TextNode {
		return node.Data
	}
	var all strings.Builder
	for child := range node.ChildNodes() {
		all.WriteString(text(child))
	}
	return all.String()
}

// writeIndex writes the sections as a script, so that a page can also load it from a folder. They
// are ordered as in the navigation, which decides between equally good results.
func writeIndex(out string, groups []group, pages []*page) error {
	var sections []section
	for _, g := range groups {
		for _, d := range g.Documents {
			i := slices.IndexFunc(pages, func(p *page) bool { return p.url == d.URL })
			if i < 0 {
				return fmt.Errorf("%s has no page", d.Source)
			}
			sections = append(sections, pages[i].sections...)
		}
	}
	text, err := json.Marshal(sections)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "search-index.js"), slices.Concat([]byte("window.searchIndex = "), text, []byte(";\n")), 0o644)
}

// files is the target of links to code.
const files = "https://github.com/fastadmit/fastadmit/blob/main/"

// checkLinks reports all links to files and anchors of the site and the repository that do not
// exist. It does not check links to other servers.
func checkLinks(repository, out string, pages []*page) error {
	ids := make(map[string][]string)
	for _, p := range pages {
		ids[p.url] = p.ids
	}
	var errs []error
	for _, p := range pages {
		for _, link := range p.links {
			if err := checkLink(repository, out, p.url, link, ids); err != nil {
				errs = append(errs, fmt.Errorf("%s: link to %s: %w", p.url, link, err))
			}
		}
	}
	return errors.Join(errs...)
}

func checkLink(repository, out, from, link string, ids map[string][]string) error {
	if file, ok := strings.CutPrefix(link, files); ok {
		file, _, _ = strings.Cut(file, "#")
		_, err := os.Stat(filepath.Join(repository, file))
		return err
	}
	to, err := url.Parse(link)
	if err != nil || to.Scheme != "" {
		return err
	}
	target := from
	if to.Path != "" {
		target = path.Join(path.Dir(from), to.Path)
	}
	if strings.HasPrefix(target, "..") || strings.HasPrefix(to.Path, "/") {
		return errors.New("got a path outside of the site")
	}
	if _, err := os.Stat(filepath.Join(out, target)); err != nil {
		return err
	}
	if to.Fragment != "" && !slices.Contains(ids[target], to.Fragment) {
		return fmt.Errorf("got no element with the id %q", to.Fragment)
	}
	return nil
}
