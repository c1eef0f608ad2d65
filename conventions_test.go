// Package fastadmit_test holds the repository to its own conventions, with
// nothing but the standard library, the go command and fastadmit itself.
// "go test -run Conventions . -update" rewrites what is generated.
package fastadmit_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/fastadmit/fastadmit"

	// A function fits on a screen, a file in a head.
	functionLinesMax = 70
	fileLinesMax     = 500
)

// TestMain leaves all of it out of the short runs, with the race detector and with
// poison: they change nothing about it.
func TestMain(m *testing.M) {
	if flag.Parse(); !testing.Short() {
		m.Run()
	}
}

var update = flag.Bool("update", false, "rewrite what is generated: blocks in documents and testdata/linked_modules.txt")

// files returns the names of all files in the repository, those of nested
// modules too, but not of what git and builds keep there.
func files(t *testing.T) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
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
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// read returns what is in a file.
func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// A source is a Go file.
type source struct {
	*ast.File
	name   string
	dir    string // "." for the root
	isTest bool
	nested bool // in a module of its own
	set    *token.FileSet
}

// sources parses all Go files.
func sources(t *testing.T) []source {
	t.Helper()
	all := files(t)
	isNested := func(name string) bool {
		return slices.ContainsFunc(all, func(other string) bool {
			dir, ok := strings.CutSuffix(other, "/go.mod")
			return ok && strings.HasPrefix(name, dir+"/")
		})
	}
	var parsed []source
	for _, name := range all {
		if !strings.HasSuffix(name, ".go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, source{
			File: file, name: name, dir: path.Dir(name), set: set,
			isTest: strings.HasSuffix(name, "_test.go"), nested: isNested(name),
		})
	}
	return parsed
}

// at is where a node is, as the go command shows it.
func (s *source) at(node ast.Node) token.Position { return s.set.Position(node.Pos()) }

// imports returns the paths that the file imports.
func (s *source) imports() []string {
	var paths []string
	for _, spec := range s.Imports {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

// TestConventionsModules checks that make knows every module of the repository.
func TestConventionsModules(t *testing.T) {
	makefile := read(t, "Makefile")
	_, list, _ := strings.Cut(makefile, "for module in deploy ")
	list, _, _ = strings.Cut(list, "; do lint ")
	checked := append(strings.Fields(list), "deploy")
	for _, name := range files(t) {
		dir, ok := strings.CutSuffix(name, "/go.mod")
		if !ok || strings.HasPrefix(dir, "tools") || dir == "e2e/etcd" || dir == "e2e/behind/gatekeeper" || strings.HasPrefix(dir, "e2e/node/") || // which have nothing but versions, or one tool
			strings.HasPrefix(dir, "e2e/removed") { // which e2e-full lints as e2e/removed and e2e/removed/v*
			continue
		}
		// In make check, or by the target that uses the module.
		if !slices.Contains(checked, dir) && !strings.Contains(makefile, "cd "+dir+" && \"$$linter\" run") {
			t.Errorf("the Makefile does not lint module %s", dir)
		}
	}
}

func TestConventionsPackageComments(t *testing.T) {
	comments := make(map[string]string) // by folder
	var packages []source               // a file of each
	for _, s := range sources(t) {
		if s.isTest {
			continue
		}
		if _, known := comments[s.dir]; !known {
			packages = append(packages, s)
		}
		comments[s.dir] += s.Doc.Text()
	}
	for _, s := range packages {
		want := "Package " + s.Name.Name + " "
		if s.Name.Name == "main" {
			want = "" // whatever it says
		}
		if comment := comments[s.dir]; comment == "" || !strings.HasPrefix(comment, want) {
			t.Errorf("%s: got package comment %q, want one that begins with %q", s.dir, comment, want)
		}
	}
}

// TestConventionsDocComments leaves out the methods whose interface says what
// they do.
func TestConventionsDocComments(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest || s.nested || s.Name.Name == "main" {
			continue
		}
		for _, decl := range s.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				wellKnown := d.Recv != nil && slices.Contains([]string{"String", "Error", "Unwrap"}, d.Name.Name)
				if d.Name.IsExported() && receiverIsExported(d) && d.Doc == nil && !wellKnown {
					t.Errorf("%s: %s has no doc comment", s.at(d), d.Name)
				}
			case *ast.GenDecl:
				for _, name := range undocumented(d) {
					t.Errorf("%s: %s has no doc comment", s.at(name), name)
				}
			}
		}
	}
}

func receiverIsExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	kind := d.Recv.List[0].Type
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	name, ok := kind.(*ast.Ident)
	return !ok || name.IsExported()
}

// undocumented returns the exported names of a declaration that no comment
// speaks of: neither that of the group nor their own.
func undocumented(d *ast.GenDecl) (names []*ast.Ident) {
	if d.Doc != nil {
		return nil
	}
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Doc == nil && s.Name.IsExported() {
				names = append(names, s.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if s.Doc == nil && s.Comment == nil && name.IsExported() {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

func TestConventionsUnsafe(t *testing.T) {
	only := []string{"codec/unsafe.go", "internal/socket/socket_raw.go"}
	for _, s := range sources(t) {
		if !slices.Contains(only, s.name) && slices.Contains(s.imports(), "unsafe") {
			t.Errorf("%s imports unsafe; only %q may", s.name, only)
		}
	}
}

func TestConventionsNoInit(t *testing.T) {
	for _, s := range sources(t) {
		for _, decl := range s.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
				t.Errorf("%s: func init runs unasked", s.at(d))
			}
		}
	}
}

func TestConventionsLengths(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest {
			continue
		}
		if lines := s.set.Position(s.FileEnd).Line; lines > fileLinesMax {
			t.Errorf("%s: got %d lines, want at most %d", s.name, lines, fileLinesMax)
		}
		for _, decl := range s.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if lines := s.set.Position(d.End()).Line - s.at(d.Name).Line + 1; lines > functionLinesMax {
				t.Errorf("%s: %s: got %d lines, want at most %d", s.at(d.Name), d.Name, lines, functionLinesMax)
			}
		}
	}
}

// TestConventionsExample has admission/README.md tell the truth about the length of
// the plugin that it shows, without comments and empty lines.
func TestConventionsExample(t *testing.T) {
	const linesMax = 59
	lines := 0
	for line := range strings.Lines(read(t, "admission/example/teamlabel/teamlabel.go")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			lines++
		}
	}
	if lines > linesMax {
		t.Errorf("admission/example/teamlabel: got %d lines of code, want at most %d", lines, linesMax)
	}
}

// layers are the folders in the order in which they may import each other: a folder
// imports only folders of the lines above its own. Those below the same "/..." may also
// import each other.
var layers = []string{
	"codec",
	"internal/alike", "internal/discovery", "internal/files", "internal/protobuf", "internal/quantity", "internal/seed", "internal/socket", "internal/strictyaml", "internal/wake",
	"corpus", // recordings and no code
	"diff",
	"cluster",
	"admission",
	"admission/podspec",
	"admission/match",
	"admission/admissiontest",
	"admission/example/*",
	"internal/registration/...",
	"internal/customresource/...",
	"internal/policy/...",
	"handlers/internal/...",
	"handlers/*",
	"handlers",
	"internal/imagereview",
	"internal/server/...",
	"internal/config", // knows the defaults of the server's settings
	"internal/offline/...",
	"bench/...", // the load generator
	"cmd/fastadmit/app",
	"main", // every program
}

// layer returns where a package stands in layers, -1 if nowhere.
func layer(dir, name string) int {
	if name == "main" {
		return len(layers) - 1
	}
	if exact := slices.Index(layers, dir); exact >= 0 {
		return exact
	}
	return slices.IndexFunc(layers, func(pattern string) bool {
		if root, deep := strings.CutSuffix(pattern, "/..."); deep {
			return dir == root || strings.HasPrefix(dir, root+"/")
		}
		matched, err := path.Match(pattern, dir)
		return matched && err == nil
	})
}

func TestConventionsImportsPointOneWay(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest || s.nested {
			continue
		}
		own := layer(s.dir, s.Name.Name)
		if own < 0 {
			t.Errorf("%s has no place in the order of imports: give it one in layers", s.dir)
			continue
		}
		for _, imported := range s.imports() {
			dir, ok := strings.CutPrefix(imported, module+"/")
			if !ok {
				continue
			}
			other := layer(dir, "")
			siblings := other == own && strings.HasSuffix(layers[own], "/...")
			if other >= own && !siblings || other < 0 {
				t.Errorf("%s imports %s, which stands above it", s.name, dir)
			}
		}
	}
}

var httpPackage = regexp.MustCompile(`^(net/http|github\.com/valyala/fasthttp|golang\.org/x/net/http2?)(/|$)`)

// TestConventionsFasthttp has one package that answers requests, and the load generator.
func TestConventionsFasthttp(t *testing.T) {
	for _, s := range sources(t) {
		may := s.isTest || s.nested || s.dir == "internal/server" || s.dir == "bench" || strings.HasPrefix(s.dir, "bench/")
		if !may && slices.Contains(s.imports(), "github.com/valyala/fasthttp") {
			t.Errorf("%s imports fasthttp; only internal/server and bench may", s.name)
		}
	}
}

// TestConventionsImportsBanned looks at all that codec and diff come with, and
// at what plugins import themselves: the constants of package net/http are in
// package admission for them.
func TestConventionsImportsBanned(t *testing.T) {
	for _, imported := range goList(t, "{{.ImportPath}}", "./codec", "./diff") {
		if strings.HasPrefix(imported, "k8s.io/") || httpPackage.MatchString(imported) {
			t.Errorf("codec or diff comes with %s", imported)
		}
	}
	for _, s := range sources(t) {
		place := layers[max(layer(s.dir, s.Name.Name), 0)]
		if s.isTest || s.nested || place != "handlers/*" && place != "admission/example/*" {
			continue
		}
		for _, imported := range s.imports() {
			if httpPackage.MatchString(imported) {
				t.Errorf("%s imports %s; a plugin does not know of HTTP", s.name, imported)
			}
		}
	}
}

// TestConventionsLinkedModules compares the modules that the binary is made of
// with the list in the repository: nobody gets a new one without seeing it.
func TestConventionsLinkedModules(t *testing.T) {
	const list = "testdata/linked_modules.txt"
	modules := goList(t, "{{with .Module}}{{.Path}}{{end}}", "./cmd/fastadmit")
	slices.Sort(modules)
	got := strings.Join(slices.Compact(modules), "\n") + "\n"
	if *update {
		if err := os.WriteFile(list, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, list); got != want {
		t.Errorf("bin/fastadmit is made of other modules than %s says\ngot\n%s\nwant\n%s", list, got, want)
	}
}

// goList lists packages with all that they import, as they are built for
// Linux, where the answer does not depend on who asks.
func goList(t *testing.T, format string, packages ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", format}, packages...)...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", cmd, err, stderr.Bytes())
	}
	return strings.Fields(string(out))
}

// metricNames are what metrics are called, by the methods that may make them
// (Prometheus, "Metric and label naming"). GetOrCreate is for the series of a
// configuration, whose plugins may have been there before. Not among them is
// NewHistogram, whose buckets are none to Prometheus.
var metricNames = map[string]*regexp.Regexp{
	"NewCounter":                regexp.MustCompile(`^fastadmit(_[a-z]+)+_total$`),
	"NewGauge":                  regexp.MustCompile(`^fastadmit(_[a-z]+)+$`),
	"NewPrometheusHistogram":    regexp.MustCompile(`^fastadmit(_[a-z]+)+_(seconds|bytes)$`),
	"NewPrometheusHistogramExt": regexp.MustCompile(`^fastadmit(_[a-z]+)+_(seconds|bytes)$`),

	"GetOrCreateCounter":                regexp.MustCompile(`^fastadmit(_[a-z]+)+_total$`),
	"GetOrCreatePrometheusHistogramExt": regexp.MustCompile(`^fastadmit(_[a-z]+)+_(seconds|bytes|cost)$`),
}

// metricLabels are all labels there are. None has values that whoever sends
// requests can choose: no names or users, and namespaces only in the file of
// fastadmit audit, which bounds them. Policies and their bindings are named by
// operators, and bounded.
var metricLabels = []string{"code", "decision", "enforcement_action", "error_type", "goversion", "namespace", "operation", "phase", "plugin", "policy", "policy_binding", "port", "reason", "resource", "result", "verb", "version", "webhook"}

var (
	metricSeries = regexp.MustCompile(`^(fastadmit_[^{]*)(\{.*)?$`)
	metricLabel  = regexp.MustCompile(`[{,]\s*(\w+)=`)
	metricWord   = regexp.MustCompile(`\bfastadmit(_[a-z]+)+`)
)

func TestConventionsMetrics(t *testing.T) {
	made := make(map[string]bool)
	for _, s := range sources(t) {
		if s.isTest {
			continue
		}
		ast.Inspect(s.File, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				if method, ok := call.Fun.(*ast.SelectorExpr); ok && metricNames[method.Sel.Name] != nil {
					checkMetric(t, &s, call, method.Sel.Name, made)
				}
			}
			return true
		})
	}
	help := read(t, "internal/server/metrics_help.go")
	for name := range made {
		if !strings.Contains(help, strconv.Quote(name)+":") {
			t.Errorf("internal/server/metrics_help.go says nothing of %s", name)
		}
	}
	for _, name := range files(t) {
		if ext := path.Ext(name); ext != ".go" && ext != ".md" || path.Dir(name) == "." && ext == ".go" {
			continue
		}
		for _, word := range metricWord.FindAllString(read(t, name), -1) {
			plain := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(word, "")
			begins := func(name string) bool { return strings.HasPrefix(name, word+"_") }
			if !made[word] && !made[plain] && !slices.ContainsFunc(slices.Collect(maps.Keys(made)), begins) {
				t.Errorf("%s speaks of %s, which none of %v makes", name, word, slices.Sorted(maps.Keys(metricNames)))
			}
		}
	}
}

// checkMetric checks the series that a call makes and adds its name to made.
func checkMetric(t *testing.T, s *source, call *ast.CallExpr, method string, made map[string]bool) {
	ast.Inspect(call, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		series := metricSeries.FindStringSubmatch(text)
		if err != nil || series == nil {
			return true
		}
		made[series[1]] = true
		if want := metricNames[method]; !want.MatchString(series[1]) {
			t.Errorf("%s: %s(%q): want a name like %s", s.at(literal), method, series[1], want)
		}
		for _, label := range metricLabel.FindAllStringSubmatch(series[2], -1) {
			if !slices.Contains(metricLabels, label[1]) {
				t.Errorf("%s: %s: got label %q, want one of %q", s.at(literal), series[1], label[1], metricLabels)
			}
		}
		return true
	})
}
