package resourcequota

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// An evaluator measures the usage of objects of a resource (k8s.io/apiserver pkg/quota/v1
// Evaluator).
type evaluator interface {
	// handles reports whether the review may change the usage. Other reviews are
	// allowed.
	handles(review *codec.Review) bool
	// tracked returns the names that the evaluator counts.
	tracked(names []corev1.ResourceName) []corev1.ResourceName
	// measure reads an object of the review and copies what it needs. It returns an
	// error if the usage of the object cannot be determined.
	measure(ctx context.Context, review *codec.Review, object codec.Value) (item, error)
}

// An item is a measured object.
type item interface {
	// usage returns what the object uses.
	usage() corev1.ResourceList
	// matches reports whether the object is in the scope. It returns an error if the
	// selector is invalid.
	matches(selector corev1.ScopedResourceSelectorRequirement) (bool, error)
	// constraints returns an error if the object does not specify a limited resource
	// that it must specify.
	constraints(limited []corev1.ResourceName) error
}

// unscoped is an item without scopes and constraints.
type unscoped corev1.ResourceList

func (u unscoped) usage() corev1.ResourceList { return corev1.ResourceList(u) }

func (unscoped) matches(corev1.ScopedResourceSelectorRequirement) (bool, error) { return false, nil }

func (unscoped) constraints([]corev1.ResourceName) error { return nil }

// objects counts the objects of a resource without its own evaluator, under these names
// (k8s.io/apiserver pkg/quota/v1/generic objectCountEvaluator).
type objects []corev1.ResourceName

// objectsOf returns the evaluator of a resource.
func objectsOf(resource codec.GroupVersionResource) objects {
	names := objects{countOf(resource.Group, resource.Resource)}
	if resource.Group != "" {
		return names
	}
	// The names from before quotas could count all resources (k8s.io/kubernetes
	// pkg/quota/v1/evaluator/core legacyObjectCountAliases).
	for _, name := range [...]corev1.ResourceName{
		corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceReplicationControllers, corev1.ResourceSecrets,
	} {
		if string(name) == resource.Resource {
			names = append(names, name)
		}
	}
	return names
}

func (objects) handles(review *codec.Review) bool {
	return review.Operation() == codec.Create && review.SubResource() == ""
}

func (o objects) tracked(names []corev1.ResourceName) []corev1.ResourceName {
	return only(names, func(name corev1.ResourceName) bool { return slices.Contains(o, name) })
}

func (o objects) measure(context.Context, *codec.Review, codec.Value) (item, error) {
	used := make(unscoped)
	for _, name := range o {
		used[name] = count(1)
	}
	return used, nil
}

// countOf returns the name of the number of objects of a resource in quotas. It is a copy.
func countOf(group, resource string) corev1.ResourceName {
	name := "count/" + resource
	if group != "" {
		name += "." + group
	}
	return corev1.ResourceName(name)
}

// only returns the names that the function matches.
func only(names []corev1.ResourceName, matches func(corev1.ResourceName) bool) (matching []corev1.ResourceName) {
	for _, name := range names {
		if matches(name) {
			matching = append(matching, name)
		}
	}
	return matching
}

// isExtended reports whether a name in a quota is an extended resource. These cannot be
// overcommitted, so that only requests are counted (k8s.io/kubernetes
// pkg/quota/v1/evaluator/core isExtendedResourceNameForQuota). Those of device classes count since v1.35.
func isExtended(name corev1.ResourceName, version admission.Version) bool {
	s := string(name)
	return strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix) &&
		(!isNative(s) || version.AtLeast(1, 35) && strings.HasPrefix(s, corev1.ResourceImplicitExtendedClaimsPerClass))
}

// isNative reports whether a resource is defined by Kubernetes (pkg/apis/core/v1/helper
// IsNativeResource).
func isNative(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
}

// selects reports whether the selector of a scope matches the value, or none
// (pkg/apis/core/v1/helper ScopedResourceSelectorRequirementsAsSelector).
func selects(selector corev1.ScopedResourceSelectorRequirement, values ...string) (bool, error) {
	operators := map[corev1.ScopeSelectorOperator]selection.Operator{
		corev1.ScopeSelectorOpIn:           selection.In,
		corev1.ScopeSelectorOpNotIn:        selection.NotIn,
		corev1.ScopeSelectorOpExists:       selection.Exists,
		corev1.ScopeSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	operator, ok := operators[selector.Operator]
	err := fmt.Errorf("%q is not a valid scope selector operator", selector.Operator)
	var requirement *labels.Requirement
	if ok {
		requirement, err = labels.NewRequirement(string(selector.ScopeName), operator, selector.Values)
	}
	if err != nil {
		return false, fmt.Errorf("failed to parse and convert selector: %w", err)
	}
	if len(values) == 0 {
		return requirement.Matches(labels.Set(nil)), nil
	}
	return slices.ContainsFunc(values, func(value string) bool {
		return requirement.Matches(labels.Set{string(selector.ScopeName): value})
	}), nil
}
