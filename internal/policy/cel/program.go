package cel

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"

	"github.com/fastadmit/fastadmit/admission"
)

// A program is an expression for cel-go's interpreter. Planning one takes as long as parsing
// and checking the expression, and each has a table of all functions of its environment, which
// takes 40 KB. An expression with a closure needs its program only when the closure gives up.
type program struct {
	plan func() (cel.Program, error)
	once sync.Once
	made cel.Program
	err  error

	env     *cel.Env // for explanations, as those below
	ast     *cel.Ast
	version admission.Version
}

// make plans the program unless it was planned before.
func (p *program) make() error {
	p.once.Do(func() { p.made, p.err = p.plan() })
	return p.err
}

// Eval evaluates the program as cel.Program does.
func (p *program) Eval(input any) (ref.Val, *cel.EvalDetails, error) {
	if err := p.make(); err != nil {
		return nil, nil, err
	}
	return p.made.Eval(input)
}
