package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// Settings of a plugin correspond to the fields of a webhook in a webhook
// configuration. The zero Settings are the defaults.
type Settings struct {
	// Selector selects reviews among those that the plugin's rules select. Nil
	// selects all.
	Selector Selector
	// FailurePolicy decides what happens if the plugin fails, panics or takes too
	// long. Fail, the default, fails the call of the webhook. Ignore continues as if
	// the plugin had not been called. A denial is not a failure.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Timeout is how long the plugin may take. With 0, it may take as long as the
	// call.
	Timeout time.Duration
	// ReinvocationPolicy decides whether the plugin is called a second time if a
	// later plugin has changed the object: Never, the default, or IfNeeded.
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType
	// Enforcement decides what a denial does. The first entry whose Selector matches
	// decides. If none matches, the request is denied.
	Enforcement []Enforcement
	// WorkloadPods decides what a workload is told if the plugin would deny its Pods.
	WorkloadPods WorkloadPods
	// PodTemplatePaths are the paths of the templates of Pods in custom workloads. They are the same for all
	// plugins of a chain.
	PodTemplatePaths workload.Paths
}

// A Selector selects reviews. Several goroutines call it at the same time. An error is a
// failure of the plugin, unless it is a *RefusalError.
type Selector interface {
	Matches(ctx context.Context, review *codec.Review, attributes Attributes) (bool, error)
}

// A RefusalError is the error of a Selector that cannot be evaluated because of the
// review, for example because its namespace does not exist. The review is denied
// with it, whatever the failure policy, as kube-apiserver does if it cannot
// evaluate the selectors of a webhook configuration (k8s.io/apiserver
// pkg/admission/plugin/webhook/generic ShouldCallHook).
type RefusalError struct{ Err error }

func (e *RefusalError) Error() string { return e.Err.Error() }

func (e *RefusalError) Unwrap() error { return e.Err }

func isRefusal(err error) bool {
	_, ok := errors.AsType[*RefusalError](err)
	return ok
}

// Enforcement is the effect of a denial for the reviews that it selects.
type Enforcement struct {
	Action   Action
	Selector Selector // nil for all
}

// Action is the effect of a plugin's denial.
type Action string

// The actions. With warn and audit, the changes that the plugin made to the object
// before it denied are undone.
const (
	ActionDeny  Action = "deny"
	ActionWarn  Action = "warn"  // allowed, with the message as a warning
	ActionAudit Action = "audit" // allowed, with the message as an audit annotation
)

func (s *Settings) ignores() bool { return s.FailurePolicy == admissionregistrationv1.Ignore }

func (s *Settings) reinvokes() bool {
	return s.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
}

// restores reports whether the changes of the plugin may have to be undone.
func (s *Settings) restores() bool { return s.ignores() || len(s.Enforcement) > 0 }

// action returns the effect of a denial of the review.
func (s *Settings) action(ctx context.Context, review *codec.Review, attributes Attributes) (Action, error) {
	for i := range s.Enforcement {
		e := &s.Enforcement[i]
		if e.Selector == nil {
			return e.Action, nil
		}
		if matches, err := e.Selector.Matches(ctx, review, attributes); err != nil || matches {
			return e.Action, err
		}
	}
	return ActionDeny, nil
}

// check returns all errors in the settings.
func (s *Settings) check() error {
	var errs []error
	refuse := func(field string, got, want any) {
		errs = append(errs, fmt.Errorf("%s: got %v, want %v", field, got, want))
	}
	if p := s.FailurePolicy; p != "" && p != admissionregistrationv1.Fail && p != admissionregistrationv1.Ignore {
		refuse("failurePolicy", p, "Fail or Ignore")
	}
	if p := s.ReinvocationPolicy; p != "" && p != admissionregistrationv1.NeverReinvocationPolicy &&
		p != admissionregistrationv1.IfNeededReinvocationPolicy {
		refuse("reinvocationPolicy", p, "Never or IfNeeded")
	}
	if s.Timeout < 0 {
		refuse("timeout", s.Timeout, "a positive duration, or 0 for the time of the call")
	}
	for i, e := range s.Enforcement {
		if !slices.Contains([]Action{ActionDeny, ActionWarn, ActionAudit}, e.Action) {
			refuse(fmt.Sprintf("enforcement[%d].action", i), e.Action, "deny, warn or audit")
		}
	}
	return errors.Join(errs...)
}
