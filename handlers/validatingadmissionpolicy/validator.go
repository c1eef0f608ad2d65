package validatingadmissionpolicy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// A validator has the compiled expressions of a policy (upstream's validator.go).
type validator struct {
	compiler        *cel.Compiler
	ignoresErrors   bool
	hasMessages     bool // some validation has a messageExpression
	matchConditions []*cel.Expression
	validations     []validation
	annotations     []annotation
}

type validation struct {
	*cel.Expression
	messageExpression *cel.Expression // nil for none
	message           string
	reason            metav1.StatusReason
}

type annotation struct {
	*cel.Expression
	key string
}

// newValidator compiles a policy. If kyverno is true, its expressions have Kyverno's functions.
// The error joins the errors of all expressions.
func newValidator(p *admissionregistrationv1.ValidatingAdmissionPolicy, kyverno bool, setup *admission.Setup) (*validator, error) {
	spec := &p.Spec
	all := cel.Declarations{Params: spec.ParamKind != nil, Authorizer: true, Kyverno: kyverno}
	c := policy.NewSpecCompiler(spec.Variables, all, setup)
	policy.CountConditionErrors(c.Compiler, policy.ValidatingKind.Name, setup.Metrics)
	v := &validator{
		compiler:        c.Compiler,
		ignoresErrors:   spec.FailurePolicy != nil && *spec.FailurePolicy == admissionregistrationv1.Ignore,
		matchConditions: c.Conditions(spec.MatchConditions, all),
	}
	for i, given := range spec.Validations {
		compiled := validation{
			Expression: c.Expression(given.Expression, all, cel.Bool, "validations[%d].expression", i),
			message:    given.Message, reason: metav1.StatusReasonInvalid,
		}
		if given.Reason != nil {
			compiled.reason = *given.Reason
		}
		if given.MessageExpression != "" {
			v.hasMessages = true
			ofMessages := all
			ofMessages.Authorizer = false
			compiled.messageExpression = c.Expression(given.MessageExpression, ofMessages, cel.String,
				"validations[%d].messageExpression", i)
		}
		v.validations = append(v.validations, compiled)
	}
	for i, given := range spec.AuditAnnotations {
		v.annotations = append(v.annotations, annotation{
			c.Expression(given.ValueExpression, all, cel.StringOrNull, "auditAnnotations[%d].valueExpression", i), given.Key,
		})
	}
	return v, c.Err()
}

// A decision is the result of a validation for a request.
type decision struct {
	denies  bool
	message string
	reason  metav1.StatusReason // empty for an error
}

// audited is the result of an audit annotation: a value, an error, or neither.
type audited struct{ key, value, err string }

// An outcome is the result of a policy for a request.
type outcome struct {
	decisions []decision // of the validations, or one if whole
	audited   []audited
	whole     bool   // the policy cannot be evaluated
	unwanted  bool   // a match condition is not true
	ignored   string // the error of a match condition, if failurePolicy is Ignore
}

// failed returns the outcome of a policy that cannot be evaluated.
func (v *validator) failed(err error) outcome {
	return outcome{decisions: []decision{{denies: !v.ignoresErrors, message: err.Error()}}, whole: true}
}

// validate behaves as upstream's Validate. The outcome has no views of the review.
func (v *validator) validate(in *cel.Input) outcome {
	defer func() { in.HidesAuthorizer = false }()
	if matches, err := v.compiler.Matches(v.matchConditions, in, v.ignoresErrors); err != nil {
		return v.failed(err)
	} else if !matches {
		o := outcome{unwanted: true}
		if in.IgnoredCondition != nil {
			o.ignored = in.IgnoredCondition.Error()
		}
		return o
	}
	in.HidesNamespace = false
	var few [8]evaluated // for more, append allocates
	values, remaining, err := v.evaluateValidations(in, few[:0])
	if err != nil {
		return v.failed(err)
	}
	in.HidesAuthorizer = true
	messages, messagesErr := v.evaluateMessages(in, remaining)
	var o outcome
	for i := range v.validations {
		var message evaluated
		if messages != nil {
			message = messages[i]
		}
		if found := v.decide(&v.validations[i], values[i], message, messagesErr); found.message != "" {
			if o.decisions == nil {
				o.decisions = make([]decision, len(v.validations))
			}
			o.decisions[i] = found
		}
	}
	if len(v.annotations) == 0 {
		return o
	}
	annotations := v.compiler.Begin(in, celconfig.RuntimeCELCostBudget)
	defer annotations.End()
	for i := range v.annotations {
		value, err, fatal := annotations.Evaluate(v.annotations[i].Expression)
		if fatal != nil {
			return v.failed(fatal)
		}
		o.audited = append(o.audited, v.audit(&v.annotations[i], value, err))
	}
	return o
}

// evaluated is the result of an expression.
type evaluated struct {
	value ref.Val
	err   error
}

// evaluateValidations appends the results of the validations' expressions.
func (v *validator) evaluateValidations(in *cel.Input, all []evaluated) (_ []evaluated, remaining int64, err error) {
	evaluation := v.compiler.Begin(in, celconfig.RuntimeCELCostBudget)
	defer evaluation.End()
	for i := range v.validations {
		value, err, fatal := evaluation.Evaluate(v.validations[i].Expression)
		if fatal != nil {
			return nil, 0, fatal
		}
		all = append(all, evaluated{value, err})
	}
	return all, evaluation.Remaining, nil
}

// evaluateMessages evaluates all messageExpressions, even of validations that hold: if one
// exceeds the budget, all fail. It returns nil if there are none.
func (v *validator) evaluateMessages(in *cel.Input, budget int64) (all []evaluated, err error) {
	if !v.hasMessages {
		return nil, nil
	}
	all = make([]evaluated, len(v.validations))
	evaluation := v.compiler.Begin(in, budget)
	defer evaluation.End()
	for i := range v.validations {
		x := v.validations[i].messageExpression
		if x == nil {
			continue
		}
		if all[i].value, all[i].err, err = evaluation.Evaluate(x); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (v *validator) decide(x *validation, got, message evaluated, messagesErr error) decision {
	switch {
	case got.err != nil:
		return decision{denies: !v.ignoresErrors, message: got.err.Error()}
	case errors.Is(messagesErr, apiservercel.ErrInternal), errors.Is(messagesErr, apiservercel.ErrOutOfBudget):
		return decision{denies: !v.ignoresErrors, message: fmt.Sprintf("failed messageExpression: %s", messagesErr)}
	case got.value != types.True:
		return decision{denies: true, message: x.text(message), reason: x.reason}
	}
	return decision{}
}

// text returns the message of a violated validation: the result of the messageExpression if
// it is usable, otherwise the message, otherwise the expression.
func (x *validation) text(message evaluated) string {
	if s, ok := message.value.(types.String); ok && message.err == nil {
		text := strings.TrimSpace(string(s))
		if text != "" && len(text) <= celconfig.MaxEvaluatedMessageExpressionSizeBytes && !strings.Contains(text, "\n") {
			return strings.Clone(text)
		}
	}
	if text := strings.TrimSpace(x.message); text != "" {
		return text
	}
	return "failed expression: " + strings.TrimSpace(x.Text)
}

// auditAnnotationBytesMax is the maximum length of the value of an audit annotation.
const auditAnnotationBytesMax = 10 << 10

func (v *validator) audit(x *annotation, value ref.Val, err error) audited {
	if err != nil {
		if v.ignoresErrors {
			return audited{}
		}
		return audited{key: x.key, err: err.Error()}
	}
	switch value := value.(type) {
	case types.Null:
		return audited{}
	case types.String:
		text := strings.TrimSpace(string(value))
		return audited{key: x.key, value: strings.Clone(text[:min(len(text), auditAnnotationBytesMax)])}
	}
	return audited{key: x.key, err: fmt.Sprintf("valueExpression '%v' resulted in unsupported return type: %v. "+
		"Return type must be either string or null.", x.Text, value.Type())}
}
