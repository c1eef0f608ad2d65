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
//   - Functions that read all parts of a value do not read more than a million: a value may have the same
//     part very often, or be a part of itself.
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
	Review  *codec.Review // borrows memory, and is refused if the server has none
	// Kept is how many bytes are kept of other evaluations. They count as memory of the review, but not
	// as made by this evaluation.
	Kept int
	// Checks counts the calls of IsInterrupted. It is 0 when an expression begins.
	Checks uint

	bytes, granted int // the bytes charged, and how many may be charged before the review needs more memory
	exhausted      bool
	fields         int                        // the bytes of JSON of the fields of the struct under construction
	objects        map[*dynamic.ObjectVal]int // the bytes of JSON of each finished struct

	elements uint        // the elements compared since the context was last checked
	work     *turns.Work // nil until the context is first checked
}

// elementsMax is how many elements of lists an operator compares before the context is
// checked: about 0.1 ms.
const elementsMax = 4096

// Look counts elements that an operator has compared. cel-go charges such an operator for one
// step, although it takes the time of many.
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

// Leave ends the turn of the evaluation.
func (l *Limits) Leave() { l.work.Leave() }
