package admission

import "context"

// A Violation is a rule of a policy that a review violates, for reports. It is no view of the review.
type Violation struct {
	// Plugin is the plugin that evaluates the policy. Binding is empty if the error is in the policy, and Policy if an ignored
	// error is none of a policy, such as that of a server that does not answer.
	Plugin, Policy, Binding string
	// Rule is the field of the policy that has the rule, such as validations[0].
	Rule string
	// Message is what the policy says against the object, without the names of policy and binding.
	Message string
	// Paths are the fields of the object that the expression of the rule names, such as spec.replicas. "[*]" stands
	// for each element of a list or a map.
	Paths []string
	// Denies is true if the request is denied because of the violation. The answer names the first one only, as
	// kube-apiserver does.
	Denies bool
	// Ignored is true if the policy could not be evaluated, and its failurePolicy is Ignore. Message is the error. Rule is
	// empty if the error is not about one.
	Ignored bool
}

type violationsKey struct{}

// WithViolations returns a context for Chain.Review in which plugins that evaluate policies call note for each violation.
func WithViolations(ctx context.Context, note func(Violation)) context.Context {
	return context.WithValue(ctx, violationsKey{}, note)
}

// NoteViolation returns the function that notes a violation, nil if nobody asks for them.
func NoteViolation(ctx context.Context) func(Violation) {
	note, _ := ctx.Value(violationsKey{}).(func(Violation))
	return note
}
