package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// A mutant is one change of the code.
type mutant struct {
	id    int
	point int // the number of its point, as written to the file of mutants.reached
	pkg   *pkg
	file  string // below the working directory
	line  int
	in    string // the function, "" for none
	what  string // the change, as "a < b: always true"
}

// key identifies the mutant after lines have moved.
func (m *mutant) key() string { return m.file + ": " + m.in + ": " + m.what }

// An edit replaces a part of a file by a text.
type edit struct {
	from, to int
	text     string
	order    int // of edits at the same place
}

// An instrumenter finds the points of a file and writes the file with them.
type instrumenter struct {
	set     *token.FileSet
	pkg     *pkg
	file    *file
	skip    map[int]bool // lines without points, because their mutants do not compile
	next    int          // the next number
	mutants []*mutant
	edits   []edit
	in      string
	used    map[string]bool // packages whose imports must stay in use
	values  map[ast.Expr]bool
	ignored map[ast.Expr]bool // constants
	inLoop  bool              // in the condition of a loop
}

func (x *instrumenter) offset(pos token.Pos) int { return x.set.Position(pos).Offset }

func (x *instrumenter) text(n ast.Node) string {
	return string(x.file.src[x.offset(n.Pos()):x.offset(n.End())])
}

// shown is the text of a node in one line, cut.
func (x *instrumenter) shown(n ast.Node) string {
	text := strings.Join(strings.Fields(x.text(n)), " ")
	if runes := []rune(text); len(runes) > 100 {
		text = string(runes[:100]) + "..."
	}
	return text
}

// point makes a point with a mutant for each change, and returns its number; 0 if
// there must not be one.
func (x *instrumenter) point(n ast.Node, changes ...string) int {
	line := x.set.Position(n.Pos()).Line
	if x.skip[line] {
		return 0
	}
	id := x.next
	for i, change := range changes {
		x.mutants = append(x.mutants, &mutant{
			id: id + i, point: id, pkg: x.pkg, file: short(x.file.name), line: line, in: x.in, what: x.shown(n) + ": " + change,
		})
	}
	x.next += len(changes)
	return id
}

// wrap puts text around a node. If nodes begin or end at the same place, the
// outer one must be wrapped first.
func (x *instrumenter) wrap(n ast.Node, before, after string) {
	from, to := x.offset(n.Pos()), x.offset(n.End())
	x.edits = append(x.edits,
		edit{from, from, before, len(x.edits)},
		edit{to, to, after, -len(x.edits) - 1}) // inner ones end first, and before others begin
}

func (x *instrumenter) replace(from, to token.Pos, text string) {
	x.edits = append(x.edits, edit{x.offset(from), x.offset(to), text, len(x.edits)})
}

// instrument returns the file with its points.
func (x *instrumenter) instrument(runtime string) []byte {
	x.used, x.values, x.ignored = make(map[string]bool), make(map[ast.Expr]bool), make(map[ast.Expr]bool)
	for _, decl := range x.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			x.function(d)
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				x.in = ""
				x.walk(d)
			}
		}
	}
	x.edits = append(x.edits, edit{x.offset(x.file.Name.End()), x.offset(x.file.Name.End()), fmt.Sprintf("; import _mu %q", runtime), 0})
	slices.SortStableFunc(x.edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.order, b.order)) })
	var out []byte
	at := 0
	for _, e := range x.edits {
		out = append(out, x.file.src[at:e.from]...)
		out = append(out, e.text...)
		at = e.to
	}
	out = append(out, x.file.src[at:]...)
	out = append(out, "\nvar _ = _mu.Is\n"...)
	for _, name := range []string{"strings.", "bytes.", "slices."} {
		if x.used[name] {
			out = append(out, "var _ = "+name+map[string]string{"strings.": "ToUpper", "bytes.": "ToUpper", "slices.": "Max[[]int]"}[name]+"\n"...)
		}
	}
	return out
}

func (x *instrumenter) function(d *ast.FuncDecl) {
	if d.Body == nil || len(d.Body.List) == 0 {
		return
	}
	x.in = d.Name.Name
	if d.Recv != nil && len(d.Recv.List) > 0 {
		x.in = strings.TrimPrefix(x.shown(d.Recv.List[0].Type), "*") + "." + x.in
	}
	x.earlyReturn(d)
	x.walk(d.Body)
}

// earlyReturn makes the function return zero results at once.
func (x *instrumenter) earlyReturn(d *ast.FuncDecl) {
	var zeros []string
	if results := d.Type.Results; results != nil {
		for _, field := range results.List {
			for range max(len(field.Names), 1) {
				zeros = append(zeros, "*new("+x.text(field.Type)+")")
			}
			if len(field.Names) > 0 && field.Names[0].Name != "_" {
				zeros = nil
				break
			}
		}
		if only, ok := d.Body.List[0].(*ast.ReturnStmt); ok && len(only.Results) == 1 && x.isBool(only.Results[0]) {
			return // its conditions are mutated
		}
	}
	if id := x.point(d.Name, "returns at once"); id > 0 {
		at := d.Body.Lbrace + 1
		x.replace(at, at, fmt.Sprintf(" if _mu.Is(%d) { return %s }; ", id, strings.Join(zeros, ", ")))
	}
}

// walk makes the points below a node.
func (x *instrumenter) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		x.markConditions(n)
		switch n := n.(type) {
		case *ast.BlockStmt:
			x.statements(n.List)
		case *ast.CaseClause:
			x.statements(n.Body)
			return !x.isConstantCase(n)
		case *ast.CommClause:
			x.statements(n.Body)
		case *ast.ForStmt:
			if n.Cond != nil {
				x.loop(n)
				return false
			}
		case *ast.RangeStmt:
			x.rangeOver(n)
		case *ast.ArrayType, *ast.StructType, *ast.FuncType, *ast.InterfaceType:
			return false
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.KeyValueExpr:
			if tv, ok := x.pkg.info.Types[n.Key]; ok && tv.Value == nil { // neither a field nor a constant
				x.walk(n.Key)
			}
			x.walk(n.Value)
			return false
		case ast.Expr:
			return x.expression(n)
		}
		return true
	})
}

// isConstantCase reports whether a case compares with constants, which the
// compiler requires to be different. It makes the points of the case's body.
func (x *instrumenter) isConstantCase(c *ast.CaseClause) bool {
	for _, e := range c.List {
		if tv := x.pkg.info.Types[e]; tv.Value == nil && !tv.IsType() {
			return false
		}
	}
	for _, s := range c.Body {
		x.walk(s)
	}
	return true
}

func (x *instrumenter) loop(n *ast.ForStmt) {
	if n.Init != nil {
		x.walk(n.Init)
	}
	x.values[n.Cond], x.inLoop = true, true
	x.walk(n.Cond)
	x.inLoop = false
	if n.Post != nil {
		x.walk(n.Post)
	}
	x.walk(n.Body)
}

func (x *instrumenter) rangeOver(n *ast.RangeStmt) {
	literal, ok := n.X.(*ast.CompositeLit)
	if !ok {
		return
	}
	if array, ok := literal.Type.(*ast.ArrayType); ok && array.Len != nil && n.Key != nil {
		if id := x.drops(literal); id > 0 {
			x.wrap(literal, fmt.Sprintf("_mu.Drop(%d, ", id), ")")
			x.replace(array.Len.Pos(), array.Len.End(), "")
		}
	}
}

// drops makes a point that drops elements of a list. It returns 0 for a table, or
// if the node is no list.
func (x *instrumenter) drops(literal *ast.CompositeLit) int {
	const longest = 16
	var changes []string
	for _, e := range literal.Elts {
		if _, keyed := e.(*ast.KeyValueExpr); keyed {
			return 0
		}
		changes = append(changes, "without "+x.shown(e))
	}
	if len(changes) == 0 || len(changes) > longest {
		return 0
	}
	return x.point(literal, changes...)
}

// statements makes points that leave statements out.
func (x *instrumenter) statements(list []ast.Stmt) {
	for _, s := range list {
		if !x.canDrop(s) {
			continue
		}
		if id := x.point(s, "left out"); id > 0 {
			x.wrap(s, fmt.Sprintf("if !_mu.Is(%d) { ", id), " }")
		}
	}
}

func (x *instrumenter) canDrop(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		if !ok {
			return true
		}
		name, ok := call.Fun.(*ast.Ident)
		return !ok || name.Name != "panic" // which may end a function
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return false
		}
		return slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool { name, ok := e.(*ast.Ident); return !ok || name.Name != "_" })
	case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		return true
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	}
	return false
}
