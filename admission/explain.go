package admission

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/fastadmit/fastadmit/codec"
)

// An Explanation says what a plugin did with a review, and why. Its texts are no views of the review.
// The values of secrets are not in it, and long values are cut. The JSON names are those of
// "fastadmit review --explain -o json".
type Explanation struct {
	// Plugin is the name of the plugin. Phase is mutate or validate.
	Plugin string `json:"plugin"`
	Phase  string `json:"phase"`
	// Round is 1, or 2 if the plugin was called again because a later plugin changed the object.
	Round int `json:"round"`
	// Asked is true if the plugin was called. Why names the rule or selector that decided that, with
	// the values that it compared.
	Asked bool   `json:"asked"`
	Why   string `json:"why"`
	// Outcome is what the plugin decided: allowed, patched, denied, warned, audited, errored or panicked.
	// It is empty if the plugin was not asked.
	Outcome string `json:"outcome,omitempty"`
	// Message is the message of the denial, the error, or the reason why the plugin did not check the object.
	Message string `json:"message,omitempty"`
	// Exception is the name of the PolicyException that lifted a denial or warnings of the plugin.
	Exception string `json:"exception,omitempty"`
	// Changes are the fields that the plugin wrote. If Undone is true, the changes were undone,
	// because the plugin failed or denied and the request went on.
	Changes []Change `json:"changes,omitempty"`
	Undone  bool     `json:"undone,omitempty"`
	// Policies are the policies of the plugin in their order. MorePolicies is the number of further
	// ones that are not listed.
	Policies     []PolicyExplanation `json:"policies,omitempty"`
	MorePolicies int                 `json:"morePolicies,omitempty"`
	// Webhooks are the webhooks that the plugin calls, in their order. MoreWebhooks is the number of
	// further ones that are not listed.
	Webhooks     []*WebhookExplanation `json:"webhooks,omitempty"`
	MoreWebhooks int                   `json:"moreWebhooks,omitempty"`
	// Standards are the Pod Security Standards that the plugin compared the object with.
	Standards []StandardExplanation `json:"standards,omitempty"`
}

// A Change is a field that a plugin wrote.
type Change struct {
	// Operation is add, remove or replace.
	Operation string `json:"operation"`
	// Path is the JSON Pointer of the field. The index of a removed element is the one before the
	// change, that of an added element the one after it.
	Path string `json:"path"`
	// Old and New are the values as JSON. A value is empty if there is none, and cut if it is long.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Policy is the policy that wrote the field, if the plugin evaluates policies. Webhook is the webhook
	// that did, if the plugin calls webhooks.
	Policy  string `json:"policy,omitempty"`
	Webhook string `json:"webhook,omitempty"`
}

// A PolicyExplanation says what a policy decided for one of its bindings and parameters.
type PolicyExplanation struct {
	// Policy is the name of the policy. Binding and Param are the names of the binding and, with its
	// namespace, the parameter; they are empty if the policy was left out before one was looked up.
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
	Param   string `json:"param,omitempty"`
	// Pass is 2 if a mutating policy was evaluated again because others changed the object.
	Pass int `json:"pass,omitempty"`
	// Asked is true if the policy was evaluated. Why names the rule, selector or match condition that
	// decided that, with the values that it compared.
	Asked bool   `json:"asked"`
	Why   string `json:"why"`
	// Outcome is allowed, patched, denied, warned, audited or errored; empty if the policy was not asked.
	Outcome string `json:"outcome,omitempty"`
	// Message is the message of the denial or the error. Messages are those of a validating policy, one for each
	// validation that is false or fails.
	Message  string   `json:"message,omitempty"`
	Messages []string `json:"-"`
	// Exception is the name of the PolicyException that lifted what the policy says against the object.
	Exception string `json:"exception,omitempty"`
	// Expressions are the expressions that decided: match conditions, validations and mutations.
	Expressions []ExpressionExplanation `json:"expressions,omitempty"`
}

// A WebhookExplanation says what a webhook of a configuration answered.
type WebhookExplanation struct {
	// Webhook is the name of the webhook, Configuration that of its configuration.
	Webhook       string `json:"webhook"`
	Configuration string `json:"configuration"`
	// Pass is 2 if the webhook was called again because others changed the object.
	Pass int `json:"pass,omitempty"`
	// Asked is true if the review concerns the webhook. Why names the rule, selector or match condition
	// that decided that, with the values that it compared.
	Asked bool   `json:"asked"`
	Why   string `json:"why"`
	// Outcome is allowed, patched, denied or errored; empty if the webhook was not asked.
	Outcome string `json:"outcome,omitempty"`
	// Message is the message of the denial or the error.
	Message string `json:"message,omitempty"`
	// Expressions are the match conditions.
	Expressions []ExpressionExplanation `json:"expressions,omitempty"`
}

// A StandardExplanation says how an object compares with a Pod Security Standard.
type StandardExplanation struct {
	// Mode is enforce, audit or warn. Standard is the level and the version, as in restricted:latest.
	Mode     string `json:"mode"`
	Standard string `json:"standard"`
	// From says which label of which namespace, or which default, the level and the version are from.
	From string `json:"from"`
	// Asked is true if the object was compared. Why says why it was not.
	Asked bool   `json:"asked"`
	Why   string `json:"why,omitempty"`
	// Outcome is allowed, denied, warned or audited; empty if the object was not compared.
	Outcome string `json:"outcome,omitempty"`
	// FailedChecks are the checks that the object fails, with the fields that fail them.
	FailedChecks []string `json:"failedChecks,omitempty"`
}

// An ExpressionExplanation has the value of a CEL expression and, if it is not what the policy wants, the values of the
// sub-expressions that made it so.
type ExpressionExplanation struct {
	// Field is the field of the policy, such as validations[0].expression.
	Field string `json:"field"`
	// Expression is the text. Value is its value as JSON, or the error.
	Expression string `json:"expression"`
	Value      string `json:"value"`
	// Values are the values of sub-expressions, each after the one that contains it.
	Values []SubExpression `json:"values,omitempty"`
	// MoreValues is the number of further sub-expressions that are not listed.
	MoreValues int `json:"moreValues,omitempty"`
}

// A SubExpression is a part of an expression with its value.
type SubExpression struct {
	// Depth is 0 for a part of the expression itself, 1 for a part of that, and so on.
	Depth int `json:"depth"`
	// Expression is the text of the part. Value is its value as JSON, or the error. Long ones are cut.
	Expression string `json:"expression"`
	Value      string `json:"value"`
	// Of is the expression of a variable, if the part is one.
	Of string `json:"of,omitempty"`
}

const (
	// explainedBytesMax is the maximum length of a value in an Explanation in bytes: what is read at a glance.
	explainedBytesMax = 300
	// ExplainedMax is the maximum number of changes, policies and webhooks in an Explanation: more than anybody reads.
	ExplainedMax = 1000
	// HiddenValue is shown in place of a value that may have the data of a Secret.
	HiddenValue = "(hidden: it may be secret)"
)

// ShownValue returns a value as an Explanation has it. It is a copy.
func ShownValue(text string) string {
	return strings.Clone(codec.TruncateString(text, explainedBytesMax))
}

// AddPolicy adds what a policy decided, unless there are too many.
func (x *Explanation) AddPolicy(p PolicyExplanation) {
	if len(x.Policies) >= ExplainedMax {
		x.MorePolicies++
		return
	}
	x.Policies = append(x.Policies, p)
}

// AddWebhook adds a webhook, unless there are too many. The result may be completed until the call of the plugin ends.
func (x *Explanation) AddWebhook(w WebhookExplanation) *WebhookExplanation {
	if len(x.Webhooks) >= ExplainedMax {
		x.MoreWebhooks++
	} else {
		x.Webhooks = append(x.Webhooks, &w)
	}
	return &w
}

// An Explainer is a Selector that says why it selects a review or not.
type Explainer interface {
	// Explain names the rule, selector or condition that decides, with the values that it compares.
	Explain(ctx context.Context, review *codec.Review, attributes Attributes) string
}

// explained is the Explanation of the call that runs, and the object before it.
type explained struct {
	*Explanation
	before []byte
}

// explain runs a plugin as execute does, and passes the Explanation to Chain.Explain.
func (r *round) explain(e *entry) (outcome Outcome, ran bool, err error) {
	if e.hasNone(r.phase) {
		return OutcomeAllowed, false, nil
	}
	x := &Explanation{Plugin: e.plugin.Name, Phase: r.phase.String(), Round: 1}
	if IsReinvocation(r.ctx) {
		x.Round = 2
	}
	attributes := r.attributes // a copy, so that r stays on the stack
	x.Asked, x.Why = ExplainRules(e.plugin.Rules, &attributes)
	if selector, ok := e.Settings.Selector.(Explainer); ok && x.Asked {
		x.Why += "; " + selector.Explain(r.ctx, r.review, r.attributes)
	}
	r.explained = &explained{x, r.review.Object.Root().AppendJSON(nil)}
	outcome, ran, err = r.execute(e)
	r.explained = nil
	if x.Asked = ran; x.Outcome == "" && err != nil {
		x.Outcome, x.Message = OutcomeErrored.String(), strings.Clone(err.Error())
	}
	r.chain.Explain(x)
	if err != nil || outcome == OutcomeDenied {
		r.explainRest(x)
	}
	return outcome, ran, err
}

// explainRest passes on that the plugins after the one that ended the review are not asked.
func (r *round) explainRest(ended *Explanation) {
	after := false
	for i := range r.chain.entries {
		e := &r.chain.entries[i]
		if after && !e.hasNone(r.phase) && (ended.Round == 1 || e.Settings.reinvokes()) {
			r.chain.Explain(&Explanation{
				Plugin: e.plugin.Name, Phase: ended.Phase, Round: ended.Round, Why: "the review ended before: " + ended.Plugin + " " + ended.Outcome,
			})
		}
		after = after || e.plugin.Name == ended.Plugin
	}
}

// note adds the result of the call.
func (x *explained) note(r *round, outcome Outcome, result *Result) {
	x.Outcome = outcome.String()
	switch {
	case result.Denial != nil:
		x.Message = strings.Clone(result.Denial.Message)
	case result.Err != nil:
		x.Message = (&FailureError{Plugin: x.Plugin, Err: result.Err}).reason()
	default:
		x.Message = result.Unchecked
	}
	if r.review.Err() == nil {
		x.addChanges(Changes(r.review, x.before, r.review.Object.Root().AppendJSON(nil)))
	}
	x.Undone = len(x.Changes) > 0 && outcome != OutcomePatched && outcome != OutcomeAllowed
}

// ExplainRules reports whether one of the rules selects a review with these attributes, and says which
// one, or which do not.
func ExplainRules(rules []Rule, a *Attributes) (matches bool, why string) {
	for i := range rules {
		if rules[i].Matches(a) {
			return true, fmt.Sprintf("its rule %s selects %s", &rules[i], a)
		}
	}
	return false, fmt.Sprintf("none of its rules selects %s; they are: %s", a, ListRules(rules))
}

// ListRules lists the first rules, and says how many more there are.
func ListRules[R any, P interface {
	*R
	fmt.Stringer
}](rules []R) string {
	const shown = 3
	var texts []string
	for i := range rules[:min(len(rules), shown)] {
		texts = append(texts, P(&rules[i]).String())
	}
	if more := len(rules) - shown; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, "; ")
}

// String returns the rule for messages, as in "CREATE,UPDATE of apps/v1 deployments".
func (r *Rule) String() string {
	var operations []string
	for _, operation := range r.Operations {
		operations = append(operations, string(operation))
	}
	version := strings.Join(r.Versions, ",")
	if len(r.Groups) != 1 || r.Groups[0] != "" {
		var groups []string
		for _, group := range r.Groups {
			groups = append(groups, cmp.Or(group, "core"))
		}
		version = strings.Join(groups, ",") + "/" + version
	}
	text := fmt.Sprintf("%s of %s %s", strings.Join(operations, ","), version, strings.Join(r.Resources, ","))
	if r.Scope != "" && r.Scope != "*" {
		text += " (" + string(r.Scope) + ")"
	}
	return text
}

// String returns the attributes for messages, as in "CREATE of apps/v1 deployments".
func (a *Attributes) String() string {
	r := Rule{
		Operations: []codec.Operation{a.Operation}, Groups: []string{a.Resource.Group}, Versions: []string{a.Resource.Version},
		Resources: []string{a.Resource.Resource},
	}
	if a.SubResource != "" {
		r.Resources[0] += "/" + a.SubResource
	}
	return r.String()
}

// hasNone reports whether the plugin does not take part in a phase.
func (e *entry) hasNone(phase Phase) bool {
	return phase == Mutate && e.handler.Admit == nil || phase == Validate && e.handler.Validate == nil
}

// addChanges adds the changes of a call. If the plugin has said which policy made one, it is not added again.
func (x *Explanation) addChanges(all []Change) {
	if len(x.Changes) == 0 {
		x.Changes = all
	}
}
