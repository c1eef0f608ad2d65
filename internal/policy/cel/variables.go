package cel

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// variables is the CEL variable of that name: the variables of a policy, each evaluated
// when it is first used. As a value it behaves like k8s.io/apiserver
// pkg/cel/lazy.MapValue.
type variables struct {
	of     *Evaluation
	values []ref.Val // of the variables, in their order; nil until a variable is evaluated
	cost   int64     // of the variables that were evaluated since it was set to 0
	made   int       // bytes that the expressions of these variables made, for runShared
	used   uint64    // the places of the variables that were used, for runShared; without those beyond variablesSharedMax
}

// Find implements traits.Mapper.
func (v *variables) Find(key ref.Val) (ref.Val, bool) {
	escaped, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(escaped), true
	}
	name, _ := apiservercel.Unescape(string(escaped)) // "" if it is not the name of a variable
	for i := range v.of.compiler.variables {
		if x := &v.of.compiler.variables[i]; x.name == name {
			return v.value(i, x), true
		}
	}
	return nil, false
}

func (v *variables) value(i int, x *variable) ref.Val {
	n := len(v.of.compiler.variables)
	v.values = slices.Grow(v.values[:0], n)[:n]
	v.used |= 1 << i
	switch v.values[i] {
	case nil:
		v.values[i] = underway
		v.values[i] = v.evaluate(x)
	case underway:
		return types.NewErr("composited variable %q uses itself", x.name) // if it replaced another one of its name
	}
	return v.values[i]
}

// underway is the value of a variable while it is evaluated.
var underway ref.Val = new(types.Err)

// evaluate does what variableAccessor.Callback does upstream.
func (v *variables) evaluate(x *variable) ref.Val {
	if x.Err != nil {
		return types.NewErr("composited variable %q fails to compile: %v", x.name, x.Err)
	}
	checks, before, used, made := v.of.limits.Checks, v.of.limits.Bytes(), v.used, v.made
	value, cost, ok, err := v.of.run(x.Expression)
	v.of.limits.Checks, v.used, v.made = checks, used, made+v.of.limits.Bytes()-before
	if !ok {
		return types.NewErr("unable to calculate cost of variable %q", x.name)
	}
	if v.cost += cost; v.cost < 0 {
		v.cost = math.MaxInt64
	}
	if err != nil {
		return types.NewErr("composited variable %q fails to evaluate: %v", x.name, message(err))
	}
	return value
}

// Get implements traits.Indexer.
func (v *variables) Get(key ref.Val) ref.Val {
	if value, found := v.Find(key); found {
		return value
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

// Contains implements traits.Container.
func (v *variables) Contains(key ref.Val) ref.Val {
	value, found := v.Find(key)
	if value != nil && types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(found)
}

// Size implements traits.Sizer.
func (v *variables) Size() ref.Val { return types.Int(len(v.of.compiler.variables)) }

// Iterator implements traits.Iterable: over the values, as upstream. Only expressions like
// dyn(variables).map(v, v) get here.
func (v *variables) Iterator() traits.Iterator { return &variablesIterator{of: v} }

type variablesIterator struct {
	view.IteratorVal
	of   *variables
	next int
}

// HasNext implements traits.Iterator.
func (it *variablesIterator) HasNext() ref.Val {
	return types.Bool(it.next < len(it.of.of.compiler.variables))
}

// Next implements traits.Iterator.
func (it *variablesIterator) Next() ref.Val {
	name := it.of.of.compiler.variables[it.next].name
	it.next++
	return it.of.Get(types.String(name))
}

// ConvertToNative implements ref.Val.
func (v *variables) ConvertToNative(typeDesc reflect.Type) (any, error) {
	return nil, fmt.Errorf("disallowed conversion from %q to %q", variablesTypeName, typeDesc.Name())
}

var variablesType = types.NewObjectType(variablesTypeName, traits.IndexerType|traits.FieldTesterType|traits.IterableType)

// ConvertToType implements ref.Val.
func (v *variables) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case variablesType:
		return v
	case types.TypeType:
		return variablesType
	}
	return types.NewErr("disallowed conversion from %q to %q", variablesTypeName, t.TypeName())
}

// Equal implements ref.Val.
func (v *variables) Equal(other ref.Val) ref.Val {
	same, ok := other.(*variables)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(v == same)
}

// Type implements ref.Val.
func (v *variables) Type() ref.Type { return variablesType }

// Value implements ref.Val.
func (v *variables) Value() any { return types.NoSuchOverloadErr() }
