package cel

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// tables are tests of kube-apiserver whose tables have expressions.
var tables = []string{
	"admission/plugin/cel/*_test.go", "admission/plugin/policy/validating/*_test.go", "admission/plugin/webhook/matchconditions/*_test.go",
	"cel/library/*_test.go",
}

// sourcesOf returns the test files of k8s.io/apiserver in the module cache.
func sourcesOf(t *testing.T) (files []*ast.File) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/apiserver").Output()
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, pattern := range tables {
		names, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "pkg", pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("got no files of %s: %v", pattern, err)
		}
		for _, name := range names {
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	return files
}

// text returns the string value of a literal, or of a sum of literals.
func text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			return s, err == nil
		}
	case *ast.BinaryExpr:
		x, ok := text(e.X)
		y, ok2 := text(e.Y)
		return x + y, ok && ok2 && e.Op == token.ADD
	}
	return "", false
}

// fieldsOf returns the strings of some fields of a composite literal.
func fieldsOf(e ast.Node) map[string]ast.Expr {
	all := make(map[string]ast.Expr)
	if literal, ok := e.(*ast.CompositeLit); ok {
		for _, element := range literal.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok {
				if name, ok := pair.Key.(*ast.Ident); ok {
					all[name.Name] = pair.Value
				}
			}
		}
	}
	return all
}

// variablesOf returns the variables of a row of a table.
func variablesOf(row map[string]ast.Expr) (all []named) {
	ast.Inspect(row["variables"], func(n ast.Node) bool {
		fields := fieldsOf(n)
		name, ok := text(fields["name"])
		expression, ok2 := text(fields["expression"])
		if ok && ok2 {
			all = append(all, named{name: name, text: expression, returns: Any})
		}
		return true
	})
	return all
}

func review(operation string, object, oldObject string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1",
		"kind":{"group":"","version":"v1","kind":"Endpoints"},
		"resource":{"group":"","version":"v1","resource":"endpoints"},"requestKind":{"group":"","version":"v1","kind":"Endpoints"},
		"requestResource":{"group":"","version":"v1","resource":"endpoints"},"name":"endpoints1","namespace":"default","operation":%q,
		"userInfo":{"username":"alice","groups":["a","b"]},"object":%s,"oldObject":%s,"dryRun":false,
		"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`, operation, object, oldObject)
}

// tableReviews are reviews of the objects of these tables.
var tableReviews = [][]byte{
	review(
		"CREATE",
		`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"endpoints1"},"subsets":[{"addresses":[{"ip":"127.0.0.0"}]}]}`,
		"null",
	),
	review("DELETE", "null", `{"apiVersion":"v1","kind":"Endpoints","metadata":{},"subsets":[{"addresses":[{"ip":"127.0.0.0"}]}]}`),
	review("CREATE", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"foo"},"spec":{"nodeName":"testnode"},"foo":1}`, "null"),
	review("UPDATE", `{"apiVersion":"v1","kind":"X","metadata":{"name":"test","labels":{"env":"test","foo":"demo"}},`+
		`"spec":{"replicas":2,"testSize":10},"foo":2}`,
		`{"apiVersion":"v1","kind":"X","metadata":{"name":"test"},"spec":{"replicas":1},"foo":1}`),
}

// TestUpstreamTables evaluates on both sides all strings in the tables of upstream's
// tests that could be expressions: alone, and with the variables of their row.
func TestUpstreamTables(t *testing.T) {
	var reviews []*asked
	for _, body := range tableReviews {
		if !json.Valid(body) {
			t.Fatalf("%s is no JSON", body)
		}
		reviews = append(reviews, newAsked(t, body))
	}
	known := make(map[string]bool)
	var p expressionsOf
	composed := 0
	for _, file := range sourcesOf(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			row := fieldsOf(n)
			if row["variables"] != nil && row["expression"] != nil {
				expression, _ := text(row["expression"])
				q := expressionsOf{variables: variablesOf(row), conditions: []named{{text: expression, returns: Any}}}
				for _, budget := range [...]int64{celconfig.RuntimeCELCostBudget, 4, 6} {
					composed += q.compareWithUpstream(t, budget, reviews...)
				}
			}
			if e, ok := n.(ast.Expr); ok {
				if s, ok := text(e); ok && strings.ContainsAny(s, ".=<>[(") && !known[s] {
					known[s] = true
					p.conditions = append(p.conditions, named{text: s, returns: Any})
				}
			}
			return true
		})
	}
	values := p.compareWithUpstream(t, 1e12, reviews...)
	if t.Logf(
		"%d strings; %d of %d evaluations had a value, and %d with variables", len(p.conditions), values,
		len(p.conditions)*len(reviews), composed,
	); values < 1000 || composed < 10 {
		t.Errorf("got %d values, and %d with variables, want 1000 and 10 at least", values, composed)
	}
}
