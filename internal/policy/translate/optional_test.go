package translate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// laxly returns the translation of an expression of a policy that has variables.
func laxly(t *testing.T, expression string) (written, problems string) {
	t.Helper()
	fields, err := yaml.Marshal(map[string]any{
		"variables": []map[string]string{
			{"name": "optional", "expression": "object.?a"}, {"name": "plain", "expression": "object.a"},
			{"name": "again", "expression": "(variables.optional)"},
		},
		"validations": []map[string]string{{"expression": expression}},
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := noAuto + "  " + strings.ReplaceAll(strings.TrimSpace(string(fields)), "\n", "\n  ")
	result := translate.Translate(split(t, celPolicy("ValidatingPolicy", spec)), translate.Options{})
	for _, problem := range result.Problems {
		problems += problem.Error()
	}
	if len(result.Policies) == 1 {
		written = result.Policies[0].Validating.Spec.Validations[0].Expression
	}
	return written, problems
}

// lax returns what is written for E.orValue(D).
func lax(e, d string) string {
	return "[" + e + "].map(orValue_, (type(orValue_) == optional_type ? dyn(orValue_) : dyn(optional.of(orValue_))).orValue(" + d + "))[0]"
}

// TestOrValueWritten tests which calls of orValue are written out: those of what may be no optional.
func TestOrValueWritten(t *testing.T) {
	f := func(expression, want string) {
		t.Helper()
		if got, problems := laxly(t, expression); got != want || problems != "" {
			t.Errorf("%s: got %s %s\nwant %s", expression, got, problems, want)
		}
	}
	f("a.b.orValue([]) == c", lax("a.b", "[]")+" == c")
	f("!a.b . orValue ( [] ).c", "!"+lax("a.b", " [] ")+".c")
	f("x in a.orValue([])", "x in "+lax("a", "[]"))
	f("c ? f(x, y.orValue(1)) : a[0].b.orValue('')", "c ? f(x, "+lax("y", "1")+") : "+lax("a[0].b", "''"))
	f("a.all(x, x.b.orValue(')') == '.orValue(1)')", "a.all(x, "+lax("x.b", "')'")+" == '.orValue(1)')")
	f("a.orValue({}).b.orValue(c.orValue(1))", lax(lax("a", "{}")+".b", lax("c", "1")))
	f("'a.b.'.orValue('') + r'\\'.orValue('')", lax("'a.b.'", "''")+" + "+lax("r'\\'", "''"))
	f("{'a': 1}.orValue(1) + [1].orValue(2)", lax("{'a': 1}", "1")+" + "+lax("[1]", "2"))
	f("a.?b.size().orValue(1)", lax("a.?b.size()", "1"))
	f("(a ? b : c).orValue(1)", lax("(a ? b : c)", "1"))
	f("a.`b.c`.orValue(1)", lax("a.`b.c`", "1"))
	f("A.b{c: a.d}.orValue(1)", lax("A.b{c: a.d}", "1"))
	f("variables.plain.orValue(1)", lax("variables.plain", "1"))
	f("a // .?x\n .orValue(1)", lax("a // .?x", "1"))
	for _, optional := range []string{
		"a.?b.orValue(1)", "a. ?b.c[0].orValue(1)", "a[?0].orValue(1)", "a[ ?'b'].c.orValue(1)", "optional.of(a).orValue(1)",
		"optional.none().orValue(1)",
		"a.?b.optMap(x, x.y).orValue(1)", "a.?b.or(a.?c).orValue(1)", "(a.?b).orValue(1)", "variables.optional.orValue(1)",
		"variables.optional.b.orValue(1)", "variables.again.orValue(1)", "a.orValue", "orValue(1)", "a.orValue(1", "a) . orValue + [",
	} {
		f(optional, optional)
	}
	many := func(n int) string { return strings.Repeat("a.orValue(1) + ", n-1) + "a.orValue(1)" }
	if _, problems := laxly(t, many(64)); problems != "" {
		t.Errorf("64 calls: got %s", problems)
	}
	if _, problems := laxly(t, many(65)); !strings.Contains(problems,
		"spec.validations[0].expression: orValue of what may be no optional is written out for at most 64 calls") {
		t.Errorf("65 calls: got %s", problems)
	}
}

// TestOrValue compares the values of what is written with those of orValue before cel-go 0.28.
func TestOrValue(t *testing.T) {
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("object", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	f := func(expression, want string) {
		t.Helper()
		written, problems := laxly(t, expression)
		ast, issues := env.Compile(written)
		if issues.Err() != nil || problems != "" {
			t.Fatal(problems, issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		value, _, err := program.Eval(map[string]any{"object": map[string]any{"one": 1, "list": []int{2}}})
		if got := fmt.Sprintf("%v %v %v", ast.OutputType(), value, err); got != want {
			t.Errorf("%s: got %s, want %s", written, got, want)
		}
	}
	f("object.one.orValue(3)", "int 1 <nil>")
	f("object.list.orValue([0])[0]", "int 2 <nil>")
	f("[object.?one][0].orValue(3)", "int 1 <nil>")
	f("[object.?none][0].orValue(3)", "int 3 <nil>")
	f("object.none.orValue(3)", "int no such key: none no such key: none")
	f("object.list.all(x, x.orValue(3) == 2)", "bool true <nil>")
}

// TestOrValueOfOthers has orValue in policies that are no ValidatingPolicies.
func TestOrValueOfOthers(t *testing.T) {
	check(t, []row{
		{
			name: "rule",
			documents: clusterPolicy("ClusterPolicy", "",
				classicMatch+strings.Replace(classicCEL, "'true'", "object.spec.on.orValue(true)", 1)),
			want: []string{"[object.spec.on].map(orValue_,"},
		},
		{
			name:      "template",
			documents: template("{validations: [{expression: 'variables.params.a.orValue(true)'}]}", "") + constraint(""),
			want:      []string{"[variables.params.a].map(orValue_,"},
		},
	}, translate.Options{})
}
