// Package calls has the functions of CEL's libraries that can take far more time or memory
// than they cost, with bounds, and what a call of a function costs. Both evaluators use it:
// cel-go's interpreter and the closures.
//
// cel-go counts the cost of a call after it, and does not interrupt it. A call that takes
// quadratic time, or whose result is longer than its arguments, can take minutes or
// gigabytes with what a user sends before it is stopped. Here:
//
//   - A call that costs more than an expression may is not made. The expression ends
//     with the cost and the error that it would have after the call.
//   - Loops over pairs of elements, and regular expressions, end with the context.
//   - Lists and maps are formatted in linear time; quantities with too many digits are
//     refused.
//   - The memory of each value that expressions make is charged before it is made. An
//     evaluation that exceeds BytesMax ends as if it had exceeded its budget of cost.
//
// Apart from that, results, errors and costs are upstream's.
package calls

import (
	"context"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// Limits are the limits of an evaluation besides its cost: time and memory. Only one
// goroutine at a time may use it.
type Limits struct {
	Context context.Context
	Review  *codec.Review // gives memory, and is refused if there is none
	// Checks counts the calls of IsInterrupted. It is 0 when an expression begins.
	Checks uint

	bytes, granted int // that were charged, and up to which nobody is asked
	exhausted      bool
	fields         int                        // the bytes as JSON of the fields of the struct that is made
	objects        map[*dynamic.ObjectVal]int // the bytes as JSON of those that were made

	elements uint        // that were looked at since the last look at the context
	work     *turns.Work // nil until the first look
}

// elementsMax is how many elements of lists are looked at before the context is: about 0.1 ms.
const elementsMax = 4096

// Look counts elements that an operator has looked at. Such an operator costs as much as any
// other step, but takes as long as many.
func (l *Limits) Look(elements uint) { l.elements += elements }

// IsInterrupted is called in loops. It looks at the context as often as
// cel.Program.ContextEval does, but without ctx.Done, which would need a timer.
func (l *Limits) IsInterrupted() bool {
	l.Checks++
	return (l.Checks%celconfig.CheckFrequency == 0 || l.elements > elementsMax) && l.isOver()
}

// isOver reports whether the context has ended. An evaluation that takes long waits here for
// its turn.
func (l *Limits) isOver() bool {
	l.elements = 0
	if l.work == nil {
		l.work = turns.Of(l.Context)
	}
	return l.work.Continue(l.Context) != nil
}

// Leave gives the turn of the evaluation back.
func (l *Limits) Leave() { l.work.Leave() }
