package webhook

import (
	"errors"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers/internal/slots"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

const (
	// callsMax is the maximum number of concurrent calls of a webhook. Each has a connection
	// with about 80 KiB of buffers, so these take 16 MiB; a webhook that answers within 10 ms
	// gets 20,000 calls per second. Further calls wait until their timeout.
	callsMax = 200

	// tenantCallsMax is the maximum number of concurrent calls for one tenant: a quarter. A tenant
	// whose objects make the webhook slow leaves 150 calls to the others. A webhook that answers
	// within 10 ms gets 5,000 calls per second of one tenant.
	tenantCallsMax = callsMax / 4
)

// A Webhook is a compiled webhook of a configuration. Several goroutines may use it at the
// same time.
type Webhook struct {
	// Name and Configuration are the names of the webhook and of its configuration, for
	// messages and audit annotations.
	Name, Configuration string
	// Ignores is true if failurePolicy is Ignore: a failed call has no effect.
	Ignores bool
	// Reinvokes is true if reinvocationPolicy is IfNeeded: the webhook is called again if
	// the object changes after its call.
	Reinvokes bool

	source     *Source
	invalid    error // why it must not be called; nil if it is valid
	rules      bool
	matcher    *policy.Matcher
	compiler   *cel.Compiler
	conditions []*cel.Expression
	version    string // of the AdmissionReviews that are sent
	timeout    time.Duration
	config     admissionregistrationv1.WebhookClientConfig
	metrics    *webhookMetrics
	calls      *slots.Slots
	circuit    circuit

	mu     sync.Mutex
	client *rest.RESTClient // nil until the first call
}

// newWebhook compiles a webhook with defaults. If there is an error, the result can still be
// used: invalid selectors select everything.
func newWebhook(s *Source, configuration string, w *admissionregistrationv1.MutatingWebhook, path *field.Path) (*Webhook, error) {
	made := &Webhook{
		Name: w.Name, Configuration: configuration, source: s, config: w.ClientConfig,
		Ignores:   *w.FailurePolicy == admissionregistrationv1.Ignore,
		Reinvokes: *w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy,
		rules:     len(w.Rules) > 0,
		timeout:   time.Duration(*w.TimeoutSeconds) * time.Second,
		calls:     slots.New(callsMax, tenantCallsMax),
	}
	if made.Ignores {
		made.circuit.settings = s.config.Circuit
	}
	for _, version := range w.AdmissionReviewVersions {
		if version == "v1" || version == "v1beta1" {
			made.version = version
			break
		}
	}
	constraints := &admissionregistrationv1.MatchResources{
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, MatchPolicy: w.MatchPolicy,
	}
	for _, rule := range w.Rules {
		constraints.ResourceRules = append(constraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	var errs []error
	var err error
	if made.matcher, err = policy.NewMatcher(constraints); err != nil {
		errs = append(errs, err)
		made.matcher = made.matcher.WithoutSelectors()
	}
	made.compiler = cel.NewCompiler(false)
	made.compiler.InterpreterOnly, made.compiler.Version = s.interpretCEL, s.version
	policy.CountConditionErrors(made.compiler, s.metrics.plugin, s.metrics.set)
	for i, condition := range w.MatchConditions {
		compiled := made.compiler.Compile(condition.Expression, cel.Declarations{Authorizer: true}, cel.Bool)
		if compiled.Err != nil {
			errs = append(errs, field.Invalid(path.Child("matchConditions").Index(i).Child("expression"), condition.Expression, compiled.Err.Error()))
		}
		compiled.Name = condition.Name
		made.conditions = append(made.conditions, compiled)
	}
	return made, errors.Join(errs...)
}

// wantVersion tells users what to do if fastadmit gets an object in a version that a webhook does
// not accept.
const wantVersion = "a version that the webhook names; let the rules of fastadmit's webhook name the versions that its webhooks do"

// Matcher implements policy.Selecting. A webhook without rules selects nothing.
func (w *Webhook) Matcher() *policy.Matcher {
	if !w.rules {
		return nil
	}
	return w.matcher
}

// Matches reports whether the webhook of a candidate must be called for the review (k8s.io/apiserver
// pkg/admission/plugin/webhook/generic ShouldCallHook). If result is not nil, it is the
// result of the plugin. err is a *CallError: the webhook matches but cannot be called, or
// its rules want another API version of the object.
func (d *Dispatch) Matches(c *policy.Candidate[*Webhook]) (matches bool, result *admission.Result, err error) {
	w := c.Of
	matches, err = c.Matches(&d.Dispatch)
	if _, refused := errors.AsType[*admission.RefusalError](err); refused {
		return false, new(admission.Denied(err)), nil
	}
	if other, ok := errors.AsType[*policy.VersionError](err); ok {
		return true, nil, &CallError{Webhook: w.Name, Reason: errors.New(other.Says(wantVersion))}
	}
	if err != nil {
		return false, new(admission.Errored(err)), nil
	}
	if matches && w.invalid != nil {
		return true, nil, &CallError{Webhook: w.Name, Reason: w.invalid}
	}
	if !matches || len(w.conditions) == 0 {
		return matches, nil, nil
	}
	matches, err = w.compiler.Matches(w.conditions, d.input(), w.Ignores)
	if err != nil {
		r := d.Resource()
		return false, new(admission.Denied(apierrors.NewForbidden(schema.GroupResource{Group: r.Group, Resource: r.Resource}, d.Name(), err))), nil
	}
	if !matches {
		w.metrics.excluded(d.Operation())
	}
	return matches, nil, nil
}

// clientOf returns the client. The first call creates it; after an error, the next call tries
// again.
func (w *Webhook) clientOf() (*rest.RESTClient, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client != nil {
		return w.client, nil
	}
	client, err := newClient(&w.config, w.source.credentials, w.source.services)
	if err != nil {
		return nil, err
	}
	w.client = client
	return client, nil
}
