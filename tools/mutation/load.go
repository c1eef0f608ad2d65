package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A pkg is a package whose code is mutated.
type pkg struct {
	path, dir string
	files     []*file
	info      *types.Info
}

// A file is one of its source files.
type file struct {
	name string // absolute
	src  []byte
	*ast.File
}

// listed is what "go list -json" says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
	Module                  *struct{ Path, Dir string }
}

// load parses and checks the packages that the patterns name, in the module of
// the working directory.
func load(patterns []string) ([]*pkg, *token.FileSet, error) {
	list := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module", "-export", "-deps"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list the packages: %w", err)
	}
	exports := make(map[string]string)
	var wanted []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("cannot read what go list says: %w", err)
		}
		exports[l.ImportPath] = l.Export
		if !l.DepOnly && len(l.GoFiles) > 0 {
			wanted = append(wanted, l)
		}
	}
	set := token.NewFileSet()
	imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []*pkg
	for _, l := range wanted {
		p, err := check(set, imports, &l)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, p)
	}
	return all, set, nil
}

func check(set *token.FileSet, imports types.Importer, l *listed) (*pkg, error) {
	p := &pkg{path: l.ImportPath, dir: l.Dir, info: &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object),
	}}
	var parsed []*ast.File
	for _, name := range l.GoFiles {
		name = filepath.Join(l.Dir, name)
		src, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
		p.files = append(p.files, &file{name: name, src: src, File: f})
	}
	if _, err := (&types.Config{Importer: imports}).Check(l.ImportPath, set, parsed, p.info); err != nil {
		return nil, fmt.Errorf("cannot check %s: %w", l.ImportPath, err)
	}
	return p, nil
}

// isGenerated reports whether a program wrote the file.
func (f *file) isGenerated() bool { return ast.IsGenerated(f.File) }

// short is a file's name below the working directory.
func short(name string) string {
	if dir, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(dir, name); err == nil && !strings.HasPrefix(rel, "..") {
			return rel
		}
	}
	return name
}
