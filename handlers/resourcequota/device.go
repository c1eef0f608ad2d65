package resourcequota

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// devices is the evaluator of ResourceClaims (k8s.io/kubernetes
// pkg/quota/v1/evaluator/core/resource_claims.go).
type devices struct {
	classes *cluster.Objects[*resourcev1.DeviceClass]
	claims  *cluster.Objects[*resourcev1.ResourceClaim]
	pods    *cluster.Objects[*corev1.Pod]
	version admission.Version
}

// countsExtended reports whether claims also count as extended resources. In kube-apiserver, the gate
// DRAExtendedResource decides it, which is on by default since v1.36.
func (d *devices) countsExtended() bool { return d.version.AtLeast(1, 36) }

var claimCount = countOf(resourcev1.GroupName, "resourceclaims")

func (*devices) handles(review *codec.Review) bool { return review.SubResource() == "" }

func (d *devices) tracked(names []corev1.ResourceName) []corev1.ResourceName {
	return only(names, func(name corev1.ResourceName) bool {
		return name == claimCount || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) ||
			d.countsExtended() && isExtended(name, d.version) && d.stands(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix))
	})
}

// stands reports whether an extended resource belongs to a device class: by the name that
// the class sets, or by the implicit name.
func (d *devices) stands(resource string) bool {
	if class, ok := strings.CutPrefix(resource, resourcev1.ResourceDeviceClassPrefix); ok {
		if _, ok := d.classes.Cached("", class); ok {
			return true
		}
	}
	classes, err := d.classes.List("")
	if err != nil {
		return true // a class may be too large for the cache; counting a resource too many can only deny too much
	}
	for _, class := range classes {
		if class.Spec.ExtendedResourceName != nil && *class.Spec.ExtendedResourceName == resource {
			return true
		}
	}
	return false
}

func (d *devices) measure(ctx context.Context, review *codec.Review, object codec.Value) (item, error) {
	used := unscoped{claimCount: count(1)}
	for _, request := range object.Get("spec", "devices", "requests").Elements() {
		for name, n := range requested(request) {
			sum := used[name]
			sum.Add(count(n))
			used[name] = sum
		}
	}
	if !d.countsExtended() {
		return used, nil
	}
	counted, err := d.podUsage(ctx, review, object)
	if err != nil {
		return nil, err
	}
	for name, quantity := range d.extended(used) {
		if already, ok := counted[name]; ok {
			quantity.Sub(already)
		}
		if quantity.Sign() > 0 {
			used[name] = quantity
		}
	}
	return used, nil
}

// requested returns how many devices of each class a request of a claim can get.
func requested(request codec.Value) map[corev1.ResourceName]int64 {
	devices := make(map[corev1.ResourceName]int64)
	class := func(r codec.Value) corev1.ResourceName {
		return corev1.ResourceName(r.Get("deviceClassName").String() + corev1.ResourceClaimsPerClass) // a copy
	}
	exactly := request.Get("exactly")
	switch alternatives := request.Get("firstAvailable"); {
	case alternatives.Len() > 0:
		for _, alternative := range alternatives.Elements() {
			name := class(alternative)
			devices[name] = max(devices[name], number(alternative))
		}
	case exactly.IsSet():
		devices[class(exactly)] = number(exactly)
	case request.Get("deviceClassName").String() != "": // in resource.k8s.io/v1beta1, the field is one level higher
		devices[class(request)] = number(request)
	}
	return devices
}

// number returns the maximum number of devices for a request.
func number(request codec.Value) int64 {
	switch resourcev1.DeviceAllocationMode(request.Get("allocationMode").String()) {
	case resourcev1.DeviceAllocationModeExactCount:
		n, _ := request.Get("count").Int64()
		return n
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0 // an allocation mode of a later release
}

// extended returns the extended resources that the devices count as.
func (d *devices) extended(used unscoped) corev1.ResourceList {
	extended := make(corev1.ResourceList)
	for name, quantity := range used {
		class, ok := strings.CutSuffix(string(name), corev1.ResourceClaimsPerClass)
		if !ok || class == "" {
			continue
		}
		extended[corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass+class)] = quantity.DeepCopy()
		if c, ok := d.classes.Cached("", class); ok && c.Spec.ExtendedResourceName != nil && *c.Spec.ExtendedResourceName != "" {
			extended[corev1.ResourceName(corev1.DefaultResourceRequestsPrefix+*c.Spec.ExtendedResourceName)] = quantity.DeepCopy()
		}
	}
	return extended
}

// podUsage returns what is already counted for the Pod for which the scheduler made the
// claim, so that it is not counted twice; nil if there is none (upstream's
// getVerifiedPodUsage). Upstream caches all Pods and claims for this; the plugin asks the
// API server.
func (d *devices) podUsage(ctx context.Context, review *codec.Review, object codec.Value) (corev1.ResourceList, error) {
	claim, err := readClaim(review, object)
	if err != nil {
		return nil, err
	}
	owner := podOwner(claim)
	if owner == nil {
		return nil, nil
	}
	pod, err := d.pods.GetLive(ctx, claim.Namespace, owner.Name)
	switch {
	case apierrors.IsNotFound(err), cluster.IsInvalidName(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pod.UID != owner.UID:
		return nil, nil
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		if status.ResourceClaimName != claim.Name {
			return nil, nil
		}
		return podUsage(pod, d.version), nil
	}
	// Until the Pod's status names its claim, the first one counts as its claim.
	others, err := d.claims.ListLive(ctx, claim.Namespace)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		owner := podOwner(other)
		if owner != nil && owner.UID == pod.UID && isBefore(other, claim) {
			return nil, nil
		}
	}
	return podUsage(pod, d.version), nil
}

// readClaim reads the metadata that identify the claim's owner. The result is a view of the
// review.
func readClaim(review *codec.Review, object codec.Value) (*resourcev1.ResourceClaim, error) {
	metadata := object.Get("metadata")
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Name: metadata.Get("name").String(), Namespace: review.Namespace(),
	}}
	created, err := readTime(metadata.Get("creationTimestamp"))
	if err != nil {
		return nil, fmt.Errorf("metadata.creationTimestamp: %w", err)
	}
	if created != nil {
		claim.CreationTimestamp = *created
	}
	annotation := metadata.Get("annotations", resourcev1.ExtendedResourceClaimAnnotation).String()
	claim.Annotations = map[string]string{resourcev1.ExtendedResourceClaimAnnotation: annotation}
	for _, owner := range metadata.Get("ownerReferences").Elements() {
		claim.OwnerReferences = append(claim.OwnerReferences, metav1.OwnerReference{
			APIVersion: owner.Get("apiVersion").String(), Kind: owner.Get("kind").String(),
			Name: owner.Get("name").String(), UID: types.UID(owner.Get("uid").String()),
			Controller: new(owner.Get("controller").Bool()),
		})
	}
	return claim, nil
}

// podOwner returns the Pod for whose extended resources the claim was made, nil if none.
func podOwner(claim *resourcev1.ResourceClaim) *metav1.OwnerReference {
	if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		return nil
	}
	if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1" {
		return owner
	}
	return nil
}

func isBefore(a, b *resourcev1.ResourceClaim) bool {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order < 0
	}
	return a.Name < b.Name
}
