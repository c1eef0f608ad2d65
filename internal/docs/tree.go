package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of the main module.
const Module = "github.com/fastadmit/fastadmit"

// Files returns the names of all files of the repository, those of nested modules too, without what git and builds keep
// there.
func Files() (names []string, err error) {
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == ".cache"):
			return fs.SkipDir
		case entry.Name() == ".git": // a file in worktrees
		case entry.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// Documents returns the names of all Markdown files.
func Documents() ([]string, error) {
	names, err := Files()
	return slices.DeleteFunc(names, func(name string) bool { return path.Ext(name) != ".md" }), err
}

// Read returns the text of a file.
func Read(name string) (string, error) {
	text, err := os.ReadFile(name)
	return string(text), err
}

// A Source is a Go file.
type Source struct {
	*ast.File
	Path   string // relative to the root
	Dir    string // "." for the root
	IsTest bool
	Nested bool // in a module of its own
	Set    *token.FileSet
}

// Sources parses all Go files of the repository.
func Sources() ([]Source, error) {
	names, err := Files()
	if err != nil {
		return nil, err
	}
	var modules []string
	for _, name := range names {
		if dir, ok := strings.CutSuffix(name, "/go.mod"); ok {
			modules = append(modules, dir+"/")
		}
	}
	var sources []Source
	for _, name := range names {
		if path.Ext(name) != ".go" {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		sources = append(sources, Source{
			File: file, Path: name, Dir: path.Dir(name), Set: set,
			IsTest: strings.HasSuffix(name, "_test.go"),
			Nested: slices.ContainsFunc(modules, func(dir string) bool { return strings.HasPrefix(name, dir) }),
		})
	}
	return sources, nil
}

// At returns the position of a node, as the go command shows it.
func (s *Source) At(node ast.Node) token.Position { return s.Set.Position(node.Pos()) }

// ImportPaths returns the paths that the file imports.
func (s *Source) ImportPaths() (paths []string) {
	for _, spec := range s.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// ListPackages runs "go list -deps" for packages as they are built for Linux on amd64, so the result does not depend on
// the machine.
func ListPackages(format string, packages ...string) ([]string, error) {
	return goList(append([]string{"-deps", "-f", format}, packages...)...)
}

func goList(args ...string) ([]string, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stderr.Bytes())
	}
	return strings.Fields(string(out)), nil
}
