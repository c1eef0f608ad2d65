package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
)

// Phase is the part of admission an endpoint serves.
type Phase uint8

// The phases, in their order (Kubernetes, "Admission Control Phases").
const (
	Mutate Phase = iota
	Validate
)

func (p Phase) String() string {
	if p == Mutate {
		return "mutate"
	}
	return "validate"
}

// Outcome is how one plugin's run, or a whole review, ended.
type Outcome uint8

// The outcomes.
const (
	OutcomeAllowed  Outcome = iota
	OutcomePatched          // allowed, and the object changed
	OutcomeDenied           // by decision
	OutcomeErrored          // the plugin could not decide, or broke its contract
	OutcomePanicked         // the plugin panicked
	outcomeCount
)

// Outcomes lists all outcomes.
func Outcomes() []Outcome {
	all := make([]Outcome, outcomeCount)
	for i := range all {
		all[i] = Outcome(i)
	}
	return all
}

func (o Outcome) String() string {
	return [...]string{"allowed", "patched", "denied", "errored", "panicked"}[o]
}

// Run is what an observer learns of one plugin's run.
type Run struct {
	Plugin  int // the plugin's place in the chain
	Phase   Phase
	Outcome Outcome
	Elapsed time.Duration
	Err     error // why, for OutcomeErrored and OutcomePanicked
}

// Chain runs enabled plugins in the order of the table. It may be used by many
// goroutines at once.
type Chain struct {
	entries []entry
	// Observe, if set before the first use, is called after each run of a
	// plugin.
	Observe func(Run)
}

type entry struct {
	plugin  *Plugin
	handler Handler
}

// NewChain makes the enabled plugins of the table ready. Config returns a
// plugin's own configuration file, nil for none. The error joins what is wrong
// with each plugin.
func NewChain(table []Plugin, enabled func(name string) bool, config func(name string) ([]byte, error)) (*Chain, error) {
	c := new(Chain)
	var errs []error
	for i := range table {
		plugin := &table[i]
		if !enabled(plugin.Name) {
			continue
		}
		handler, err := newHandler(plugin, config)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot enable plugin %s: %w", plugin.Name, err))
			continue
		}
		c.entries = append(c.entries, entry{plugin, handler})
	}
	return c, errors.Join(errs...)
}

func newHandler(plugin *Plugin, config func(name string) ([]byte, error)) (Handler, error) {
	content, err := config(plugin.Name)
	if err != nil {
		return Handler{}, err
	}
	handler, err := plugin.New(content)
	if err != nil {
		return Handler{}, err
	}
	if (handler.Admit != nil) != plugin.Mutates || (handler.Validate != nil) != plugin.Validates {
		return Handler{}, errors.New("its handler does not do what its line in the table says")
	}
	return handler, nil
}

// Plugins returns the plugins of the chain in order.
func (c *Chain) Plugins() []*Plugin {
	plugins := make([]*Plugin, len(c.entries))
	for i := range c.entries {
		plugins[i] = c.entries[i].plugin
	}
	return plugins
}

// Place returns the place of the plugin of that name in the chain, -1 if it is
// not in there.
func (c *Chain) Place(name string) int {
	for i := range c.entries {
		if c.entries[i].plugin.Name == name {
			return i
		}
	}
	return -1
}

// All stands for every plugin of the chain in Review's argument only.
const All = -1

// Review runs the phase's plugins whose rules match, or only the one at that
// place, and fills review.Response. The first denial or failure ends it. The
// error is a fault of the review itself, which nobody can decide on.
func (c *Chain) Review(ctx context.Context, review *codec.Review, phase Phase, only int) (Outcome, error) {
	attributes := AttributesOf(review)
	outcome := OutcomeAllowed
	for i := range c.entries {
		e := &c.entries[i]
		if only != All && only != i || !e.handles(phase, &attributes) {
			continue
		}
		denial, ran, err := c.run(ctx, review, phase, i)
		if err != nil {
			return ran, err
		}
		if ran == OutcomePatched {
			outcome = ran
		}
		if denial != nil {
			review.Response.Allowed = false
			review.Response.Status = *denial
			return ran, nil
		}
	}
	if err := review.Err(); err != nil {
		return OutcomeErrored, err
	}
	review.Response.Allowed = true
	if outcome == OutcomePatched {
		review.Response.Patch = diff.AppendPatch(review.Response.Patch[:0], &review.Object)
		if len(review.Response.Patch) == 0 {
			outcome = OutcomeAllowed
		}
	}
	return outcome, nil
}

func (e *entry) handles(phase Phase, attributes *Attributes) bool {
	if phase == Mutate && e.handler.Admit == nil || phase == Validate && e.handler.Validate == nil {
		return false
	}
	for i := range e.plugin.Rules {
		if e.plugin.Rules[i].Matches(attributes) {
			return true
		}
	}
	return false
}

// run runs the plugin at place i and tells the observer. The denial is the
// plugin's decision or what its failure amounts to; the error is a fault of
// the review.
func (c *Chain) run(ctx context.Context, review *codec.Review, phase Phase, i int) (*codec.Status, Outcome, error) {
	e := &c.entries[i]
	start := time.Now()
	changes := review.Object.Changes()
	result, outcome := e.call(ctx, review, phase)
	fault := review.Err()
	_, misuse := errors.AsType[*codec.EditError](fault)
	switch {
	case outcome == OutcomePanicked:
	case misuse:
		result, outcome = Errored(fault), OutcomeErrored
	case fault != nil:
		return nil, OutcomeErrored, fault
	case result.Err != nil:
		outcome = OutcomeErrored
	case result.Denial != nil:
		outcome = OutcomeDenied
	case review.Object.Changes() != changes:
		outcome = OutcomePatched
		if err := mayPatch(review, phase); err != nil {
			result, outcome = Errored(err), OutcomeErrored
		}
	}
	if c.Observe != nil {
		c.Observe(Run{Plugin: i, Phase: phase, Outcome: outcome, Elapsed: time.Since(start), Err: result.Err})
	}
	if outcome == OutcomeErrored || outcome == OutcomePanicked {
		return e.failure(outcome, result.Err), outcome, nil
	}
	return result.Denial, outcome, nil
}

// mayPatch says why an object must not have been changed. kube-apiserver fails
// the request on such a patch, even under failurePolicy Ignore.
func mayPatch(review *codec.Review, phase Phase) error {
	switch op := review.Operation(); {
	case phase == Validate:
		return errors.New("it changed the object while validating")
	case op != codec.Create && op != codec.Update:
		return fmt.Errorf("it changed the object of a %s request", op)
	}
	return nil
}

// PanicError is a panic of a plugin.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// call calls the plugin and turns a panic into an outcome.
func (e *entry) call(ctx context.Context, review *codec.Review, phase Phase) (result Result, outcome Outcome) {
	defer func() {
		if v := recover(); v != nil {
			result = Errored(&PanicError{Value: v, Stack: debug.Stack()})
			outcome = OutcomePanicked
		}
	}()
	if err := ctx.Err(); err != nil {
		return Errored(fmt.Errorf("not started: %w", err)), OutcomeAllowed
	}
	if phase == Mutate {
		return e.handler.Admit(ctx, review), OutcomeAllowed
	}
	return e.handler.Validate(ctx, review), OutcomeAllowed
}

// failure is what the user of a request sees when a plugin failed: a closed
// door. What a panic said stays in the log.
func (e *entry) failure(outcome Outcome, err error) *codec.Status {
	reason := "it panicked, see the log of fastadmit"
	if outcome == OutcomeErrored {
		reason = err.Error()
	}
	return &codec.Status{
		Code:    http.StatusInternalServerError,
		Reason:  "InternalError",
		Message: "admission plugin " + e.plugin.Name + " failed: " + reason,
	}
}
