package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A pkg is a package whose code is mutated.
type pkg struct {
	path, dir string
	files     []*file
	info      *types.Info
}

// loaded are packages, and the importer with which their mutated copies are checked.
type loaded struct {
	packages []*pkg
	set      *token.FileSet
	imports  types.Importer
}

// A file is a source file of a package.
type file struct {
	name string // absolute
	src  []byte
	*ast.File
}

// listed is the output of "go list -json" for a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly, Standard       bool
}

// load parses and checks the packages that the patterns name, in the module of
// the working directory.
func load(patterns []string) (*loaded, error) {
	needed, err := needs(mutantsSource)
	if err != nil {
		return nil, err
	}
	list := exec.Command("go", slices.Concat([]string{"list", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Standard", "-export", "-deps"}, patterns, needed)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the packages: %w", err)
	}
	exports := make(map[string]string)
	var wanted []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("cannot read what go list says: %w", err)
		}
		exports[l.ImportPath] = l.Export
		if !l.DepOnly && !l.Standard && len(l.GoFiles) > 0 {
			wanted = append(wanted, l)
		}
	}
	all := &loaded{set: token.NewFileSet()}
	all.imports = importer.ForCompiler(all.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, l := range wanted {
		p, err := check(all.set, all.imports, &l)
		if err != nil {
			return nil, err
		}
		all.packages = append(all.packages, p)
	}
	return all, nil
}

// needs returns what a file imports.
func needs(src []byte) (paths []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", src, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// broken is a position at which a mutated file does not compile. The original file has
// the same lines.
type broken struct {
	token.Position
	reason string
}

// errors type-checks the mutated copy of a package, and returns the errors in its files.
// The keys of files are the names of the original files.
func (l *loaded) errors(path string, mutants *types.Package, files map[string][]byte) (found []broken) {
	set := token.NewFileSet()
	seen := make(map[string]bool) // one error a line is enough
	note := func(pos token.Position, reason string) {
		if at := fmt.Sprintf("%s:%d", pos.Filename, pos.Line); !seen[at] {
			seen[at] = true
			found = append(found, broken{pos, reason})
		}
	}
	var parsed []*ast.File
	for name, src := range files {
		f, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
		if list, ok := errors.AsType[scanner.ErrorList](err); ok {
			note(list[0].Pos, list[0].Msg)
		}
		parsed = append(parsed, f)
	}
	if len(found) > 0 {
		return found
	}
	config := types.Config{Importer: &withMutants{l.imports, mutants}, Error: func(err error) {
		if err, ok := errors.AsType[types.Error](err); ok {
			note(set.Position(err.Pos), err.Msg)
		}
	}}
	_, _ = config.Check(path, set, parsed, nil) // the first error was recorded
	return found
}

// checkMutants checks the package that runs the mutants.
func (l *loaded) checkMutants(path string) (*types.Package, error) {
	f, err := parser.ParseFile(l.set, "mutants.go", mutantsSource, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return (&types.Config{Importer: l.imports}).Check(path, l.set, []*ast.File{f}, nil)
}

// withMutants imports the package of the mutants, too, which is in no module.
type withMutants struct {
	types.Importer
	mutants *types.Package
}

func (w *withMutants) Import(path string) (*types.Package, error) {
	if path == w.mutants.Path() {
		return w.mutants, nil
	}
	return w.Importer.Import(path)
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
