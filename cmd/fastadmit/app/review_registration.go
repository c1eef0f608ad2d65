package app

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/config"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/offline/review"
	"github.com/fastadmit/fastadmit/internal/policy/matchconditions"
	"github.com/fastadmit/fastadmit/internal/registration"
)

// excluded finds out for which objects kube-apiserver calls no webhook, by the registration in the configuration file.
type excluded struct {
	namespaces *match.Matcher // leaves out those that are always excluded
	selectors  *match.Matcher
	labels     match.Namespaces
	conditions *matchconditions.Conditions // nil for none
	// isLenient is true if nobody gave the user that conditions read. A condition that fails excludes and refuses nothing then.
	isLenient bool
}

// names are namespaces of which only the names are known.
type names struct{}

// Labels implements match.Namespaces.
func (names) Labels(_ context.Context, name string) (labels.Set, error) {
	return labels.Set{corev1.LabelMetadataName: name}, nil
}

// registration makes the registration of the configuration ready, as kube-apiserver has it.
func (r *reviewOptions) registration(ctx context.Context, loaded *selected) (*review.Registration, error) {
	r.registered = loaded.Registration
	x, err := r.excluded(ctx, &r.registered)
	if err != nil {
		return nil, failed(err)
	}
	registered := &review.Registration{Excludes: x.excludes}
	hasSettings := func(plugin string) bool {
		return slices.ContainsFunc(r.settings, func(p config.Plugin) bool { return p.Name == plugin })
	}
	own, isAll := r.policies.Own(loaded.enabled, hasSettings)
	switch {
	case len(own) == 0:
	case isAll:
		registered.OwnPlugins = slices.Collect(maps.Keys(own))
	default:
		registered.Own, err = admission.NewChain(r.options.table(), own, r.cluster.state.Load(), nil)
	}
	return registered, failed(r.locate(loaded.Loaded, err))
}

func (r *reviewOptions) excluded(ctx context.Context, o *registration.Options) (*excluded, error) {
	path := field.NewPath("registration")
	x := &excluded{labels: &r.cluster.namespaces}
	var err error
	if x.namespaces, err = match.New(&match.Criteria{NamespaceSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: o.ExcludedNamespaces()},
		},
	}}, path); err != nil {
		return nil, err
	}
	if x.selectors, err = match.New(&match.Criteria{NamespaceSelector: o.NamespaceSelector, ObjectSelector: o.ObjectSelector}, path); err != nil {
		return nil, err
	}
	var needs []cluster.Need
	if x.selectors.NeedsNamespaces() {
		needs = append(needs, cluster.Namespaces.Watched())
	}
	if len(o.MatchConditions) > 0 {
		compiled, errs := matchconditions.Compile(o.MatchConditions, admissionregistrationv1.Fail, &r.cluster.access, r.interpretCEL,
			path.Child("matchConditions"))
		if len(errs) > 0 {
			return nil, fmt.Errorf("%s: %w", r.configFile, errs.ToAggregate())
		}
		if compiled.UsesAuthorizer() {
			needs = append(needs, cluster.SubjectAccessReviews.Called("create").By(matchConditions))
		}
		x.conditions, x.isLenient = compiled, r.user.Username == "" && policies.ReadsUser(o.MatchConditions)
	}
	if needs == nil {
		return x, nil
	}
	return x, r.cluster.follow(ctx, needs, []string{"the registration"})
}

// excludes implements review.Registration.
func (x *excluded) excludes(ctx context.Context, review *codec.Review) (why string, err error) {
	attributes := admission.AttributesOf(review)
	if called, err := x.namespaces.Matches(ctx, review, &attributes, names{}); err != nil || !called {
		return "the registration excludes the namespace " + review.Namespace(), err
	}
	if called, err := x.selectors.Matches(ctx, review, &attributes, x.labels); err != nil || !called {
		_, why := x.selectors.Explain(ctx, review, &attributes, x.labels)
		return "registration." + why, err
	}
	if x.conditions == nil {
		return "", nil
	}
	switch called, err := x.conditions.Matches(ctx, review, attributes); {
	case err != nil && x.isLenient && review.Username() == "":
		return "", nil
	case err != nil:
		return "", fmt.Errorf("registration.matchConditions: %w", err)
	case !called:
		return "registration." + x.conditions.Explain(ctx, review, attributes), nil
	}
	return "", nil
}

// noteRegistration returns notes on what the registration excludes, or does not, because of what nobody gave.
func (r *reviewOptions) noteRegistration(v *seenRequests, chain *admission.Chain) []policies.Note {
	var rules []admission.Rule
	for _, plugin := range chain.Plugins() {
		rules = append(rules, chain.RulesOf(plugin.Name)...)
	}
	return append(policies.Unselected(r.configFile, "registration", r.registered.NamespaceSelector, rules, &v.requests),
		policies.RegistrationNotes(r.configFile, r.registered.MatchConditions, v.hasUser, r.cluster.kubeconfig != "")...)
}
