package cel

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
)

// A shared identifies expressions that are equal: they have the same text, and the variables
// that they use have the same names and equal expressions. On one review, they have the same
// value, cost and error.
type shared struct {
	id   uint64      // never used again
	many atomic.Bool // whether several expressions are equal, or one is evaluated several times
	// usesNamespace is true if the expression, or a variable that it uses, uses namespaceObject, which match
	// conditions cannot see.
	usesNamespace bool
}

// interned has the shared of all expressions that can have one, by their text and variables. It
// holds only those of policies that exist.
var interned struct {
	sync.Mutex
	all  map[string]weak.Pointer[shared]
	last uint64
}

func intern(key string, usesNamespace bool) *shared {
	interned.Lock()
	defer interned.Unlock()
	if s := interned.all[key].Value(); s != nil {
		s.many.Store(true)
		return s
	}
	if interned.all == nil {
		interned.all = make(map[string]weak.Pointer[shared])
	}
	interned.last++
	s := &shared{id: interned.last, usesNamespace: usesNamespace}
	interned.all[key] = weak.Make(s)
	runtime.AddCleanup(s, forget, key)
	return s
}

// forget removes a shared that no expression has any more.
func forget(key string) {
	interned.Lock()
	defer interned.Unlock()
	if interned.all[key].Value() == nil {
		delete(interned.all, key)
	}
}

// variablesSharedMax is the maximum number of variables of a policy whose expressions are shared: the bits
// of a word. Policies have some ten variables.
const variablesSharedMax = 64

// share finds the expressions that are equal to a compiled one. It does nothing if the value may
// depend on more than the review: on a parameter, on what the API server answers, on the time, or on
// the variables of the policy as a map. Nor are values shared whose memory depends on the evaluation
// (those of mutations).
func (c *Compiler) share(e *Expression, d Declarations, checked *ast.AST) {
	if d.PatchTypes || len(c.variables) > variablesSharedMax {
		return
	}
	maps, usesNamespace, known := 0, false, true // maps is how often the variable variables is used other than to select
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(x ast.Expr) {
		switch x.Kind() {
		case ast.IdentKind:
			switch name := strings.TrimPrefix(x.AsIdent(), "."); {
			case name == "variables":
				maps++
			case name == "namespaceObject":
				usesNamespace = true
			case name == "params", name == resourceName && d.Kyverno, strings.HasPrefix(name, "authorizer"):
				known = false
			}
		case ast.CallKind:
			known = known && x.AsCall().FunctionName() != timeNow
		case ast.SelectKind:
			if s := x.AsSelect(); s.Operand().AsIdent() == "variables" && !s.IsTestOnly() { // "" if it is no identifier
				maps--
				known = c.use(e, s.FieldName()) && known
			}
		}
	}))
	if maps != 0 || !known {
		return
	}
	var key strings.Builder
	fmt.Fprintf(&key, "%v %v %q", c.Version, c.InterpreterOnly, e.Text)
	for _, i := range e.uses {
		fmt.Fprintf(&key, " %d", c.variables[i].shared.id)
		usesNamespace = usesNamespace || c.variables[i].shared.usesNamespace
	}
	e.shared = intern(key.String(), usesNamespace)
	if d.Params {
		e.shared.many.Store(true) // it may be evaluated for many parameters
	}
}

// use adds a variable of the policy to those that e uses. It returns false if the variable is not shared.
func (c *Compiler) use(e *Expression, escaped string) bool {
	name, _ := apiservercel.Unescape(escaped) // "" if it is not the name of a variable
	i := slices.IndexFunc(c.variables, func(v variable) bool { return v.name == name })
	if i < 0 || c.variables[i].shared == nil {
		return false
	}
	if !slices.Contains(e.uses, uint8(i)) {
		e.uses = append(e.uses, uint8(i))
	}
	return true
}

// A remembered is the result of an expression for one review. It does not depend on what is left
// of the budget.
type remembered struct {
	value ref.Val
	err   error
	cost  int64
	made  int    // bytes that its evaluation made, without those of variables
	used  uint64 // the places in Expression.uses of the variables that the evaluation used
}

// rememberedMax is how many results the memory of an Input may have room for when it is kept for another
// review: some 400 KB. A library of 1,000 policies has some 1,500 expressions that are shared.
const rememberedMax = 4096

// shares reports whether the result of x can be remembered.
func (e *Evaluation) shares(x *Expression) bool {
	return x.shared != nil && x.shared.many.Load() && !e.compiler.redefines && (!x.shared.usesNamespace || !e.HidesNamespace)
}

// runShared returns what an equal expression had, otherwise it evaluates the expression.
func (e *Evaluation) runShared(x *Expression) (value ref.Val, cost int64, ok bool, err error) {
	if found, ok := e.remembered[x.shared]; ok && e.repeats(x, &found) {
		return found.value, found.cost, true, found.err
	}
	v, before := &e.variables, e.limits.Bytes()
	used, made := v.used, v.made
	v.used, v.made = 0, 0
	value, cost, ok, err = e.compute(x)
	if ok && e.isFinal(err) {
		r := remembered{value: value, err: err, cost: cost, made: e.limits.Bytes() - before - v.made}
		for place, i := range x.uses {
			r.used |= v.used >> i & 1 << place
		}
		e.remember(x.shared, r)
	}
	v.used, v.made = v.used|used, v.made+made
	return value, cost, ok, err
}

// isFinal reports whether an evaluation with this error ends in the same way if it is repeated: it
// was not interrupted, and it needed so little memory that this does not matter.
func (e *Evaluation) isFinal(err error) bool {
	return e.limits.IsSmall() && e.review.Err() == nil && (err == nil || e.ctx.Err() == nil)
}

// remember keeps a result until the object changes or the review is answered, if there is memory.
func (in *Input) remember(s *shared, r remembered) {
	if in.kept+r.made > calls.KeptMax {
		return
	}
	if in.remembered == nil {
		in.remembered = make(map[*shared]remembered)
	}
	in.kept += r.made
	in.remembered[s] = r
}

// forget removes all results.
func (in *Input) forget() {
	in.kept = 0
	if len(in.remembered) > rememberedMax {
		in.remembered = nil
	}
	clear(in.remembered)
}

// repeats does what an evaluation of x with this result would do to the state of the evaluation. It
// returns false if it cannot, because another evaluation may end otherwise.
func (e *Evaluation) repeats(x *Expression, r *remembered) bool {
	for place, i := range x.uses {
		if r.used>>place&1 != 0 {
			e.variables.value(int(i), &e.compiler.variables[i])
		}
	}
	return r.made == 0 || e.limits.Repeat(r.made)
}
