package cel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestKyvernoResults compares the functions with github.com/kyverno/sdk v0.0.0-20260825082632-68d74afcb07a: results.json
// has what its libraries of 1.18 return for expressions about object.json.
func TestKyvernoResults(t *testing.T) {
	object := string(readTestdata(t, "kyverno/object.json"))
	var results []struct{ Expression, Value, Error string }
	if err := json.Unmarshal(readTestdata(t, "kyverno/results.json"), &results); err != nil || len(results) < 60 {
		t.Fatal(len(results), err)
	}
	// Errors of Kyverno that say nothing about the expression, or name its types of Go.
	own := map[string]string{
		"json.unmarshal(object.n)":                     "unsupported type conversion from 'int' to string",
		"json.marshal({1:2})":                          "got a key of type int, want string",
		`listObjToMap([1], [{"c":1}], "a", "b")`:       "got an element of type int, want a map",
		`listObjToMap([{"a":"x"}], [1], "a", "b")`:     "got an element of type int, want a map",
		`sha256(object.n)`:                             "no such overload: sha256(int)",
		`yaml.parse("a: *x & b")`:                      "yaml: did not find expected alphabetic or numeric character",
		`yaml.parse("a: &x [*x]")`:                     "the aliases of a YAML text of 10 bytes add more than",
		`listObjToMap([{"a":"x"}], [], "a", "b")`:      "must take lists of equal length. list1: 1, list2: 0",
		`string(json.unmarshal("1") + 1)`:              "no such overload",
		`json.marshal(listObjToMap([], [], "a", "b"))`: "",
	}
	for _, interpreted := range []bool{false, true} {
		for _, r := range results {
			got, err := evaluateKyverno(t, object, r.Expression, interpreted)
			want, isOwn := own[r.Expression]
			if !isOwn {
				want = r.Error
			}
			switch {
			case r.Error == "" && (err != nil || got != r.Value):
				t.Errorf("%s: got %s, %v, want %s", r.Expression, got, err, r.Value)
			case r.Error != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%s: got %s, %v, want the error %s", r.Expression, got, err, want)
			}
		}
	}
}

func readTestdata(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// evaluateKyverno returns the text that an expression about an object results in, with closures or cel-go's interpreter.
func evaluateKyverno(t *testing.T, object, expression string, interpreted bool) (string, error) {
	t.Helper()
	c := aboutObject(interpreted)
	got, _, err := evaluateWith(t, c, readable{objects: map[string]string{"shop/object": object}}, ofObject(expression))
	return got, err
}

// aboutObject returns a Compiler whose variable object is an object of the cluster, and ofObject an expression about it.
func aboutObject(interpreted bool) *Compiler {
	c := NewCompiler(true)
	c.InterpreterOnly = interpreted
	c.AddVariable("object", "resource.Get('v1', 'configmaps', 'shop', 'object')", Declarations{Kyverno: true})
	return c
}

func ofObject(expression string) string {
	return strings.ReplaceAll(expression, "object", "variables.object")
}

// TestKyvernoBounds gives the functions texts that are long, deep, or grow: they end with an error or in linear cost.
func TestKyvernoBounds(t *testing.T) {
	quoted := func(text string) string {
		var object bytes.Buffer
		e := json.NewEncoder(&object)
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]string{"a": text}); err != nil {
			t.Fatal(err)
		}
		return object.String()
	}
	aliases := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		list := strings.Repeat(fmt.Sprintf("*a%d, ", i), 10)
		aliases += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(list, ", "))
	}
	for _, c := range []struct{ text, expression, want string }{
		{"[" + strings.Repeat(`{"":0},`, 100_000) + "0]", "string(json.unmarshal(object.a).size())", "100001"},
		{"[" + strings.Repeat(`{"":0},`, 200_000) + "0]", "string(json.unmarshal(object.a).size())", "running out of memory budget"},
		{strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), "string(json.unmarshal(object.a).size())", "1"},
		{strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000), "string(json.unmarshal(object.a).size())", "exceeded max depth"},
		{aliases, "string(yaml.parse(object.a).size())", "the aliases of a YAML text of"},
		{strings.Repeat("- a\n", 40_000), "string(yaml.parse(object.a).size())", "40000"},
		{strings.Repeat("- a\n", 60_000), "string(yaml.parse(object.a).size())", "running out of memory budget"},
		{"-----BEGIN CERTIFICATE-----\n" + strings.Repeat("AAAA", 15_000) + "\n-----END CERTIFICATE-----\n", "x509.decode(object.a)",
			"got a PEM block of 45000 bytes, the maximum is 32768"},
		{strings.Repeat("-----BEGIN ", 40_000), "x509.decode(object.a)", "failed to decode PEM block"},
		{strings.Repeat("<", 900_000), "json.marshal(object)", `"\u003c\u003c`},
		{
			strings.Repeat("a", 1000), "json.marshal([object]" + strings.Repeat(".map(x, [x, x, x, x, x, x, x, x])", 5) + ")",
			"running out of memory budget",
		},
		{strings.Repeat("<", 100_000), "string(json.marshal(object).size())", "600008"},
		{"a", "json.marshal([object, object].map(x, [x, x]).map(x, [x, x]).map(x, [x, x]).map(x, [x, x, x])).startsWith('[[')", "true"},
	} {
		got, err := evaluateKyverno(t, quoted(c.text), c.expression, false)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%.40s: %s: got %.200s, want %s", c.text, c.expression, got, c.want)
		}
	}
}

// BenchmarkKyverno has the times for which dataCosts are.
func BenchmarkKyverno(b *testing.B) {
	var object map[string]any
	text, err := os.ReadFile("testdata/kyverno/object.json")
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		b.Fatal(err)
	}
	pairs := strings.Repeat(`{"name":"a","value":[1,true]},`, 1000)
	object["json"], object["block"] = "["+pairs+"0]", strings.Repeat("- name: a\n  value: [1, true]\n", 1000)
	text, err = json.Marshal(object)
	if err != nil {
		b.Fatal(err)
	}
	for _, expression := range []string{"json.unmarshal(object.json)", "json.marshal(object)", "yaml.parse(object.block)",
		"x509.decode(object.cert)", "listObjToMap(object.list, object.list, 'k', 'v')", "base64.decode('aGk=')"} {
		b.Run(strings.Split(expression, "(")[0], func(b *testing.B) {
			c := aboutObject(false)
			x := c.Compile(ofObject(expression), Declarations{Kyverno: true}, Any)
			in := newInput(b, b.Context())
			in.Cluster = readable{objects: map[string]string{"shop/object": string(text)}}
			for b.Loop() {
				e := c.Begin(in, celconfig.RuntimeCELCostBudget)
				if _, err, fatal := e.Evaluate(x); err != nil || fatal != nil {
					b.Fatal(err, fatal)
				}
				e.End()
			}
			b.ReportMetric(float64(in.Spent)/float64(b.N), "cost/op")
		})
	}
}
