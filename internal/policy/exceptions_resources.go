package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/customresource"
	"github.com/fastadmit/fastadmit/internal/customresource/status"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

// conditionNames is true for an exception if all policies and plugins that it names are evaluated.
const conditionNames = "NamesKnown"

// exceptionResources are the PolicyExceptions that are custom resources.
type exceptionResources struct {
	objects *cluster.Objects[*cluster.JSON]
	setup   *admission.Setup
	of      *Exceptions

	mu       sync.Mutex
	compiled map[string]*compiledException // by name
}

// compiledException is an exception with the results of compiling it.
type compiledException struct {
	object    *cluster.JSON
	exception *exception // nil if it is invalid: it lifts nothing
	err       error      // why it is
	writer    status.Writer
	dueSince  time.Time // since when the status must be written, zero if it need not
}

// refresh compiles the exceptions that changed, and returns all valid ones.
func (r *exceptionResources) refresh() (all []*exception, err error) {
	objects, err := r.objects.List("")
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := make(map[string]*compiledException, len(objects))
	for _, object := range objects {
		c := r.compiled[object.GetName()]
		if c != nil && customresource.IsSame(c.object, object) {
			c.object = object
		} else {
			c = r.compile(object)
		}
		known[object.GetName()] = c
		if c.exception != nil {
			all = append(all, c.exception)
		}
	}
	r.compiled = known
	return all, nil
}

func (r *exceptionResources) compile(object *cluster.JSON) *compiledException {
	c, document := &compiledException{object: object}, new(ExceptionDocument)
	if c.err = customresource.Decode(object, document); c.err == nil {
		var errs []error
		c.exception, errs = compileException(document, r.setup)
		c.err = errors.Join(errs...)
	}
	return c
}

// check returns the errors in an exception that somebody writes.
func (r *exceptionResources) check(content []byte) error {
	document := new(ExceptionDocument)
	if errs := documents.Decode(content, document); errs != nil {
		return errors.Join(errs...)
	}
	_, errs := compileException(document, r.setup)
	return errors.Join(errs...)
}

// writeStatus writes the status of exceptions whose status is another one. unanswered is how many requests before had no
// answer; see unansweredMax.
func (r *exceptionResources) writeStatus(ctx context.Context, all reports, unanswered int) {
	unknown := r.of.unknownByException()
	for _, name := range r.names() {
		if unanswered >= unansweredMax || ctx.Err() != nil {
			return
		}
		change, due := r.due(name, unknown[name], all, time.Now())
		if !due {
			continue
		}
		if isUnanswered(change.Write(ctx, r.objects)) {
			unanswered++
		} else {
			unanswered = 0
		}
	}
}

// names returns the names of the exceptions, sorted.
func (r *exceptionResources) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.compiled))
}

// due returns the change of the status of an exception. unknown are the names in it that nothing has.
func (r *exceptionResources) due(name string, unknown []string, all reports, now time.Time) (change status.Change, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.compiled[name]
	if c == nil {
		return change, false
	}
	s := &status.Status{ObservedGeneration: c.object.GetGeneration(), Conditions: []metav1.Condition{
		compiledCondition(c.object.GetGeneration(), c.err, nil),
	}}
	if c.err == nil {
		s.Conditions = append(s.Conditions, namesCondition(c.object.GetGeneration(), unknown))
	}
	change, due = c.writer.Due(c.object, s, false)
	return change, isTurn(&c.dueSince, due, all, now)
}

// namesCondition returns the condition whether everything that an exception names is evaluated.
func namesCondition(generation int64, unknown []string) metav1.Condition {
	if len(unknown) == 0 {
		return metav1.Condition{
			Type: conditionNames, Status: metav1.ConditionTrue, Reason: "Evaluated", Message: "all policies and plugins that it names are evaluated",
			ObservedGeneration: generation,
		}
	}
	return metav1.Condition{
		Type: conditionNames, Status: metav1.ConditionFalse, Reason: "NotEvaluated", ObservedGeneration: generation,
		Message: status.Message(fmt.Errorf("not evaluated: %s", strings.Join(unknown, ", "))),
	}
}

// unknownByException returns what each exception names and nothing has, as in: policy "p".
func (x *Exceptions) unknownByException() map[string][]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make(map[string][]string)
	for _, u := range x.unknown() {
		all[u.exception] = append(all[u.exception], fmt.Sprintf("%s %q", u.what, u.name))
	}
	return all
}
