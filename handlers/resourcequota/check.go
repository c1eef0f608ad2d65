package resourcequota

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// A demand is what a request would use, independent of the quotas. It retains nothing of
// the review.
type demand struct {
	evaluator   evaluator
	limited     []limitedResource
	group, name string // of the resource
	ofStatus    bool   // the request is for the subresource status: its usage was charged before
	update      bool
	object      item
	used        corev1.ResourceList
	old         item // the replaced object, nil if the object is new
	oldUsed     corev1.ResourceList
	oldMissing  bool // of an update
}

// newDemand measures the objects of the review. It returns an error if they cannot be
// measured.
func newDemand(ctx context.Context, review *codec.Review, e evaluator, limited []limitedResource) (*demand, error) {
	resource := review.Resource()
	d := &demand{
		evaluator: e, limited: limited, update: review.Operation() == codec.Update, ofStatus: review.SubResource() == "status",
		group: strings.Clone(resource.Group), name: strings.Clone(resource.Resource),
	}
	var err error
	if d.object, err = e.measure(ctx, review, review.Object.Root()); err != nil {
		return nil, fmt.Errorf("cannot tell what the object uses: %w", err)
	}
	d.used = d.object.usage()
	if !d.update {
		return d, nil
	}
	d.oldMissing = !review.OldObject.Root().IsSet()
	if review.OldObject.Get("metadata", "resourceVersion").String() == "" {
		return d, nil // an update that creates the object, or one without an old object
	}
	if d.old, err = e.measure(ctx, review, review.OldObject.Root()); err != nil {
		return nil, fmt.Errorf("cannot tell what the old object uses: %w", err)
	}
	d.oldUsed = d.old.usage()
	return d, nil
}

// A refusal is an error that in-tree plugins return with code 403.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// check returns the quotas after the demand was charged. Quotas that change are copies.
// charged are the names of quotas to which it has been charged already. The error is the
// answer to the request (k8s.io/apiserver
// pkg/admission/plugin/resourcequota/controller.go CheckRequest).
func (d *demand) check(quotas []*corev1.ResourceQuota, charged []string) ([]*corev1.ResourceQuota, error) {
	var scopes []corev1.ScopedResourceSelectorRequirement // that need a quota
	for i := range d.limited {
		matched, err := d.matching(d.limited[i].MatchScopes)
		if err != nil {
			return quotas, nil // upstream allows requests if its configuration is invalid
		}
		scopes = append(scopes, matched...)
	}
	names := d.limitedNames() // that need a quota
	f, err := d.find(quotas)
	if err != nil {
		return nil, err
	}
	if below := negative(d.used); len(below) > 0 {
		return nil, refuse("quota usage is negative for resource(s): %s", showNames(below))
	}
	if d.oldMissing {
		return nil, refuse("unable to get previous usage since prior version of object was not found")
	}
	deltas, uses, err := d.deltas(quotas, f.interesting)
	if !uses { // also after an error
		return quotas, err
	}
	if uncovered := only(names, func(name corev1.ResourceName) bool { return !f.names[name] }); len(uncovered) > 0 {
		return nil, refuse("insufficient quota to consume: %s", showNames(uncovered))
	}
	if uncovered := d.uncovered(scopes, f.scopes); len(uncovered) > 0 {
		return nil, fmt.Errorf("insufficient quota to match these scopes: %v", uncovered)
	}
	after := slices.Clone(quotas)
	for n, i := range f.interesting {
		if slices.Contains(charged, quotas[i].Name) {
			continue
		}
		if after[i], err = d.charge(quotas[i], deltas[n]); err != nil {
			return nil, err
		}
	}
	return after, nil
}

// limitedNames returns the resources that the object uses and that need a quota, each
// once.
func (d *demand) limitedNames() (names []corev1.ResourceName) {
	named := make(map[corev1.ResourceName]bool)
	for _, limited := range d.limited {
		if limited.APIGroup != d.group || limited.Resource != d.name {
			continue
		}
		for name, quantity := range d.used {
			if quantity.Sign() > 0 && !named[name] &&
				slices.ContainsFunc(limited.MatchContains, func(part string) bool { return strings.Contains(string(name), part) }) {
				named[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// matching returns the selectors that the object matches.
func (d *demand) matching(selectors []corev1.ScopedResourceSelectorRequirement) (matched []corev1.ScopedResourceSelectorRequirement,
	err error) {
	for _, selector := range selectors {
		matches, err := d.object.matches(selector)
		if err != nil {
			return nil, fmt.Errorf("error on matching scope %v: %w", selector, err)
		}
		if matches {
			matched = append(matched, selector)
		}
	}
	return matched, nil
}

// uncovered returns the selectors whose scopes are not among those of covered.
func (d *demand) uncovered(selectors,
	covered []corev1.ScopedResourceSelectorRequirement) (uncovered []corev1.ScopedResourceSelectorRequirement) {
	for _, selector := range selectors {
		if !slices.ContainsFunc(covered,
			func(c corev1.ScopedResourceSelectorRequirement) bool { return c.ScopeName == selector.ScopeName }) {
			uncovered = append(uncovered, selector)
		}
	}
	return uncovered
}

// found has the quotas of a namespace that apply to an object.
type found struct {
	interesting []int                                      // indexes of the quotas that apply to the object
	names       map[corev1.ResourceName]bool               // the resources that these limit
	scopes      []corev1.ScopedResourceSelectorRequirement // the scopes of all quotas that the object matches
}

// find returns the quotas that apply to the object.
func (d *demand) find(quotas []*corev1.ResourceQuota) (f found, err error) {
	f.names = make(map[corev1.ResourceName]bool)
	for i, q := range quotas {
		selectors := selectorsOf(q)
		matched, err := d.matching(selectors)
		if err != nil {
			return f, fmt.Errorf("error matching scopes of quota %s, err: %w", q.Name, err)
		}
		f.scopes = append(f.scopes, matched...)
		var hard []corev1.ResourceName
		for name := range q.Status.Hard {
			hard = append(hard, name)
		}
		limited := d.evaluator.tracked(hard)
		if len(limited) == 0 || len(matched) < len(selectors) {
			continue
		}
		if err := d.object.constraints(limited); err != nil {
			return f, refuse("failed quota: %s: %v", q.Name, err)
		}
		for _, name := range limited {
			if _, ok := q.Status.Used[name]; !ok {
				return f, refuse("status unknown for quota: %s, resources: %s", q.Name, showNames(limited))
			}
		}
		f.interesting = append(f.interesting, i)
		for _, name := range limited {
			f.names[name] = true
		}
	}
	return f, nil
}

// selectorsOf returns the scopes of a quota.
func selectorsOf(q *corev1.ResourceQuota) (selectors []corev1.ScopedResourceSelectorRequirement) {
	for _, scope := range q.Spec.Scopes {
		selectors = append(selectors, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		selectors = append(selectors, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return selectors
}

// deltas returns for each interesting quota how much more the request uses than the old object,
// and whether the request uses more of any resource. A quota that did not apply to the old object
// is charged with the whole usage of the new one.
func (d *demand) deltas(quotas []*corev1.ResourceQuota, interesting []int) (deltas []corev1.ResourceList, uses bool, err error) {
	all := withoutZeros(d.used)
	more := increase(d.used, d.oldUsed)
	if len(interesting) == 0 {
		return nil, len(more) > 0, nil
	}
	for _, i := range interesting {
		delta := all
		if d.old != nil {
			was, err := d.wasUnder(quotas[i])
			if err != nil {
				return nil, false, err
			}
			if was {
				delta = more
			}
		}
		deltas = append(deltas, delta)
		uses = uses || len(delta) > 0
	}
	return deltas, uses, nil
}

// wasUnder reports whether the old object is in all scopes of the quota.
func (d *demand) wasUnder(q *corev1.ResourceQuota) (bool, error) {
	for _, selector := range selectorsOf(q) {
		if matches, err := d.old.matches(selector); !matches { // also after an error
			return false, err
		}
	}
	return true, nil
}

// charge returns the quota with the delta added to what is used of it.
func (d *demand) charge(q *corev1.ResourceQuota, delta corev1.ResourceList) (*corev1.ResourceQuota, error) {
	requested := mask(delta, func(name corev1.ResourceName) bool { _, ok := q.Status.Hard[name]; return ok })
	if len(requested) == 0 {
		return q, nil
	}
	used := add(q.Status.Used, requested)
	inRequest := func(name corev1.ResourceName) bool { _, ok := requested[name]; return ok }
	if names := exceeding(mask(used, inRequest), q.Status.Hard); len(names) > 0 && !d.ofStatus {
		failed := func(name corev1.ResourceName) bool { return slices.Contains(names, name) }
		return nil, refuse("exceeded quota: %s, requested: %s, used: %s, limited: %s",
			q.Name, show(mask(requested, failed)), show(mask(q.Status.Used, failed)), show(mask(q.Status.Hard, failed)))
	}
	charged := *q
	charged.Status.Used = used
	return &charged, nil
}
