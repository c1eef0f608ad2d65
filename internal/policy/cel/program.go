package cel

import (
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
)

// A program is an expression for cel-go's interpreter. Each program of cel-go has a table of
// all functions of its environment, which takes 40 KB. An expression with a closure needs its
// program only when the closure gives up. So the program is dropped, and made again when it
// is first needed.
type program struct {
	plan func() (cel.Program, error)
	once sync.Once
	made cel.Program
	err  error
}

// newProgram returns the program that plan makes. It fails if plan does.
func newProgram(plan func() (cel.Program, error)) (*program, error) {
	p := &program{plan: plan}
	made, err := plan()
	if err != nil {
		return nil, err
	}
	p.made = made
	return p, nil
}

// drop forgets the program until it is needed. It must not be in use yet.
func (p *program) drop() { p.made = nil }

// Eval evaluates the program as cel.Program does.
func (p *program) Eval(input any) (ref.Val, *cel.EvalDetails, error) {
	p.once.Do(func() {
		if p.made == nil {
			p.made, p.err = p.plan()
		}
	})
	if p.err != nil {
		return nil, nil, p.err
	}
	return p.made.Eval(input)
}
