package cel

import (
	"sync"
	"sync/atomic"

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

	env     *cel.Env
	text    string
	version admission.Version
	ast     atomic.Pointer[cel.Ast]
}

func newProgram(env *cel.Env, text string, v admission.Version) *program {
	p := &program{env: env, text: text, version: v}
	p.plan = func() (cel.Program, error) {
		ast, err := p.checked()
		if err != nil {
			return nil, err
		}
		return env.Program(ast, optionsOf(env, ast, v)...)
	}
	return p
}

// checked returns the expression after parsing and checking. An expression with a closure, which takes a third of its
// memory, does not keep it: it is made again, once, when the interpreter, an explanation or a report needs it.
func (p *program) checked() (*cel.Ast, error) {
	if ast := p.ast.Load(); ast != nil {
		return ast, nil
	}
	ast, issues := p.env.Compile(p.text) // as before: an environment gets more variables, and no other ones
	if issues != nil {
		return nil, issues.Err()
	}
	p.ast.Store(ast)
	return ast, nil
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
