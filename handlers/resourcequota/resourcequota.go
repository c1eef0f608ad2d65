// Package resourcequota is the admission plugin ResourceQuota.
//
// It limits the usage of a namespace to its ResourceQuotas: the number of objects, the
// requests of containers, the size of volumes. Use it if several teams share a cluster:
// without quotas, one namespace can use up all resources.
//
// The status of each quota has the usage. The plugin updates it with optimistic locking
// before it allows a request, so any number of replicas can run. kube-controller-manager
// corrects the usage afterwards, for example if an allowed request fails later.
//
// Behaviour: k8s.io/apiserver pkg/admission/plugin/resourcequota and
// k8s.io/kubernetes pkg/quota/v1/evaluator/core.
package resourcequota

import (
	"context"
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "ResourceQuota",
		Summary:   "keeps what a namespace uses within its ResourceQuotas",
		Rules:     rules(),
		Validates: true,
		// An allowed request is charged to the quotas; a dry run is not.
		SideEffects: admissionregistrationv1.SideEffectClassNoneOnDryRun,
		Needs: []cluster.Need{
			cluster.ResourceQuotas.Watched(), cluster.ResourceQuotas.CalledStatus("update"),
			cluster.DeviceClasses.Watched(), cluster.ResourceClaims.Called("list"), cluster.Pods.Called("get"),
		},
		OnByDefault: true,
		New:         newHandler,
	}
}

// rules select what an evaluator handles. Most resources only have their objects counted, so
// updates do not matter.
func rules() []admission.Rule {
	update := func(group, version string, resources ...string) admission.Rule {
		return admission.Rule{
			Operations: []codec.Operation{codec.Update}, Groups: []string{group}, Versions: []string{version}, Resources: resources,
			Scope: admissionregistrationv1.NamespacedScope,
		}
	}
	return []admission.Rule{
		{
			Operations: []codec.Operation{codec.Create}, Groups: []string{"*"}, Versions: []string{"*"}, Resources: []string{"*"},
			Scope: admissionregistrationv1.NamespacedScope,
		},
		update("", "v1", "pods", "pods/resize", "services", "persistentvolumeclaims", "persistentvolumeclaims/status"),
		update(resourcev1.GroupName, "*", "resourceclaims"),
	}
}

type plugin struct {
	limited []limitedResource
	ledger  *ledger
	devices *devices
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	c, err := loadConfiguration(setup.Config)
	if err != nil {
		return admission.Handler{}, err
	}
	p := &plugin{
		limited: c.LimitedResources,
		ledger:  newLedger(cluster.ResourceQuotas.In(setup.Cluster)),
		devices: &devices{
			classes: cluster.DeviceClasses.In(setup.Cluster),
			claims:  cluster.ResourceClaims.In(setup.Cluster),
			pods:    cluster.Pods.In(setup.Cluster),
			version: setup.Version,
		},
	}
	return admission.Handler{Validate: p.validate}, nil
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	resource := review.Resource()
	if isIgnored(resource) {
		return admission.Unchecked("quotas do not count its resource")
	}
	quotas, err := p.ledger.current(review.Namespace())
	if err != nil {
		return admission.Errored(err)
	}
	if len(quotas) == 0 && len(p.limited) == 0 {
		return admission.Unchecked("its namespace has no ResourceQuota")
	}
	evaluator := p.evaluator(resource)
	if !evaluator.handles(review) {
		return admission.Allowed()
	}
	if _, ok := evaluator.(objects); ok {
		evaluator = objectsOf(resource)
	}
	d, err := newDemand(ctx, review, evaluator, p.limited)
	if err == nil {
		err = review.Err() // an object that was not read completely must not be charged
	}
	if err != nil {
		return admission.Errored(err)
	}
	after, err := d.check(quotas, nil)
	if err == nil && !review.DryRun() && len(changed(quotas, after)) > 0 {
		err = p.ledger.charge(ctx, review.Namespace(), d)
	}
	return answer(review, err)
}

// answer returns the result for the error of a charge.
func answer(review *codec.Review, err error) admission.Result {
	if err == nil {
		return admission.Allowed()
	}
	if refused, ok := errors.AsType[refusal](err); ok {
		return admission.Denied(admission.Forbidden(review, refused))
	}
	if failed, ok := errors.AsType[*failure](err); ok {
		if apierrors.IsConflict(failed) {
			return admission.Denied(failed.error) // in-tree returns the same error
		}
		return admission.Errored(failed.error)
	}
	return admission.Denied(err)
}

// isIgnored reports whether quotas ignore a resource: those that are not stored, and Events
// (k8s.io/kubernetes pkg/quota/v1/install DefaultIgnoredResources).
func isIgnored(resource codec.GroupVersionResource) bool {
	switch resource.Group {
	case "":
		return resource.Resource == "events" || resource.Resource == "bindings" || resource.Resource == "componentstatuses"
	case "events.k8s.io":
		return resource.Resource == "events"
	case "authentication.k8s.io":
		return resource.Resource == "tokenreviews" || resource.Resource == "selfsubjectreviews"
	case "authorization.k8s.io":
		switch resource.Resource {
		case "subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews":
			return true
		}
	}
	return false
}

// evaluator returns the evaluator of a resource: an objects without names, if the resource
// has none of its own.
func (p *plugin) evaluator(resource codec.GroupVersionResource) evaluator {
	switch {
	case resource.Group == "" && resource.Resource == string(corev1.ResourcePods):
		return pods{p.devices.version}
	case resource.Group == "" && resource.Resource == string(corev1.ResourceServices):
		return services{}
	case resource.Group == "" && resource.Resource == string(corev1.ResourcePersistentVolumeClaims):
		return volumes{p.devices.version}
	case resource.Group == resourcev1.GroupName && resource.Resource == "resourceclaims":
		return p.devices
	}
	return objects(nil)
}
