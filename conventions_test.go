// Package fastadmit_test checks the conventions of the repository that no linter checks. "make docs" rewrites what is
// generated.
package fastadmit_test

import (
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/docs"
)

func files(t *testing.T) []string {
	t.Helper()
	return must(t, docs.Files)
}

func documents(t *testing.T) []string {
	t.Helper()
	return must(t, docs.Documents)
}

func sources(t *testing.T) []docs.Source {
	t.Helper()
	return must(t, docs.Sources)
}

func read(t *testing.T, name string) string {
	t.Helper()
	return must(t, func() (string, error) { return docs.Read(name) })
}

func must[T any](t *testing.T, f func() (T, error)) T {
	t.Helper()
	got, err := f()
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestConventionsModules checks that make knows every module of the repository.
func TestConventionsModules(t *testing.T) {
	makefile := read(t, "Makefile")
	_, together, _ := strings.Cut(makefile, "linted := . ")
	together, _, _ = strings.Cut(strings.Replace(together, "\\\n", "", 1), "\n")
	_, list, _ := strings.Cut(makefile, "for module in tools ")
	list, _, _ = strings.Cut(list, "; do lint ")
	checked := append(strings.Fields(strings.ReplaceAll(together, "./", "")+" "+list), "tools")
	for _, name := range files(t) {
		dir, ok := strings.CutSuffix(name, "/go.mod")
		if !ok || dir == "tools/deploy" ||
			dir == "e2e/etcd" || dir == "e2e/behind/gatekeeper" || strings.HasPrefix(dir, "e2e/node/") ||
			strings.HasPrefix(dir, "e2e/apiservers/") || // only versions and tools
			// e2e-full lints these.
			dir == "e2e/collector" || strings.HasPrefix(dir, "e2e/removed") || strings.HasPrefix(dir, "e2e/released") {
			continue
		}
		// In make check, or by the target that uses the module.
		if !slices.Contains(checked, dir) && !strings.Contains(makefile, "cd "+dir+" && \"$$linter\" run") {
			t.Errorf("the Makefile does not lint module %s", dir)
		}
	}
}

// TestConventionsVersions checks that modules require what they share in the same version. A package of two
// versions, and all that import it, would be compiled twice, which for Kubernetes' libraries takes minutes.
func TestConventionsVersions(t *testing.T) {
	requirement := regexp.MustCompile(`(?m)^\s*(?:require )?([a-z][^\s/]*\.[^\s]+) (v[0-9][^\s]*)(?: // indirect)?$`)
	of := func(file string) map[string]string {
		versions := make(map[string]string)
		for _, found := range requirement.FindAllStringSubmatch(read(t, file), -1) {
			versions[found[1]] = found[2]
		}
		return versions
	}
	shared := of("go.mod")
	for _, name := range files(t) {
		// Other modules compile nothing of Kubernetes, or another release.
		if !strings.HasSuffix(name, "/go.mod") || strings.Count(name, "/") > 1 && strings.HasPrefix(name, "e2e/") {
			continue
		}
		versions := of(name)
		if versions["k8s.io/client-go"] == "" {
			continue
		}
		for module, version := range shared {
			if module == "github.com/google/cel-go" { // it moves with Kubernetes alone
				continue
			}
			if got := versions[module]; got != "" && got != version {
				t.Errorf("%s: got %s %s, go.mod has %s: run go get with the newer one in both folders, then go mod tidy",
					name, module, got, version)
			}
		}
	}
}

func TestConventionsUnsafe(t *testing.T) {
	only := []string{"codec/unsafe.go", "internal/server/conn_header.go", "internal/socket/socket_raw.go"}
	for _, s := range sources(t) {
		if !slices.Contains(only, s.Path) && slices.Contains(s.ImportPaths(), "unsafe") {
			t.Errorf("%s imports unsafe; only %q may", s.Path, only)
		}
	}
}

// TestConventionsExample checks the length that admission/README.md gives for the plugin
// that it shows, without comments and empty lines.
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
	"internal/fieldpath",
	"internal/alike", "internal/allocs", "internal/discovery", "internal/files", "internal/memory", "internal/protobuf",
	"internal/quantity",
	"internal/schedulingv1alpha2", "internal/seed", "internal/socket", "internal/strictyaml", "internal/testbrowser", "internal/testserver",
	"internal/wake",
	"internal/workload",
	"corpus", // recordings and no code
	"diff",
	"internal/httpbound",
	"internal/printable",
	"internal/recording",
	"cluster",
	"internal/turns",
	"admission",
	"internal/explain",
	"internal/compare",
	"admission/podspec",
	"admission/match",
	"internal/tracing/...",
	"admission/admissiontest",
	"admission/example/*",
	"internal/registration/...",
	"internal/customresource/...",
	"internal/policy/...",
	"handlers/internal/...",
	"handlers/*",
	"handlers",
	"internal/imagereview",
	"internal/shadow",
	"internal/server/...",
	"internal/config", // knows the defaults of the server's settings
	"internal/offline/...",
	"bench/...", // the load generator
	"cmd/fastadmit/app",
	"internal/docs", // which runs commands
	"main",          // every program
}

// layer returns the index of a package in layers, -1 if it is not there.
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
		if s.IsTest || s.Nested {
			continue
		}
		own := layer(s.Dir, s.Name.Name)
		if own < 0 {
			t.Errorf("%s has no place in the order of imports: give it one in layers", s.Dir)
			continue
		}
		for _, imported := range s.ImportPaths() {
			dir, ok := strings.CutPrefix(imported, docs.Module+"/")
			if !ok {
				continue
			}
			other := layer(dir, "")
			siblings := other == own && strings.HasSuffix(layers[own], "/...")
			if other >= own && !siblings || other < 0 {
				t.Errorf("%s imports %s, which stands above it", s.Path, dir)
			}
		}
	}
}

var httpPackage = regexp.MustCompile(`^(net/http|github\.com/valyala/fasthttp|golang\.org/x/net/http2?)(/|$)`)

// TestConventionsFasthttp requires that only two packages import fasthttp: the one that answers
// requests, and the load generator.
func TestConventionsFasthttp(t *testing.T) {
	for _, s := range sources(t) {
		may := s.IsTest || s.Nested || s.Dir == "internal/server" || s.Dir == "bench" || strings.HasPrefix(s.Dir, "bench/")
		if !may && slices.Contains(s.ImportPaths(), "github.com/valyala/fasthttp") {
			t.Errorf("%s imports fasthttp; only internal/server and bench may", s.Path)
		}
	}
}

// TestConventionsImportsBanned checks all packages that codec and diff depend on, and
// the direct imports of plugins. Plugins find the constants of package net/http in
// package admission.
func TestConventionsImportsBanned(t *testing.T) {
	for _, imported := range must(t, func() ([]string, error) { return docs.ListPackages("{{.ImportPath}}", "./codec", "./diff") }) {
		if strings.HasPrefix(imported, "k8s.io/") || httpPackage.MatchString(imported) {
			t.Errorf("codec or diff comes with %s", imported)
		}
	}
	for _, s := range sources(t) {
		place := layers[max(layer(s.Dir, s.Name.Name), 0)]
		if s.IsTest || s.Nested || place != "handlers/*" && place != "admission/example/*" {
			continue
		}
		for _, imported := range s.ImportPaths() {
			if httpPackage.MatchString(imported) {
				t.Errorf("%s imports %s; a plugin does not know of HTTP", s.Path, imported)
			}
		}
	}
}

// metricLabels are all allowed labels. Senders of requests must not be able to choose
// their values: there are no names or users, and namespaces only in the file of
// fastadmit audit, which bounds them. Operators choose the names of policies and
// bindings, and their number is bounded.
var metricLabels = []string{
	"code", "decision", "enforcement_action", "error_type", "exception", "from", "goversion",
	"namespace", "operation", "phase", "plugin", "policy", "policy_binding", "port",
	"reason", "resource", "result", "to", "verb", "version", "webhook",
}

var metricWord = regexp.MustCompile(`\bfastadmit(_[a-z]+)+`)

// TestConventionsMetrics checks the names and labels of metrics, that each has a help text, and that code and documents
// name no others.
func TestConventionsMetrics(t *testing.T) {
	all := sources(t)
	texts := must(t, func() (map[string]string, error) { return docs.MetricTexts(all) })
	made := make(map[string]bool)
	for _, series := range docs.AllSeries(all) {
		made[series.Name] = true
		if want := docs.MetricMethods[series.Method]; !want.MatchString(series.Name) {
			t.Errorf("%s: %s(%q): want a name like %s", series.At, series.Method, series.Name, want)
		}
		for _, label := range series.Labels {
			if !slices.Contains(metricLabels, label) {
				t.Errorf("%s: %s: got label %q, want one of %q", series.At, series.Name, label, metricLabels)
			}
		}
		if texts[series.Name] == "" {
			t.Errorf("%s: metrics_help.go has no text for %s", series.At, series.Name)
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
				t.Errorf("%s: nothing creates a metric %s", name, word)
			}
		}
	}
}

// caseless are the files that may decode with encoding/json, which ignores the case of names,
// each with its reason. Others use sigs.k8s.io/json, as kube-apiserver does.
var caseless = map[string]string{
	"handlers/podtolerationrestriction/toleration.go": "in-tree decodes the annotations of namespaces so",
	"diff/typed.go":                       "decodes into maps",
	"internal/offline/audit/client.go":    "reads the names of members as tokens; listMeta is of the API server",
	"internal/offline/manifest/parse.go":  "reads tokens",
	"internal/offline/report/escape.go":   "reads tokens",
	"internal/policy/cel/kyverno_data.go": "decodes into maps, as Kyverno does",
	"internal/policy/cel/kyverno_x509.go": "decodes into maps",
}

// TestConventionsCase checks that objects are not decoded with decoders that ignore the case of names.
func TestConventionsCase(t *testing.T) {
	for _, s := range sources(t) {
		isKit := s.Dir == "admission/admissiontest" || s.Dir == "internal/server/servertest"
		if s.IsTest || s.Nested || isKit || strings.HasPrefix(s.Dir, "bench") || caseless[s.Path] != "" {
			continue
		}
		name := ""
		for i, path := range s.ImportPaths() {
			if path == "encoding/json" {
				if name = "json"; s.Imports[i].Name != nil {
					name = s.Imports[i].Name.Name
				}
			}
		}
		ast.Inspect(s.File, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok || name == "" {
				return true
			}
			from, _ := selector.X.(*ast.Ident)
			if from != nil && from.Name == name && (selector.Sel.Name == "Unmarshal" || selector.Sel.Name == "NewDecoder") {
				t.Errorf("%s: %s of encoding/json ignores the case of names, want sigs.k8s.io/json", s.At(node), selector.Sel.Name)
			}
			return true
		})
	}
}
