package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

const (
	// ExceptionKind is the kind of exceptions.
	ExceptionKind = "PolicyException"
	// ExceptionVersion is their apiVersion.
	ExceptionVersion = cluster.PolicyGroup + "/v1"

	// exceptedMax is how many policies, and how many plugins, an exception can name: as many plugins as there can be.
	exceptedMax = 128
	// exceptionReasonMax is the maximum length of the reason of an exception in bytes: that of the message of an Event.
	exceptionReasonMax = 1024
)

// An ExceptionDocument is a PolicyException.
type ExceptionDocument = documents.Object[ExceptionSpec]

// An ExceptionSpec says which policies and plugins an exception is for, for which requests, why, and until when.
type ExceptionSpec struct {
	// Policies are names of ValidatingAdmissionPolicies. Plugins are names of plugins.
	Policies []string `json:"policies,omitempty"`
	Plugins  []string `json:"plugins,omitempty"`
	// MatchConstraints and MatchConditions select requests, as those of a ValidatingAdmissionPolicy do. See
	// match.Matcher.ForExceptions for the selectors.
	MatchConstraints *admissionregistrationv1.MatchResources  `json:"matchConstraints"`
	MatchConditions  []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
	// Reason says why there is the exception.
	Reason string `json:"reason"`
	// ExpiresAt is when the exception ends, in RFC 3339. An exception without an end has NeverExpires instead.
	ExpiresAt    string `json:"expiresAt,omitempty"`
	NeverExpires bool   `json:"neverExpires,omitempty"`
}

// checkException sets the defaults of an exception and returns all errors in it, except errors in expressions.
func checkException(document *ExceptionDocument) field.ErrorList {
	spec, path := &document.Spec, field.NewPath("spec")
	errs := validation.ValidateObjectMeta(&document.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, checkExcepted(spec.Policies, path.Child("policies"), func(name string) []string {
		return validation.NameIsDNSSubdomain(name, false)
	})...)
	errs = append(errs, checkExcepted(spec.Plugins, path.Child("plugins"), func(name string) []string {
		if codec.IsAnnotationKey(name) {
			return nil
		}
		return []string{"want the name of a plugin, such as PodSecurity"}
	})...)
	if len(spec.Policies) == 0 && len(spec.Plugins) == 0 {
		const want = "policies or plugins must contain at least one item"
		errs = append(errs, field.Required(path.Child("policies"), want), field.Required(path.Child("plugins"), want))
	}
	if constraints := path.Child("matchConstraints"); spec.MatchConstraints == nil {
		errs = append(errs, field.Required(constraints, ""))
	} else {
		errs = append(errs, checkMatchResources(spec.MatchConstraints, constraints)...)
		if len(spec.MatchConstraints.ResourceRules) == 0 {
			errs = append(errs, field.Required(constraints.Child("resourceRules"), ""))
		}
	}
	errs = append(errs, match.ValidateConditions(spec.MatchConditions, path.Child("matchConditions"))...)
	if strings.TrimSpace(spec.Reason) == "" {
		errs = append(errs, field.Required(path.Child("reason"), "say why there is the exception"))
	} else if len(spec.Reason) > exceptionReasonMax {
		errs = append(errs, field.TooLong(path.Child("reason"), "", exceptionReasonMax))
	}
	return append(errs, spec.checkEnd(path)...)
}

// checkExcepted checks the names of policies or plugins. wrong returns what is wrong with a name.
func checkExcepted(names []string, path *field.Path, wrong func(name string) []string) (errs field.ErrorList) {
	if len(names) > exceptedMax {
		return field.ErrorList{field.TooMany(path, len(names), exceptedMax)}
	}
	for i, name := range names {
		for _, message := range wrong(name) {
			errs = append(errs, field.Invalid(path.Index(i), name, message))
		}
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
	}
	return errs
}

func (spec *ExceptionSpec) checkEnd(path *field.Path) field.ErrorList {
	at := path.Child("expiresAt")
	switch _, err := time.Parse(time.RFC3339, spec.ExpiresAt); {
	case spec.ExpiresAt == "" && !spec.NeverExpires:
		return field.ErrorList{field.Required(at, "want a time such as 2027-01-31T00:00:00Z; an exception without an end needs neverExpires: true")}
	case spec.ExpiresAt != "" && spec.NeverExpires:
		return field.ErrorList{field.Forbidden(at, "neverExpires is true")}
	case spec.ExpiresAt != "" && err != nil:
		return field.ErrorList{field.Invalid(at, spec.ExpiresAt, "want a time in RFC 3339, such as 2027-01-31T00:00:00Z")}
	}
	return nil
}

// An exception is a compiled PolicyException. Several goroutines may use it at the same time.
type exception struct {
	name              string
	reason            string
	policies, plugins []string
	expires           time.Time // zero for never

	matcher    *Matcher
	compiler   *cel.Compiler // nil without conditions
	conditions []*cel.Expression

	lifted atomic.Int64 // how often it lifted something
	failed atomic.Bool  // it could not be evaluated once, and the log has the error
}

// compileException returns the exception, or all errors in it.
func compileException(document *ExceptionDocument, setup *admission.Setup) (*exception, []error) {
	errs := documents.Named(ExceptionKind, document.Name, checkException(document))
	if errs != nil {
		return nil, errs
	}
	spec := &document.Spec
	e := &exception{name: document.Name, reason: spec.Reason, policies: spec.Policies, plugins: spec.Plugins}
	e.expires, _ = time.Parse(time.RFC3339, spec.ExpiresAt) // which is valid, or empty
	matcher, err := NewMatcher(spec.MatchConstraints)
	if err == nil && len(spec.MatchConditions) > 0 {
		declared := cel.Declarations{Authorizer: true}
		c := NewSpecCompiler(nil, declared, setup)
		e.conditions, e.compiler = c.Conditions(spec.MatchConditions, declared), c.Compiler
		err = c.Err()
	}
	if err != nil {
		return nil, []error{fmt.Errorf("%s %q: %w", ExceptionKind, document.Name, err)}
	}
	matcher.selectors = matcher.selectors.ForExceptions()
	e.matcher = matcher
	return e, nil
}

// hasEnded reports whether the exception has expired.
func (e *exception) hasEnded(now time.Time) bool {
	return !e.expires.IsZero() && !now.Before(e.expires)
}

// errReview is the error of an exception that cannot be evaluated because of the review.
var errReview = errors.New("the review cannot be read")

// matches reports whether the exception is for the review.
func (e *exception) matches(d *Dispatch) (bool, error) {
	matches, err := e.matcher.Matches(d.Ctx, &d.Request, d)
	if matches && err == nil && len(e.conditions) > 0 {
		matches, err = e.compiler.Matches(e.conditions, d.Input, false)
	}
	if err == nil && d.Err() != nil {
		err = errReview
	}
	return matches && err == nil, err
}
