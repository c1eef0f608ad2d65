// Package registration creates the webhook configurations with which kube-apiserver calls
// fastadmit for the enabled plugins. They select only the requests that the plugins need,
// and are validated as in kube-apiserver.
package registration

import (
	"errors"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/internal/workload"
)

// Plugin is an enabled plugin with the part of its configuration that selects reviews.
type Plugin struct {
	*admission.Plugin
	// Criteria select the reviews that the plugin gets. They must be valid; see match.New.
	Criteria match.Criteria
	// FailurePolicy is Fail or Ignore. Empty means Fail.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// ChecksWorkloads is true if the plugin also validates workloads, by their Pods. PodTemplatePaths are the custom
	// ones.
	ChecksWorkloads  bool
	PodTemplatePaths workload.Paths
}

// Registration contains the webhook configurations of fastadmit.
type Registration struct {
	// Mutating and Validating are nil if no plugin needs them.
	Mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	Validating *admissionregistrationv1.ValidatingWebhookConfiguration
	// Notes are remarks for the operator, one or two sentences each.
	Notes []string
}

// New returns the webhook configurations for plugins. In each configuration, there is one
// webhook for the plugins with the failure policy Fail and one for those with Ignore.
// Plugins that do not mutate or validate are not behind webhooks of that kind.
//
// The rules of a webhook select exactly the requests that the rules and Criteria of at
// least one of its plugins select. fastadmit applies the selectors of each plugin itself.
// If all plugins of a webhook have the same selectors, the webhook also has them.
//
// path is the path of the options in the configuration file. The error joins everything
// that kube-apiserver would reject, with the paths of options and names of plugins. It has
// a method Errors() []error. It is also an error if there is nothing to register.
func New(plugins []Plugin, options *Options, path *field.Path) (*Registration, error) {
	errs := []error{options.Validate(path)}
	for i := range plugins {
		errs = append(errs, validatePlugin(&plugins[i]))
	}
	if err := join(errs...); err != nil {
		return nil, err
	}
	o := options.WithDefaults()
	r := &Registration{Notes: o.notes(plugins)}
	if mutating := o.webhooks(plugins, admission.Mutate); len(mutating) > 0 {
		r.Mutating = &admissionregistrationv1.MutatingWebhookConfiguration{
			TypeMeta: typeMeta("MutatingWebhookConfiguration"), ObjectMeta: o.objectMeta(),
		}
		for i := range mutating {
			r.Mutating.Webhooks = append(r.Mutating.Webhooks, asMutating(&mutating[i]))
		}
	}
	if validating := o.webhooks(plugins, admission.Validate); len(validating) > 0 {
		r.Validating = &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta: typeMeta("ValidatingWebhookConfiguration"), ObjectMeta: o.objectMeta(), Webhooks: validating,
		}
	}
	if r.Mutating == nil && r.Validating == nil {
		return nil, errors.New("no plugin handles what its configured rules select, so there is nothing to register")
	}
	return r, nil
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: kind}
}

// objectMeta returns the metadata of both configurations.
func (o *Options) objectMeta() metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}
	if o.Static {
		meta.Name = o.domain() + staticSuffix
	}
	return meta
}

// domain returns the suffix of the names of webhooks.
func (o *Options) domain() string { return strings.TrimSuffix(o.Name, staticSuffix) }

// webhooks returns the webhooks of the phase. All fields that both kinds of webhooks have
// are fields of a validating one.
func (o *Options) webhooks(plugins []Plugin, phase admission.Phase) (webhooks []admissionregistrationv1.ValidatingWebhook) {
	for _, policy := range [...]admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
		var behind []Plugin
		for _, p := range plugins {
			if p.takesPart(phase) && p.failurePolicy() == policy && len(p.atoms()) > 0 {
				behind = append(behind, p)
			}
		}
		if len(behind) > 0 {
			webhooks = append(webhooks, o.webhook(behind, phase, policy))
		}
	}
	return webhooks
}

func (p *Plugin) takesPart(phase admission.Phase) bool {
	return phase == admission.Mutate && p.Mutates || phase == admission.Validate && p.Validates
}

func (p *Plugin) failurePolicy() admissionregistrationv1.FailurePolicyType {
	if p.FailurePolicy == "" {
		return admissionregistrationv1.Fail
	}
	return p.FailurePolicy
}

// webhook returns the webhook for plugins. It sets all fields, even to kube-apiserver's
// defaults, so that the stored configuration equals the manifest.
func (o *Options) webhook(behind []Plugin, phase admission.Phase, policy admissionregistrationv1.FailurePolicyType) admissionregistrationv1.ValidatingWebhook {
	policyName := strings.ToLower(string(policy))
	objects := shared(behind, func(c *match.Criteria) *metav1.LabelSelector { return c.ObjectSelector })
	if phase == admission.Validate && slices.ContainsFunc(behind, func(p Plugin) bool { return p.ChecksWorkloads }) {
		objects = nil // it selects Pods, not workloads
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name:          webhookName(phase, policy, o.domain()),
		ClientConfig:  o.clientConfig("/" + phase.String() + "/" + policyName),
		Rules:         rules(behind, phase),
		FailurePolicy: &policy,
		MatchPolicy:   o.MatchPolicy,
		NamespaceSelector: both(o.namespaceSelector(),
			shared(behind, func(c *match.Criteria) *metav1.LabelSelector { return c.NamespaceSelector })),
		ObjectSelector:          both(o.ObjectSelector, objects),
		SideEffects:             sideEffects(behind),
		TimeoutSeconds:          o.TimeoutSeconds,
		AdmissionReviewVersions: o.AdmissionReviewVersions,
		MatchConditions:         o.MatchConditions,
	}
}

func webhookName(phase admission.Phase, policy admissionregistrationv1.FailurePolicyType, domain string) string {
	return phase.String() + "-" + strings.ToLower(string(policy)) + "." + domain
}

// asMutating adds the fields of mutating webhooks. Webhooks may be reinvoked, because
// plugins return the same result for an object that they changed (admission.Handler.Admit).
func asMutating(w *admissionregistrationv1.ValidatingWebhook) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
		NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
		TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions,
		ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy), MatchConditions: w.MatchConditions,
	}
}

// clientConfig returns the client configuration for one of fastadmit's paths. The path in
// the options comes first, then the path token.
func (o *Options) clientConfig(path string) admissionregistrationv1.WebhookClientConfig {
	c := *o.ClientConfig.DeepCopy()
	if o.PathToken != "" {
		path = "/" + o.PathToken + path
	}
	if c.Service != nil {
		if c.Service.Path != nil {
			path = strings.TrimSuffix(*c.Service.Path, "/") + path
		}
		c.Service.Path = &path
		return c
	}
	u, err := url.Parse(*c.URL)
	if err != nil {
		panic(err) // Validate parsed it
	}
	u = u.JoinPath(path)
	u.ForceQuery = false // from a "?" without a query
	c.URL = new(u.String())
	return c
}

// namespaceSelector excludes the namespaces of fastadmit and of the components that a
// cluster needs to recover: otherwise fastadmit could prevent its own restart.
func (o *Options) namespaceSelector() *metav1.LabelSelector {
	return both(o.NamespaceSelector, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: o.leftOut(),
	}}})
}

// leftOut returns the namespaces that are excluded in all webhooks.
func (o *Options) leftOut() []string {
	names := []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease}
	if o.Namespace != "" {
		names = append(names, o.Namespace)
	}
	if o.ClientConfig.Service != nil {
		names = append(names, o.ClientConfig.Service.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ExcludedNamespaces returns the namespaces for which no webhook is called, whatever their labels are.
func (o *Options) ExcludedNamespaces() []string { return o.WithDefaults().leftOut() }

// shared returns the selector that all plugins have, nil if they differ or there is none.
// fastadmit applies it to all of them, so kube-apiserver can apply it already.
func shared(plugins []Plugin, of func(*match.Criteria) *metav1.LabelSelector) *metav1.LabelSelector {
	first := of(&plugins[0].Criteria)
	for i := range plugins {
		if !reflect.DeepEqual(of(&plugins[i].Criteria), first) {
			return nil
		}
	}
	return first
}

// both returns a selector that matches if a and b do. Nil matches everything.
func both(a, b *metav1.LabelSelector) *metav1.LabelSelector {
	selector := new(metav1.LabelSelector)
	for _, s := range [...]*metav1.LabelSelector{a, b} {
		if s == nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
			value := s.MatchLabels[key]
			if other, taken := selector.MatchLabels[key]; taken && other != value {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value},
				})
				continue
			}
			if selector.MatchLabels == nil {
				selector.MatchLabels = make(map[string]string)
			}
			selector.MatchLabels[key] = value
		}
		selector.MatchExpressions = append(selector.MatchExpressions, s.MatchExpressions...)
	}
	return selector
}

// sideEffects returns the side effects of a webhook with these plugins.
func sideEffects(plugins []Plugin) *admissionregistrationv1.SideEffectClass {
	for _, p := range plugins {
		if p.SideEffects == admissionregistrationv1.SideEffectClassNoneOnDryRun {
			return new(p.SideEffects)
		}
	}
	return new(admissionregistrationv1.SideEffectClassNone)
}
