package cel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// writtenBytesMax is after how many bytes a value is cut while it is written: more than admission.ShownValue shows.
const writtenBytesMax = 2 << 10

// shown returns the value of a sub-expression as text, unless it may be secret.
func (p *part) shown(e ast.Expr, v ref.Val) string {
	_, isBool := v.(types.Bool)
	isSize := e.Kind() == ast.CallKind && e.AsCall().FunctionName() == "size"
	if !isBool && !isSize && v != types.NullValue && p.isHidden(e) {
		return admission.HiddenValue
	}
	return textOf(v)
}

// isHidden reports whether an expression reads a field that may be secret.
func (p *part) isHidden(e ast.Expr) bool {
	if p.hidden.Object == nil && p.hidden.Params == nil && p.hidden.read == nil && !p.reads(e, "request") {
		return false
	}
	return p.hides(p.checked, e, p.tainted, make(map[string]bool))
}

func (p *part) reads(e ast.Expr, name string) (reads bool) {
	ast.PreOrderVisit(e, ast.NewExprVisitor(func(e ast.Expr) {
		reads = reads || e.Kind() == ast.IdentKind && (e.AsIdent() == name || e.AsIdent() == "variables" || p.tainted[e.AsIdent()])
	}))
	return reads
}

// hides is isHidden. variables are those of the policy that were looked into.
func (p *part) hides(in *ast.AST, e ast.Expr, tainted, variables map[string]bool) bool {
	if path, root := pathOf(e); root != nil {
		return p.hidesPath(root.AsIdent(), path, tainted, variables) || p.hidesKeys(in, e, tainted, variables)
	}
	hidden := false
	below := func(parts ...ast.Expr) {
		for _, part := range parts {
			hidden = hidden || p.hides(in, part, tainted, variables)
		}
	}
	switch e.Kind() {
	case ast.SelectKind:
		below(e.AsSelect().Operand())
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			below(e.AsCall().Target())
		}
		below(e.AsCall().Args()...)
	case ast.ListKind:
		below(e.AsList().Elements()...)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			below(entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			below(field.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		below(loop.IterRange(), loop.AccuInit(), loop.LoopStep(), loop.Result())
	}
	return hidden
}

// hidesPath reports whether the value at a path below a variable may be secret, or has a part that may be.
func (p *part) hidesPath(root string, path []string, tainted, variables map[string]bool) bool {
	if tainted[root] {
		return true
	}
	for _, field := range p.hidden.of(root) {
		n := min(len(field), len(path))
		if slices.Equal(field[:n], path[:n]) {
			return true
		}
	}
	if root != "variables" {
		return false
	}
	for i := range p.compiler.variables {
		v := &p.compiler.variables[i]
		if variables[v.name] || v.program == nil || len(path) > 0 && !isNamed(path[0], v.name) {
			continue
		}
		variables[v.name] = true
		checked, err := v.program.checked()
		if err != nil || p.hides(checked.NativeRep(), checked.NativeRep().Expr(), nil, variables) {
			return true
		}
	}
	return false
}

// isNamed reports whether a field of variables is the variable of that name.
func isNamed(field, name string) bool {
	unescaped, _ := apiservercel.Unescape(field)
	return field == name || unescaped == name
}

// hidesKeys reports whether a computed key in a path may be secret.
func (p *part) hidesKeys(in *ast.AST, e ast.Expr, tainted, variables map[string]bool) bool {
	for {
		switch e.Kind() {
		case ast.SelectKind:
			e = e.AsSelect().Operand()
		case ast.CallKind:
			args := e.AsCall().Args()
			if p.hides(in, args[1], tainted, variables) {
				return true
			}
			e = args[0]
		default:
			return false
		}
	}
}

// pathOf returns the fields and the variable that an expression such as object.data['key'] reads, no root for
// another one. A computed key ends the fields.
func pathOf(e ast.Expr) (path []string, root ast.Expr) {
	path, root, _ = readBy(e)
	return path, root
}

func readBy(e ast.Expr) (path []string, root ast.Expr, ended bool) {
	add := func(of ast.Expr, name string) {
		if path, root, ended = readBy(of); root != nil && !ended {
			path = append(path, name)
		}
	}
	switch e.Kind() {
	case ast.IdentKind:
		return nil, e, false
	case ast.SelectKind:
		add(e.AsSelect().Operand(), e.AsSelect().FieldName())
	case ast.CallKind:
		call := e.AsCall()
		if !isIndex(call) || len(call.Args()) != 2 {
			return nil, nil, false
		}
		if key := call.Args()[1]; key.Kind() == ast.LiteralKind {
			add(call.Args()[0], fmt.Sprint(key.AsLiteral().Value()))
		} else {
			path, root, _ = readBy(call.Args()[0])
			ended = true
		}
	}
	return path, root, ended
}

// textOf returns a value as JSON, as far as it is a value of JSON. The text is a copy, and bounded.
func textOf(v ref.Val) string {
	var b strings.Builder
	write(&b, v, explainedDepthMax)
	return admission.ShownValue(b.String())
}

func write(b *strings.Builder, v ref.Val, depth int) {
	if b.Len() > writtenBytesMax || depth == 0 {
		b.WriteString("...")
		return
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("unknown")
	case types.Null:
		b.WriteString("null")
	case types.String:
		writeString(b, string(v))
	case types.Bytes:
		fmt.Fprintf(b, "b%q", codec.TruncateString(string(v), writtenBytesMax))
	case types.Bool, types.Int, types.Uint, types.Double:
		fmt.Fprint(b, v.Value())
	case *types.Err:
		b.WriteString("error: " + codec.TruncateString(message(v), writtenBytesMax))
	case *types.Optional:
		if !v.HasValue() {
			b.WriteString("optional.none()")
			return
		}
		b.WriteString("optional.of(")
		write(b, v.GetValue(), depth-1)
		b.WriteString(")")
	case *view.Object:
		b.WriteString(v.JSON().JSON())
	case *view.List:
		b.WriteString(v.JSON().JSON())
	case *variables:
		b.WriteString("{...}")
	case *JSONPatch:
		fmt.Fprintf(b, "JSONPatch{op: %q, path: %q", v.Op, v.Path)
		if v.From != "" {
			fmt.Fprintf(b, ", from: %q", v.From)
		}
		if v.Val != nil {
			b.WriteString(", value: ")
			write(b, v.Val, depth-1)
		}
		b.WriteString("}")
	case traits.Lister:
		b.WriteString("[")
		for it, comma := v.Iterator(), ""; it.HasNext() == types.True && b.Len() <= writtenBytesMax; comma = "," {
			b.WriteString(comma)
			write(b, it.Next(), depth-1)
		}
		b.WriteString("]")
	case traits.Mapper:
		b.WriteString("{")
		for it, comma := v.Iterator(), ""; it.HasNext() == types.True && b.Len() <= writtenBytesMax; comma = "," {
			key := it.Next()
			b.WriteString(comma)
			write(b, key, depth-1)
			b.WriteString(":")
			write(b, v.Get(key), depth-1)
		}
		b.WriteString("}")
	default:
		writeOther(b, v, depth)
	}
}

func writeString(b *strings.Builder, s string) {
	if len(s) > writtenBytesMax {
		s = s[:writtenBytesMax]
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // strings can be encoded
	b.WriteString(strings.TrimSuffix(text.String(), "\n"))
}

// writeOther writes a value of a type that JSON does not have, such as a quantity or a timestamp.
func writeOther(b *strings.Builder, v ref.Val, depth int) {
	if text, ok := v.ConvertToType(types.StringType).(types.String); ok {
		writeString(b, string(text))
		return
	}
	if value, ok := v.Value().(fmt.Stringer); ok {
		writeString(b, value.String())
		return
	}
	if object, ok := v.Value().(map[string]any); ok { // an Object of a mutation
		write(b, types.NewStringInterfaceMap(types.DefaultTypeAdapter, object), depth-1)
		return
	}
	b.WriteString("(" + v.Type().TypeName() + ")")
}
