// Command platforms checks that the packages of the folder compile for other platforms. Each
// argument is a platform such as windows/amd64. It checks types and generates no code, because
// compiling all dependencies and Go's own packages takes minutes for each platform.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	broken := false
	for _, platform := range os.Args[1:] {
		errs, err := check(platform)
		if err != nil {
			fmt.Fprintf(os.Stderr, "platforms: %s: %v\n", platform, err)
			os.Exit(1)
		}
		for _, err := range errs {
			broken = true
			fmt.Fprintf(os.Stderr, "platforms: %s: %v\n", platform, err)
		}
	}
	if broken {
		os.Exit(1)
	}
}

// check returns the errors of the packages on a platform.
func check(platform string) (errs []packages.Error, err error) {
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return nil, fmt.Errorf("got no slash, want GOOS/GOARCH")
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes,
		Env:  append(os.Environ(), "GOOS="+system, "GOARCH="+processor),
		ParseFile: func(fset *token.FileSet, name string, content []byte) (*ast.File, error) {
			file, err := parser.ParseFile(fset, name, content, parser.SkipObjectResolution)
			if file != nil && !strings.HasPrefix(name, dir) {
				dropBodies(file)
			}
			return file, err
		},
	}, "./...")
	if err != nil {
		return nil, err
	}
	for _, p := range loaded {
		errs = append(errs, p.Errors...)
	}
	return errs, nil
}

// dropBodies removes the bodies of a dependency's functions, which its importers do not need.
func dropBodies(file *ast.File) {
	for _, declared := range file.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok {
			function.Body = nil
		}
	}
}
