package closure

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// A path is an attribute of the interpreter: a variable or the value of another expression,
// and the members and elements selected from it. Each step costs 1. The attribute itself
// costs another 1, except as a branch of a conditional or as an index.
type path struct {
	root  closure
	steps []step
	tests bool // has(): whether the last step exists, without the cost of the attribute
}

// A step selects a member or an element.
type step struct {
	name     string
	key      ref.Val // the name
	index    closure // of a step that has no name
	optional bool    // if the member is missing, the path ends, without a cost
}

func isIndex(c ast.CallExpr) bool {
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return true
	}
	return false
}

// path returns the path of an identifier, a selection or an index.
func (b *builder) path(e ast.Expr) *path {
	switch e.Kind() {
	case ast.IdentKind:
		if root := b.ident(e); root != nil {
			return &path{root: root}
		}
	case ast.SelectKind:
		s := e.AsSelect() // a name with dots in it is an identifier
		if p := b.field(s.Operand(), s.FieldName()); p != nil && !s.IsTestOnly() {
			return p
		}
		return b.selection(s.Operand(), newStep(s.FieldName()), s.IsTestOnly())
	case ast.CallKind:
		if c := e.AsCall(); isIndex(c) {
			s, ok := b.index(c.Args()[1])
			if s.optional = c.FunctionName() != operators.Index; ok {
				return b.selection(c.Args()[0], s, false)
			}
		}
	}
	return nil
}

func newStep(name string) step { return step{name: name, key: types.String(name)} }

// selection returns the path of an operand with one more step.
func (b *builder) selection(operand ast.Expr, s step, tests bool) *path {
	p := b.operand(operand)
	if p == nil {
		return nil
	}
	p.steps, p.tests = append(p.steps, s), tests
	return p
}

func (b *builder) operand(e ast.Expr) *path {
	if e.Kind() == ast.CallKind && !isIndex(e.AsCall()) || e.Kind() == ast.ComprehensionKind {
		if isCall(e, operators.Conditional) {
			return nil // the interpreter adds the steps to the branches
		}
		if root := b.expr(e); root != nil {
			return &path{root: root}
		}
		return nil
	}
	return b.path(e)
}

func (p *path) isOptional() bool {
	for i := range p.steps {
		if p.steps[i].optional {
			return true
		}
	}
	return false
}

// index returns the step of an index. An index that is a path does not cost 1 itself.
func (b *builder) index(e ast.Expr) (s step, ok bool) {
	if name, ok := b.constant(e).(types.String); ok {
		return newStep(string(name)), true
	}
	s.index = b.branch(e)
	return s, s.index != nil
}

// branch is an expression in a place where a path does not cost 1 itself.
func (b *builder) branch(e ast.Expr) closure {
	if p := b.path(e); p != nil {
		if p.isOptional() {
			return nil
		}
		return p.resolve
	}
	return b.expr(e)
}

// closure is the closure of a path in a place where the path costs 1 itself.
func (p *path) closure() closure {
	if p.isOptional() {
		return nil // only orValue and hasValue have closures for optional paths
	}
	if p.tests {
		return p.resolve
	}
	return func(f *frame) value {
		v := p.resolve(f)
		if v.kind == gaveUp || !f.steps(1) {
			return value{}
		}
		return v
	}
}

// resolve follows the path. It gives up if something is missing that is neither
// tested nor optional.
func (p *path) resolve(f *frame) value {
	v := p.root(f)
	if v.kind == gaveUp {
		return v
	}
	last := len(p.steps) - 1
	for i := range p.steps {
		s := &p.steps[i]
		if v.kind == kindObject && s.index == nil { // the usual case, made fast
			member := f.Index.Member(v.json, s.name)
			if !member.Exists() {
				return p.missing(f, i)
			}
			if !f.steps(1) {
				return value{}
			}
			if i == last && p.tests {
				return boolValue(true)
			}
			if v.json = member; member.Kind() != codec.KindObject {
				v = jsonValue(member)
			}
			continue
		}
		next, found := s.of(f, &v)
		if !found {
			return p.missing(f, i)
		}
		if next.kind == gaveUp || !f.steps(1) {
			return value{}
		}
		if i == last && p.tests {
			return boolValue(true)
		}
		v = next
	}
	return v
}

// missing returns the value of a path whose i-th step is missing.
func (p *path) missing(f *frame, i int) value {
	switch {
	case p.tests && i == len(p.steps)-1:
		if f.steps(1) {
			return boolValue(false)
		}
	case !p.isOptionalAfter(i):
		return value{kind: kindNone}
	}
	return value{}
}

// isOptionalAfter reports whether only steps after the i-th are optional, so that the i-th
// must exist.
func (p *path) isOptionalAfter(i int) bool {
	for _, s := range p.steps[:i+1] {
		if s.optional {
			return false
		}
	}
	return true
}

// of selects from any value. found is false if the member or element is missing. Where the
// interpreter would have an error, next gives up.
func (s *step) of(f *frame, v *value) (next value, found bool) {
	key := value{kind: kindText, text: s.name}
	if s.index != nil {
		key = s.index(f)
	}
	switch {
	case key.kind != kindText && key.kind != kindInt:
		return value{}, true
	case v.kind == kindObject && key.kind == kindText:
		member := f.Index.Member(v.json, key.text)
		return jsonValue(member), member.Exists()
	case v.kind == kindArray && key.kind == kindInt:
		i := int64(key.bits)
		if i < 0 {
			return value{}, false
		}
		element := f.Index.Element(v.json, int(i))
		return jsonValue(element), element.Exists()
	case v.kind == kindOther && key.kind == kindText:
		mapper, ok := v.val.(traits.Mapper)
		if !ok {
			return value{}, true
		}
		name := s.key
		if name == nil {
			name = types.String(key.text)
		}
		found, ok := mapper.Find(name)
		return unboxed(found), ok
	case v.kind == kindOther: // and an integer
		l, ok := v.val.(traits.Lister)
		if !ok {
			return value{}, true
		}
		if i, n := int64(key.bits), l.Size().(types.Int); i < 0 || i >= int64(n) {
			return value{}, false
		}
		return unboxed(l.Get(types.Int(key.bits))), true
	case v.kind == kindArray:
		return value{}, true
	}
	return value{}, false
}

// ident is a variable.
func (b *builder) ident(e ast.Expr) closure {
	for i, name := range slices.Backward(b.slots) {
		if name == e.AsIdent() {
			return func(f *frame) value { return f.slots[i] }
		}
	}
	switch e.AsIdent() {
	case "object":
		return func(f *frame) value { return objectValue(&f.Object) }
	case "oldObject":
		return func(f *frame) value { return objectValue(&f.OldObject) }
	case "request":
		return func(f *frame) value { return value{kind: kindOther, val: &f.Request} }
	case "variables":
		return func(f *frame) value { return value{kind: kindOther, val: f.Variables()} }
	case "params":
		return func(f *frame) value { return unboxed(f.Params()) }
	case "namespaceObject":
		return func(f *frame) value { return unboxed(f.NamespaceObject()) }
	}
	return nil
}

// objectValue returns the object, or null where the request has none.
func objectValue(o *view.Object) value {
	if v := o.JSON(); v.Kind() == codec.KindObject {
		return value{kind: kindObject, json: v}
	}
	return value{kind: kindNull}
}

// field returns the path of a field of the request, or of a variable of the policy. The root
// of the path has the cost of the step.
func (b *builder) field(operand ast.Expr, name string) *path {
	if slices.Contains(b.slots, operand.AsIdent()) { // "" if it is no identifier
		return nil
	}
	var root closure
	switch operand.AsIdent() {
	case "request":
		root = func(f *frame) value { return requestField(&f.Request, name) }
	case "variables":
		root = b.variable(name)
	}
	if root == nil {
		return nil
	}
	return &path{root: func(f *frame) value {
		v := root(f)
		if v.kind == gaveUp || !f.steps(1) {
			return value{}
		}
		return v
	}}
}

func requestField(r *view.Request, name string) value {
	v, empty := r.Field(name)
	if v.Exists() {
		return jsonValue(v)
	}
	return unboxed(empty)
}

// variable is a variable of the policy.
func (b *builder) variable(escaped string) closure {
	name, _ := apiservercel.Unescape(escaped) // "" if it is not the name of a variable
	if i := slices.Index(b.variables, name); i >= 0 {
		return func(f *frame) value { return unboxed(f.Variable(i)) }
	}
	return nil
}

// optional is orValue or hasValue of an optional path, which costs 1 itself. hasValue costs
// another 1, orValue only the cost of its argument if that is evaluated.
func (b *builder) optional(c ast.CallExpr) closure {
	p := b.path(c.Target())
	if p == nil || !p.isOptional() {
		return nil
	}
	if c.FunctionName() == "hasValue" {
		return func(f *frame) value {
			v := p.resolve(f)
			if v.kind == gaveUp || !f.steps(2) { // the path and the call
				return value{}
			}
			return boolValue(v.kind != kindNone)
		}
	}
	other := b.expr(c.Args()[0])
	if other == nil {
		return nil
	}
	return func(f *frame) value {
		v := p.resolve(f)
		switch {
		case v.kind == gaveUp || !f.steps(1):
			return value{}
		case v.kind == kindNone:
			return other(f)
		}
		return v
	}
}
