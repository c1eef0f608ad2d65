// Package expressions generates random CEL expressions for tests. They resemble those of
// admission policies: they use the fields of an object and all CEL libraries of Kubernetes.
// Most of them compile, many have a value, and some have errors of all kinds.
//
// The value and the cost of an expression do not depend on the order of map entries,
// because kube-apiserver iterates over maps in random order.
package expressions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Kind is the type of an expression's value. In templates, it is the letter after "$".
type Kind byte

// The kinds for Generator.Expression.
const (
	Bool   Kind = 'b'
	String Kind = 's'
	Any    Kind = 'x'
	List   Kind = 'l'
)

// Generator generates expressions. Only one goroutine at a time may use it.
type Generator struct {
	*rand.Rand
	// Wrong is n if, on average, one of n operands has a random type. New sets it to 16.
	Wrong int

	feature string
	paths   map[Kind][]string
}

// New returns a Generator. variables are the variables of the expressions, such as object,
// with values as decoded by encoding/json.
func New(r *rand.Rand, variables map[string]any) *Generator {
	g := &Generator{Rand: r, Wrong: 16, paths: make(map[Kind][]string)}
	for _, name := range sorted(variables) {
		g.collect(name, variables[name])
	}
	for kind, paths := range requestPaths {
		g.paths[kind] = append(g.paths[kind], paths...)
	}
	return g
}

// Add adds an expression, such as variables.a, to the operands of later expressions.
func (g *Generator) Add(kind Kind, expression string) {
	for range 1 + len(g.paths[kind])/8 { // not lost among the fields of an object
		g.paths[kind] = append(g.paths[kind], expression)
	}
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func kindOf(v any) Kind {
	switch v := v.(type) {
	case bool:
		return Bool
	case string:
		return String
	case float64:
		if v == float64(int64(v)) {
			return 'i'
		}
		return 'd'
	case int64:
		return 'i'
	case []any:
		return List
	case map[string]any:
		return 'm'
	}
	return Any
}

func (g *Generator) collect(path string, v any) {
	g.paths[kindOf(v)] = append(g.paths[kindOf(v)], path)
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sorted(v) {
			if name == "managedFields" {
				continue
			}
			member := path + "[" + strconv.Quote(name) + "]"
			if isField(name) && g.IntN(8) > 0 {
				member = path + g.pick(".", ".", ".", ".?") + name
			}
			g.collect(member, v[name])
		}
	case []any:
		for i := range min(len(v), 3) {
			g.collect(fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	}
}

// isField reports whether a name may be selected with a dot.
func isField(name string) bool {
	for i, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && !slices.Contains(reserved, name)
}

// reserved are words of CEL that are no names of fields in it.
var reserved = strings.Fields("false in null true as break const continue else for function if import let loop package namespace " +
	"return var void while")

func (g *Generator) pick(all ...string) string { return all[g.IntN(len(all))] }

// Features returns the names of all features, sorted. A feature is a CEL library, or CEL
// without libraries.
func Features() []string { return sorted(features) }

// Expression returns an expression of a kind that uses a feature. If feature is "", it
// chooses one at random.
func (g *Generator) Expression(feature string, kind Kind) string {
	if g.feature = feature; feature == "" {
		g.feature = g.pick(Features()...)
	}
	return g.expression(kind, 1+g.IntN(3))
}

func (g *Generator) expression(kind Kind, depth int) string {
	if g.IntN(g.Wrong) == 0 && kind != 'L' {
		kind = [...]Kind{Bool, String, 'i', 'd', List, Any}[g.IntN(6)]
	}
	if depth == 0 {
		return g.atom(kind)
	}
	templates := features[g.feature][kind]
	if len(templates) == 0 || g.IntN(3) == 0 {
		templates = append(slices.Clip(templates), features["core"][kind]...)
	}
	if kind == Any && (len(templates) == 0 || g.IntN(3) > 0) {
		if kinds := features[g.feature]; len(kinds) > 0 {
			all := make([]string, 0, len(kinds))
			for kind := range kinds {
				all = append(all, string(rune(kind)))
			}
			slices.Sort(all)
			return g.expression(Kind(g.pick(all...)[0]), depth)
		}
	}
	if len(templates) == 0 {
		return g.atom(kind)
	}
	return g.fill(g.pick(templates...), depth-1)
}

// fill puts expressions into a template.
func (g *Generator) fill(template string, depth int) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(template, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		value := g.expression(Kind(after[0]), g.IntN(depth+1))
		if strings.ContainsAny(value, " ?") {
			value = "(" + value + ")"
		}
		b.WriteString(value)
		template = after[1:]
	}
}

// atom returns a field of an object or a literal.
func (g *Generator) atom(kind Kind) string {
	if kind == 'p' || kind == Any && g.IntN(2) == 0 { // a field of any kind
		all := sorted(kindNames)
		kind = Kind(g.pick(all...)[0])
		if paths := g.paths[kind]; len(paths) > 0 {
			return g.path(paths)
		}
		return "object"
	}
	paths := g.paths[kind]
	if kind == 'L' {
		paths = g.paths[List]
	}
	if len(paths) > 0 && g.IntN(3) > 0 {
		return g.path(paths)
	}
	if all := literals[kind]; len(all) > 0 {
		return g.pick(all...)
	}
	return g.pick(literals[Any]...)
}

var kindNames = map[string]bool{"b": true, "s": true, "i": true, "d": true, "l": true, "m": true, "x": true}

func (g *Generator) path(paths []string) string {
	p := g.pick(paths...)
	if g.IntN(20) == 0 {
		p += g.pick(".nope", "['no/pe']", "[0]", ".?nope", "[?0]", ".metadata")
	}
	if strings.Contains(p, "?") && g.IntN(6) > 0 {
		p += ".orValue(" + g.pick("null", "''", "0", "[]", "{}") + ")"
	}
	return p
}
