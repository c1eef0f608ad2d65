package review

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// A Registration says for which objects of the input kube-apiserver calls fastadmit. Plugins do not check the others. Recorded
// AdmissionReviews were sent, whatever it says.
type Registration struct {
	// Excludes returns why kube-apiserver calls no webhook for a review, "" if it calls one. An error is that of match conditions:
	// kube-apiserver refuses the object then, unless the failure policy is Ignore.
	Excludes func(ctx context.Context, review *codec.Review) (why string, err error)
	// OwnPlugins evaluate nothing but policies that kube-apiserver evaluates itself, also about objects for which it calls no webhook.
	// If plugins evaluate others, too, OwnPlugins is empty, and Own has plugins that evaluate only these policies. NewChain made it.
	OwnPlugins []string
	Own        *admission.Chain
}

// notCalled begins the reason why a plugin does not check an object, with the words of skipped objects.
const notCalled = notSelected + ": "

// chains are the chains of a reviewer.
type chains struct {
	all *admission.Chain
	own *admission.Chain // see Registration
}

func (r *reviewer) newChains() (c chains) {
	all := func(*admission.Plugin, *admission.Settings) bool { return true }
	c.all = r.observed(r.Chain, all)
	switch {
	case r.Registration == nil:
	case r.Registration.Own != nil:
		c.own = r.observed(r.Registration.Own, all)
	default:
		c.own = r.observed(r.Chain, func(p *admission.Plugin, _ *admission.Settings) bool {
			return slices.Contains(r.Registration.OwnPlugins, p.Name)
		})
	}
	return c
}

// observed selects plugins of a chain that NewChain made. Their runs are noted.
func (r *reviewer) observed(of *admission.Chain, keep func(*admission.Plugin, *admission.Settings) bool) *admission.Chain {
	var names []string // by the place in the chain
	for _, plugin := range of.Plugins() {
		names = append(names, plugin.Name)
	}
	c := of.Select(keep)
	c.Observe = func(run admission.Run) { r.observe(names[run.Plugin], run) }
	c.Unselected = func(plugin int) {
		r.leaveOut(report.Finding{Plugin: names[plugin], Message: "the selectors or matchConditions of its settings do not select the object"})
	}
	if r.Explain {
		c.Explain = func(x *admission.Explanation) { r.result.Explanation = append(r.result.Explanation, x) }
	}
	return c
}

// chainFor returns the chain that kube-apiserver has decide about a review. It notes which plugins are not called.
func (r *reviewer) chainFor(ctx context.Context, review *codec.Review, isRecorded bool) (*admission.Chain, error) {
	if r.Registration == nil || isRecorded {
		return r.chains.all, nil
	}
	why, err := r.Registration.Excludes(ctx, review)
	if why == "" && err == nil {
		return r.chains.all, nil
	}
	attributes := admission.AttributesOf(review)
	matches := func(rule admission.Rule) bool { return rule.Matches(&attributes) }
	var left []*admission.Plugin
	isRefused := false
	r.Chain.Each(func(plugin *admission.Plugin, settings *admission.Settings) {
		isOwn := slices.Contains(r.Registration.OwnPlugins, plugin.Name)
		if !isOwn && slices.ContainsFunc(r.Chain.RulesOf(plugin.Name), matches) {
			left = append(left, plugin)
			isRefused = isRefused || settings.FailurePolicy != admissionregistrationv1.Ignore
		}
	})
	if err != nil {
		if why = err.Error(); isRefused {
			return nil, err
		}
	}
	for _, plugin := range left {
		r.leaveOut(report.Finding{Plugin: plugin.Name, Message: notCalled + why})
		r.explainNotCalled(plugin, notCalled+why)
	}
	return r.chains.own, nil
}

// explainNotCalled explains why a plugin is not asked.
func (r *reviewer) explainNotCalled(plugin *admission.Plugin, why string) {
	for _, phase := range [...]admission.Phase{admission.Mutate, admission.Validate} {
		if takesPart := phase == admission.Mutate && plugin.Mutates || phase == admission.Validate && plugin.Validates; takesPart && r.Explain {
			r.result.Explanation = append(r.result.Explanation,
				&admission.Explanation{Plugin: plugin.Name, Phase: phase.String(), Round: 1, Why: why})
		}
	}
}
