package noderestriction

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/handlers/internal/accessreview"
)

// checkToken allows a kubelet to request tokens for the pods that it runs, each bound to
// its pod, for the audiences in the pod's volumes.
func (p *plugin) checkToken(ctx context.Context, r *request) error {
	bound := r.Object.Get("spec", "boundObjectRef")
	name := bound.Get("name").String()
	if !bound.Get("apiVersion").EqualString("v1") || !bound.Get("kind").EqualString("Pod") || name == "" {
		return r.forbidden("node requested token not bound to a pod")
	}
	uid := bound.Get("uid").String()
	if uid == "" {
		return r.forbidden("node requested token with a pod binding without a uid")
	}
	pod, err := p.getPod(r.Namespace(), name)
	if err != nil {
		return err
	}
	if uid != string(pod.UID) {
		return r.forbidden("the UID in the bound object reference (%s) does not match the UID in record. The object might "+
			"have been deleted and then recreated", uid)
	}
	if pod.Spec.NodeName != r.node {
		return r.forbidden("node requested token bound to a pod scheduled on a different node")
	}
	return p.checkAudience(ctx, r, pod)
}

// checkAudience allows a token for an audience that a volume of the pod requests, or that
// the cluster's authorizer lets the node request.
func (p *plugin) checkAudience(ctx context.Context, r *request, pod *knownPod) error {
	audience := ""
	for i, element := range r.Object.Get("spec", "audiences").Elements() {
		if i > 0 {
			return r.forbidden("node may only request 0 or 1 audiences")
		}
		audience = element.String()
	}
	asked, err := p.asksFor(ctx, pod, audience)
	if err != nil {
		return r.forbidden("error validating audience %q: %w", audience, err)
	}
	if asked {
		return nil
	}
	status, err := p.review(ctx, r, "request-serviceaccounts-token-audience", audience, r.Name())
	if err != nil || status.Allowed {
		return err
	}
	if !p.version.AtLeast(1, 37) { // which changed the texts
		if status.EvaluationError != "" {
			return r.forbidden("audience %q not found in pod spec volume, error authorizing %s to request tokens for this audience: %s",
				audience, r.Username(), status.EvaluationError)
		}
		return r.forbidden("audience %q not found in pod spec volume, %s is not authorized to request tokens for this audience",
			audience, r.Username())
	}
	if status.EvaluationError != "" {
		return r.forbidden("error authorizing %s to request tokens for audience %q: %s", r.Username(), audience, status.EvaluationError)
	}
	return r.forbidden("%s is not authorized to request tokens for audience %q", r.Username(), audience)
}

// review asks the API server whether the node may do something with a service account. As
// in-tree, it does not cache the answer.
func (p *plugin) review(
	ctx context.Context, r *request, verb, resource, account string,
) (status authorizationv1.SubjectAccessReviewStatus, err error) {
	requested := r.Resource()
	spec, err := accessreview.Spec(r.Review, &authorizationv1.ResourceAttributes{
		Namespace: r.Namespace(), Verb: verb, Group: requested.Group, Version: requested.Version, Resource: resource, Name: account,
	})
	if err != nil {
		return status, &failureError{err}
	}
	if status, err = p.access.ReviewUncached(ctx, spec); err != nil {
		return status, &failureError{err}
	}
	return status, nil
}

// asksFor reports whether a volume of the pod, or the volume's CSI driver, requests tokens
// for the audience. It returns the errors of volumes that could not be looked up only if no
// other volume requests them.
func (p *plugin) asksFor(ctx context.Context, pod *knownPod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		if projectsToken(volume, audience) {
			return true, nil
		}
		driver, err := p.driverOf(ctx, pod, volume)
		if driver != "" {
			var asks bool
			if asks, err = p.driverAsksFor(driver, audience); asks {
				return true, nil
			}
		}
		errs = append(errs, err)
	}
	return false, utilerrors.NewAggregate(errs) // without nil errors
}

func projectsToken(volume *corev1.Volume, audience string) bool {
	if volume.Projected == nil {
		return false
	}
	for _, source := range volume.Projected.Sources {
		if token := source.ServiceAccountToken; token != nil && token.Audience == audience {
			return true
		}
	}
	return false
}

// driverOf returns the name of the CSI driver that mounts a volume, empty if there is none
// or if it is unknown.
func (p *plugin) driverOf(ctx context.Context, pod *knownPod, volume *corev1.Volume) (string, error) {
	switch {
	case volume.Ephemeral != nil && volume.Ephemeral.VolumeClaimTemplate != nil:
		// The name is that of VolumeClaimName in k8s.io/component-helpers storage/ephemeral.
		return p.driverOfClaim(ctx, pod.Namespace, pod.Name+"-"+volume.Name)
	case volume.PersistentVolumeClaim != nil:
		return p.driverOfClaim(ctx, pod.Namespace, volume.PersistentVolumeClaim.ClaimName)
	case volume.CSI != nil:
		return volume.CSI.Driver, nil
	case migrated.IsInlineMigratable(volume):
		translated, err := migrated.TranslateInTreeInlineVolumeToCSI(klog.FromContext(ctx), volume, pod.Namespace)
		return driverIn(translated), err
	}
	return "", nil
}

func (p *plugin) driverOfClaim(ctx context.Context, namespace, name string) (string, error) {
	claim, err := lookup(p.claims, schema.GroupResource{Resource: "persistentvolumeclaim"}, namespace, name)
	if err != nil {
		return "", err
	}
	volume, err := lookup(p.volumes, schema.GroupResource{Resource: "persistentvolume"}, "", claim.Spec.VolumeName)
	if err != nil {
		return "", err
	}
	if volume.Spec.CSI == nil && migrated.IsPVMigratable(volume) {
		translated, err := migrated.TranslateInTreePVToCSI(klog.FromContext(ctx), volume)
		return driverIn(translated), err
	}
	return driverIn(volume), nil
}

func driverIn(volume *corev1.PersistentVolume) string {
	if volume == nil || volume.Spec.CSI == nil {
		return ""
	}
	return volume.Spec.CSI.Driver
}

func (p *plugin) driverAsksFor(name, audience string) (bool, error) {
	driver, err := lookup(p.drivers, schema.GroupResource{Group: storagev1.GroupName, Resource: "csidriver"}, "", name)
	if err != nil {
		return false, err
	}
	for _, request := range driver.Spec.TokenRequests {
		if request.Audience == audience {
			return true, nil
		}
	}
	return false, nil
}
