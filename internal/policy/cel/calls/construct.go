package calls

import (
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// boundConstructor charges a list, a map or a struct of an expression. cel-go makes lists and
// maps of constants once, when it plans.
func boundConstructor(c interpreter.InterpretableConstructor) interpreter.InterpretableV2 {
	n, constants := 0, 0
	for _, v := range c.InitVals() {
		if n++; isConstant(v) {
			constants++
		}
	}
	if c.Type() == types.ListType || c.Type() == types.MapType {
		if n == constants {
			return c
		}
		return &boundedConstructor{c, n}
	}
	fields := c.InitVals() // those that the struct uses
	for i := range fields {
		fields[i] = &boundedField{fields[i]}
	}
	return &boundedStruct{c, n}
}

func isConstant(i interpreter.InterpretableV2) bool {
	_, ok := i.(interpreter.InterpretableConst)
	return ok
}

// A boundedConstructor is a list with n elements, or a map with n keys and values.
type boundedConstructor struct {
	interpreter.InterpretableConstructor
	n int
}

// Eval implements interpreter.Interpretable.
func (c *boundedConstructor) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (c *boundedConstructor) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if l := limitsIn(frame); l != nil {
		if c.Type() == types.ListType {
			l.TakeList(c.n)
		} else {
			l.TakeMap(c.n / 2)
		}
		l.stop()
	}
	return c.InterpretableConstructor.Exec(frame)
}

// A boundedStruct is a struct with n fields. An Object has no way to ask for its fields, so what
// it takes as JSON is counted while it is made.
type boundedStruct struct {
	interpreter.InterpretableConstructor
	n int
}

// Eval implements interpreter.Interpretable.
func (s *boundedStruct) Eval(vars interpreter.Activation) ref.Val {
	return s.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (s *boundedStruct) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	l := limitsIn(frame)
	if l == nil {
		return s.InterpretableConstructor.Exec(frame)
	}
	around := l.fields
	l.fields = 0
	l.TakeMap(s.n)
	l.stop()
	v := s.InterpretableConstructor.Exec(frame)
	if object, ok := v.(*dynamic.ObjectVal); ok {
		if l.objects == nil {
			l.objects = make(map[*dynamic.ObjectVal]int)
		}
		l.objects[object] = mapBytes + l.fields
	}
	l.fields = around
	return v
}

// A boundedField is the value of a field of a struct.
type boundedField struct{ interpreter.InterpretableV2 }

// Eval implements interpreter.Interpretable.
func (f *boundedField) Eval(vars interpreter.Activation) ref.Val {
	return f.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (f *boundedField) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := f.InterpretableV2.Exec(frame)
	if l := limitsIn(frame); l != nil && !types.IsUnknownOrError(v) {
		l.fields = min(l.fields+l.Decoded(v), BytesMax+1)
	}
	return v
}

// decodedBytes is the memory of a value that is converted for a patch: of a structpb.Value, or of
// an interface and what merging remembers of it.
const decodedBytes = 192

// Decoded returns how many bytes a value takes when it is converted for a patch. Beyond BytesMax,
// it stops counting.
func (l *Limits) Decoded(v ref.Val) (bytes int) {
	switch v := v.(type) {
	case *dynamic.ObjectVal:
		return l.objects[v]
	case *view.Object:
		return decodedText(v.JSON().JSON())
	case *view.List:
		return decodedText(v.JSON().JSON())
	case traits.Mapper:
		if v.Type() != types.MapType { // it cannot be converted, and may be in itself, as a policy's variables
			return decodedBytes
		}
		bytes = mapBytes
		for it := v.Iterator(); it.HasNext() == types.True && bytes <= BytesMax; {
			key := it.Next()
			member, _ := v.Find(key)
			bytes += entryBytes + l.Decoded(key) + l.Decoded(member)
		}
		return bytes
	case traits.Lister:
		bytes = decodedBytes
		for it := v.Iterator(); it.HasNext() == types.True && bytes <= BytesMax; {
			bytes += l.Decoded(it.Next())
		}
		return bytes
	}
	return decodedBytes + 2*lengthOf(v)
}

func decodedText(json string) int {
	return 2*len(json) + decodedBytes*(1+strings.Count(json, ",")+strings.Count(json, "{")+strings.Count(json, "["))
}

func limitsIn(vars interpreter.Activation) *Limits {
	found, _ := vars.ResolveName(LimitsName)
	l, _ := found.(*Limits)
	return l
}
