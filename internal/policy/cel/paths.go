package cel

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

const (
	// pathsMax is the maximum number of paths of an expression: more than a report of one violation should list.
	pathsMax = 20

	// pathsDepthMax is how deep an expression and the variables that it uses are looked into. It bounds recursion.
	pathsDepthMax = 100
)

// Paths returns the fields of the object that an expression and its variables name, such as spec.replicas, sorted. "[*]"
// stands for each element of a list or a map. Of a field whose parts are named, only the parts are returned. It returns
// nil for an expression that does not compile.
func (c *Compiler) Paths(x *Expression) []string {
	r := &pathReader{compiler: c, loops: make(map[string]place), seen: make(map[*Expression]bool)}
	r.read(x, 0)
	slices.Sort(r.paths)
	r.paths = slices.Compact(r.paths)
	all := slices.DeleteFunc(slices.Clone(r.paths), func(path string) bool {
		return path == "" || isPrefix(path+".", r.paths) || isPrefix(path+"[", r.paths)
	})
	return all[:min(len(all), pathsMax)]
}

// isPrefix reports whether one of the sorted texts begins with a prefix. An expression may name thousands of fields.
func isPrefix(prefix string, sorted []string) bool {
	first, _ := slices.BinarySearch(sorted, prefix)
	return first < len(sorted) && strings.HasPrefix(sorted[first], prefix)
}

// A pathReader collects the paths in an expression.
type pathReader struct {
	compiler *Compiler
	loops    map[string]place // what the variables of the loops around are
	seen     map[*Expression]bool
	paths    []string
}

// A place is a part of the object, or something else.
type place struct {
	path  string
	known bool // it is a part of the object
}

// read adds the paths of an expression, and returns what it is.
func (r *pathReader) read(x *Expression, depth int) place {
	if x == nil || x.program == nil {
		return place{}
	}
	checked, err := x.program.checked()
	if err != nil {
		return place{}
	}
	root := checked.NativeRep().Expr()
	if isFirst := !r.seen[x]; isFirst {
		r.seen[x] = true
		around := r.loops // a variable of the policy does not see them
		r.loops = make(map[string]place)
		r.walk(root, depth)
		r.loops = around
	}
	return r.place(root, depth)
}

// place returns what an expression is.
func (r *pathReader) place(e ast.Expr, depth int) place {
	if depth > pathsDepthMax {
		return place{}
	}
	switch e.Kind() {
	case ast.IdentKind:
		if loop, ok := r.loops[e.AsIdent()]; ok {
			return loop
		}
		return place{"", e.AsIdent() == "object"}
	case ast.SelectKind:
		if name, ok := variableName(e); ok {
			return r.variable(name, depth)
		}
		in := r.place(e.AsSelect().Operand(), depth+1)
		name, ok := apiservercel.Unescape(e.AsSelect().FieldName())
		if !ok {
			name = e.AsSelect().FieldName()
		}
		return in.field(name)
	case ast.CallKind:
		if call := e.AsCall(); isIndex(call) && len(call.Args()) == 2 {
			return r.element(r.place(call.Args()[0], depth+1), call.Args()[1])
		}
	}
	return place{}
}

// element returns what an index of a place is.
func (r *pathReader) element(in place, index ast.Expr) place {
	if index.Kind() == ast.LiteralKind {
		switch index := index.AsLiteral().(type) {
		case types.String:
			return in.field(string(index))
		case types.Int:
			return in.append("[" + strconv.FormatInt(int64(index), 10) + "]")
		}
	}
	return in.append("[*]")
}

// variable returns what a variable of the policy is, and adds the paths of its expression.
func (r *pathReader) variable(name string, depth int) place {
	for i := range r.compiler.variables {
		if v := &r.compiler.variables[i]; v.name == name {
			around := r.loops
			r.loops = make(map[string]place)
			defer func() { r.loops = around }()
			return r.read(v.Expression, depth+1)
		}
	}
	return place{}
}

// plainName matches the names that a path has without brackets.
var plainName = regexp.MustCompile(`^[A-Za-z_$][\w$-]*$`)

func (p place) field(name string) place {
	if plainName.MatchString(name) {
		return p.append("." + name)
	}
	return p.append("[" + strconv.Quote(name) + "]")
}

func (p place) append(step string) place {
	if !p.known {
		return place{}
	}
	return place{strings.TrimPrefix(p.path+step, "."), true}
}

// walk adds the paths in an expression.
func (r *pathReader) walk(e ast.Expr, depth int) {
	if depth > pathsDepthMax {
		return
	}
	if p := r.place(e, depth); p.known {
		r.paths = append(r.paths, p.path)
	}
	switch e.Kind() {
	case ast.SelectKind:
		r.walk(e.AsSelect().Operand(), depth+1)
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			r.walk(e.AsCall().Target(), depth+1)
		}
		for _, arg := range e.AsCall().Args() {
			r.walk(arg, depth+1)
		}
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			r.walk(element, depth+1)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			r.walk(entry.AsMapEntry().Key(), depth+1)
			r.walk(entry.AsMapEntry().Value(), depth+1)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			r.walk(field.AsStructField().Value(), depth+1)
		}
	case ast.ComprehensionKind:
		r.loop(e.AsComprehension(), depth)
	}
}

// loop adds the paths in a loop. Its variables are no parts of the object of the same name; the last one is an element.
func (r *pathReader) loop(loop ast.ComprehensionExpr, depth int) {
	r.walk(loop.IterRange(), depth+1)
	r.walk(loop.AccuInit(), depth+1)
	element := r.place(loop.IterRange(), depth+1).append("[*]")
	names := []string{loop.AccuVar(), loop.IterVar()}
	values := []place{{}, element}
	if loop.HasIterVar2() {
		names, values = append(names, loop.IterVar2()), []place{{}, {}, element}
	}
	before := make([]place, len(names))
	had := make([]bool, len(names))
	for i, name := range names {
		before[i], had[i] = r.loops[name]
		r.loops[name] = values[i]
	}
	for _, part := range []ast.Expr{loop.LoopCondition(), loop.LoopStep(), loop.Result()} {
		r.walk(part, depth+1)
	}
	for i, name := range names {
		if delete(r.loops, name); had[i] {
			r.loops[name] = before[i]
		}
	}
}
