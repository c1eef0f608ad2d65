package fastadmit_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/docs"
)

// randomPackages are packages whose functions draw from a source with another seed in
// each process. Listed are the functions that do not, because they take a source or a
// seed.
var randomPackages = map[string][]string{
	"math/rand":            {"New", "NewSource", "NewZipf", "Rand", "Source", "Source64", "Zipf"},
	"math/rand/v2":         {"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"},
	"sigs.k8s.io/randfill": {"NewWithSeed", "Filler", "Continue"},
	"testing/quick":        {},
	"hash/maphash":         {},
}

// clockNumbers are the methods of time.Time from which tests could take a seed.
var clockNumbers = []string{"UnixNano", "UnixMicro", "UnixMilli", "Nanosecond"}

// TestConventionsSeeds requires that generated cases come from package internal/seed,
// or from a number in the test: a test that draws other cases in each run passes or
// fails by chance.
func TestConventionsSeeds(t *testing.T) {
	for _, s := range sources(t) {
		// Packages such as e2e/cluster are part of tests.
		if !s.IsTest && !strings.HasPrefix(s.Dir, "e2e/") {
			continue
		}
		names := randomNames(&s)
		ast.Inspect(s.File, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from, _ := selector.X.(*ast.Ident)
			switch {
			case slices.Contains(clockNumbers, selector.Sel.Name) && (from == nil || from.Name != "time"):
				t.Errorf("%s: got a number from the clock, want one from internal/seed, or rand.Text of crypto/rand for a name", s.At(node))
			case from == nil || names[from.Name] == "":
			case !slices.Contains(randomPackages[names[from.Name]], selector.Sel.Name):
				t.Errorf("%s: %s.%s has another seed in each run, want internal/seed", s.At(node), names[from.Name], selector.Sel.Name)
			}
			return true
		})
	}
}

// randomNames returns the names under which a file imports packages of random numbers.
func randomNames(s *docs.Source) map[string]string {
	names := make(map[string]string)
	for i, path := range s.ImportPaths() {
		if randomPackages[path] == nil {
			continue
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if name == "v2" {
			name = "rand"
		}
		if spec := s.Imports[i]; spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = path
	}
	return names
}

// countingAllocations are the files that may call testing.AllocsPerRun, and why.
var countingAllocations = map[string]string{
	"internal/allocs/allocs.go":              "it calls it for all others",
	"cmd/fastadmit/app/interpreter_test.go":  "compares two counts, of which none is zero",
	"tools/mutation/mutants/mutants_test.go": "nothing else runs in this package",
}

// TestConventionsAllocations requires that tests count allocations with package
// internal/allocs: testing.AllocsPerRun alone also counts those of other goroutines, so
// that a test that allows none passes or fails by chance.
func TestConventionsAllocations(t *testing.T) {
	for _, s := range sources(t) {
		if countingAllocations[s.Path] != "" {
			continue
		}
		ast.Inspect(s.File, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok && selector.Sel.Name == "AllocsPerRun" {
				t.Errorf("%s: got testing.AllocsPerRun, want allocs.PerRun", s.At(node))
			}
			return true
		})
	}
}

// TestConventionsShuffle requires that tests run in the same order in each run, but those of
// "make fuzz".
func TestConventionsShuffle(t *testing.T) {
	for _, name := range []string{"Makefile", "e2e/run", ".ci/run"} {
		target := ""
		for line := range strings.Lines(read(t, name)) {
			if head, _, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "\t") {
				target = head
			}
			if strings.Contains(line, "-shuffle") && target != "fuzz" {
				t.Errorf("%s: %s: only fuzz may shuffle tests", name, strings.TrimSpace(line))
			}
		}
	}
}
