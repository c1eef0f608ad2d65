package validatingadmissionpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// A dispatch evaluates the policies for one review (upstream's dispatcher.go).
type dispatch struct {
	policy.Dispatch
	evaluated bool        // a policy was, so that it could deny
	collected annotations // of the current policy
	last      evaluation

	failures    []validationFailure // for the audit annotation
	failuresMax int                 // their maximum number

	denied string // the message of the first denial, "" for none
	reason metav1.StatusReason
}

// An evaluation is the outcome of a policy with a parameter, nil for none. It counts for all
// bindings of the policy that have the parameter. cost is what each of them would cost.
type evaluation struct {
	policy *boundPolicy
	param  *policy.Param
	outcome
	cost int64
}

type boundPolicy = policy.Policy[*validator]

var dispatches = sync.Pool{New: func() any { return new(dispatch) }}

// release returns d to the pool. The caller must not use it after that.
func (d *dispatch) release() {
	d.End()
	*d = dispatch{}
	dispatches.Put(d)
}

// dispatch evaluates a policy. If result is not nil, it is the result of the review, and the
// other policies are not evaluated.
func (d *dispatch) dispatch(c *policy.Candidate[*boundPolicy]) *admission.Result {
	result := policy.Evaluate(c, &d.Dispatch, d)
	d.collected.publish(c.Of.Name, d.Review)
	d.collected = annotations{}
	return result
}

// Evaluate implements policy.Handles.
func (d *dispatch) Evaluate(p *boundPolicy, b *policy.Binding, params []*policy.Param) *admission.Result {
	if result := d.Prepare(); result != nil {
		return result
	}
	cost, begun := int64(0), p.Begin()
	defer func() { p.CountEvaluation(cost, begun) }()
	for _, param := range params { // users may create any number of them
		if err := d.Ctx.Err(); err != nil {
			return new(admission.Errored(err))
		}
		o := d.evaluate(p, param)
		cost += o.cost
		d.evaluated = d.evaluated || !o.unwanted
		if d.Explains() {
			d.explain(p, b, param, o)
		}
		if o.ignored != "" {
			d.note(p, b, admission.Violation{Message: o.ignored, Ignored: true}, "", 0, nil)
		}
		for i := range o.decisions {
			switch found := &o.decisions[i]; {
			case found.denies:
				if !o.whole {
					d.note(p, b, admission.Violation{Message: found.message, Denies: slices.Contains(b.Actions, admissionregistrationv1.Deny)},
						"validations", i, p.Evaluator.validations[i].Expression)
				}
				d.act(p, b, i, found)
			case found.message != "" && o.whole:
				p.CountError(b, policy.ActionAllow, found.message)
				d.note(p, b, admission.Violation{Message: found.message, Ignored: true}, "", 0, nil)
			case found.message != "":
				p.CountError(b, policy.ActionAllow, found.message)
				d.note(p, b, admission.Violation{Message: found.message, Ignored: true}, "validations", i, p.Evaluator.validations[i].Expression)
			}
		}
		for i, a := range o.audited {
			if err := d.Input.Retain(len(a.value)); err != nil {
				a.err = err.Error()
			}
			switch {
			case a.err == "":
				d.collected.add(a)
			case d.Excepted(p.Name) == "":
				p.CountError(b, policy.ActionDeny, a.err)
				d.note(p, b, admission.Violation{Message: a.err, Denies: true}, "auditAnnotations", i, p.Evaluator.annotations[i].Expression)
				d.deny(p, b, &decision{message: a.err})
			}
		}
	}
	return nil
}

// evaluate returns the outcome of a policy with a parameter. Other bindings of the policy may
// have had it just before.
func (d *dispatch) evaluate(p *boundPolicy, param *policy.Param) *evaluation {
	if d.last.policy != p || d.last.param != param {
		before := d.Input.Spent
		d.SetParam(param)
		d.last = evaluation{policy: p, param: param, outcome: p.Evaluator.validate(d.Input)}
		d.last.cost = d.Input.Spent - before
	}
	return &d.last
}

// Misconfigured implements policy.Handles: it denies.
func (d *dispatch) Misconfigured(p *boundPolicy, b *policy.Binding, err error) {
	if d.Excepted(p.Name) == "" {
		d.deny(p, b, &decision{message: err.Error()})
	}
}

// Ignored implements policy.Handles.
func (d *dispatch) Ignored(p *boundPolicy, b *policy.Binding, err error) {
	d.note(p, b, admission.Violation{Message: err.Error(), Ignored: true}, "", 0, nil)
}

// note notes a violation of the i-th rule of a list for reports, if somebody asks for them. x is nil for an error of the
// whole policy. v.Denies says that the binding denies it.
func (d *dispatch) note(p *boundPolicy, b *policy.Binding, v admission.Violation, list string, i int, x *cel.Expression) {
	note := admission.NoteViolation(d.Ctx)
	if note == nil {
		return
	}
	v.Plugin, v.Policy, v.Message = policy.ValidatingKind.Name, p.Name, strings.Clone(v.Message)
	if b != nil {
		v.Binding = b.Name
	}
	if x != nil {
		v.Rule, v.Paths = fmt.Sprintf("%s[%d]", list, i), p.Evaluator.compiler.Paths(x)
	}
	v.Denies = v.Denies && d.Excepted(p.Name) == "" && !p.OnlyWarns(d.Ctx)
	note(v)
}

// act takes the actions of a binding for the i-th violation of a policy, unless there is an exception.
func (d *dispatch) act(p *boundPolicy, b *policy.Binding, i int, found *decision) {
	if d.Excepted(p.Name) != "" {
		return
	}
	for _, action := range b.Actions {
		if found.reason == "" {
			p.CountError(b, string(action), found.message)
		} else {
			p.CountViolation(b, action)
		}
		switch action {
		case admissionregistrationv1.Deny:
			d.deny(p, b, found)
		case admissionregistrationv1.Audit:
			if len(d.failures) < d.failuresMax {
				d.failures = append(d.failures, validationFailure{
					Message: found.message, Policy: p.Name, Binding: b.Name, ExpressionIndex: i, ValidationActions: b.Actions,
				})
			}
		case admissionregistrationv1.Warn:
			d.Response.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", p.Name, b.Name, found.message))
		}
	}
}

// deny records a denial. The first one becomes the result.
func (d *dispatch) deny(p *boundPolicy, b *policy.Binding, found *decision) {
	if d.denied != "" {
		return
	}
	message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", p.Name, found.message)
	if b != nil {
		message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", p.Name, b.Name, found.message)
	}
	if p.OnlyWarns(d.Ctx) {
		d.Response.Warn(message)
		return
	}
	d.denied, d.reason = message, found.reason
}

// result returns the result after all policies were evaluated.
func (d *dispatch) result() admission.Result {
	if len(d.failures) > 0 {
		if value, err := json.Marshal(d.failures); err == nil { // always: they have only strings and numbers
			_ = d.Response.Annotate(validationFailureKey, string(value)) // the key is valid
		}
	}
	switch {
	case d.denied != "":
	case d.evaluated:
		return admission.Allowed()
	default:
		return admission.Unchecked("none of the policies for it is evaluated: bindings do not select it, match conditions are not true, " +
			"parameters are missing, or an error is ignored")
	}
	result := admission.Denied(admission.Forbidden(d.Review, errors.New(d.denied)))
	status := result.Denial
	status.Reason = string(d.reason)
	if d.reason == "" {
		status.Reason = string(metav1.StatusReasonInvalid)
	}
	status.Code = codes[metav1.StatusReason(status.Reason)]
	status.Details.Causes = append(status.Details.Causes, codec.Cause{Message: d.denied})
	return result
}

// codes are the codes for the reasons of validations (upstream's reasonToCode).
var codes = map[metav1.StatusReason]int32{
	metav1.StatusReasonUnauthorized: 401, metav1.StatusReasonForbidden: 403,
	metav1.StatusReasonRequestEntityTooLarge: 413, metav1.StatusReasonInvalid: 422,
}

// validationFailureKey is the key of the audit annotation that is called
// validation.policy.admission.k8s.io/validation_failure in-tree. kube-apiserver puts the
// name of the webhook and a slash before the keys of a webhook.
const validationFailureKey = "validation_failure"

// failuresMax is the maximum number of violations in its value (upstream's maxValidationFailures).
// Before v1.37, the value has only the first one.
const failuresMax = 50

// validationFailure is an element of its value.
type validationFailure struct {
	Message           string                                     `json:"message"`
	Policy            string                                     `json:"policy"`
	Binding           string                                     `json:"binding"`
	ExpressionIndex   int                                        `json:"expressionIndex"`
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

// annotations are the values of a policy's audit annotations for all bindings, in the order
// of evaluation.
type annotations struct {
	keys   []string
	values map[string][]string
}

func (a *annotations) add(found audited) {
	if found.value == "" {
		return
	}
	if a.values == nil {
		a.values = make(map[string][]string)
	}
	if a.values[found.key] == nil {
		a.keys = append(a.keys, found.key)
	}
	if !slices.Contains(a.values[found.key], found.value) {
		a.values[found.key] = append(a.values[found.key], found.value)
	}
}

func (a *annotations) publish(name string, review *codec.Review) {
	for _, key := range a.keys {
		_ = review.Response.Annotate(policy.AnnotationKey(name, key), strings.Join(a.values[key], ", ")) // the key is valid
	}
}
