package noderestriction

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// checkPods lets a kubelet create and delete mirror pods, write the status of its
// pods and evict them.
func (p *plugin) checkPods(r *request) error {
	switch subResource := r.SubResource(); subResource {
	case "":
		return p.checkPod(r)
	case "status":
		return p.checkPodStatus(r)
	case "eviction":
		return p.checkEviction(r)
	default:
		return r.forbidden("unexpected pod subresource %q, only 'status' and 'eviction' are allowed", subResource)
	}
}

func (p *plugin) checkPod(r *request) error {
	switch operation := r.Operation(); operation {
	case codec.Create:
		return p.checkMirrorPod(r)
	case codec.Delete:
		pod, err := p.getPod(r.Namespace(), r.Name())
		if err != nil {
			return err
		}
		if pod.Spec.NodeName != r.node {
			return r.forbidden("node %q can only delete pods with spec.nodeName set to itself", r.node)
		}
		return nil
	default:
		return r.forbidden("unexpected operation %q, node %q can only create and delete mirror pods", operation, r.node)
	}
}

// checkMirrorPod lets a kubelet create a mirror pod that belongs to its node and refers to
// no objects of the API.
func (p *plugin) checkMirrorPod(r *request) error {
	if !r.Object.Get("metadata", "annotations", corev1.MirrorPodAnnotationKey).Exists() {
		return r.forbidden("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, r.node)
	}
	spec := r.Object.Get("spec")
	if !spec.Get("nodeName").EqualString(r.node) {
		return r.forbidden("node %q can only create pods with spec.nodeName set to itself", r.node)
	}
	if err := p.checkOwner(r); err != nil {
		return err
	}
	resource, err := p.referenceOf(spec)
	if err != nil {
		return r.forbidden("error checking mirror pod for API references: %w", err)
	}
	if resource != "" {
		return r.forbidden("node %q can not create pods that reference %s", r.node, resource)
	}
	return nil
}

// checkOwner requires that the mirror pod is owned by this node, and not by an earlier one
// with the same name.
func (p *plugin) checkOwner(r *request) error {
	owners := r.Object.Get("metadata", "ownerReferences")
	if owners.Len() > 1 {
		return r.forbidden("node %q can only create pods with a single owner reference set to itself", r.node)
	}
	owner := owners.Get(codec.Index(0))
	if !owner.Get("apiVersion").EqualString("v1") || !owner.Get("kind").EqualString("Node") || !owner.Get("name").EqualString(r.node) {
		return r.forbidden("node %q can only create pods with an owner reference set to itself", r.node)
	}
	if !owner.Get("controller").Bool() {
		return r.forbidden("node %q can only create pods with a controller owner reference set to itself", r.node)
	}
	if owner.Get("blockOwnerDeletion").Bool() {
		return r.forbidden("node %q must not set blockOwnerDeletion on an owner reference", r.node)
	}
	node, err := p.getNode(r.node)
	if err != nil {
		return err
	}
	if uid := owner.Get("uid"); uid.String() != string(node.UID) {
		return r.forbidden("node %s UID mismatch: expected %s got %s", r.node, uid.String(), node.UID)
	}
	return nil
}

func (p *plugin) checkPodStatus(r *request) error {
	if operation := r.Operation(); operation != codec.Update {
		return r.forbidden("unexpected operation %q", operation)
	}
	if !r.OldObject.Get("spec", "nodeName").EqualString(r.node) {
		return r.forbidden("node %q can only update pod status for pods with spec.nodeName set to itself", r.node)
	}
	if same, err := isSame[map[string]string](r, "metadata", "labels"); err != nil {
		return err
	} else if !same {
		return r.forbidden("node %q cannot update labels through pod status", r.node)
	}
	if same, err := isSame[[]corev1.PodResourceClaimStatus](r, "status", "resourceClaimStatuses"); err != nil {
		return err
	} else if !same {
		return r.forbidden("node %q cannot update resource claim statues", r.node)
	}
	// Older releases have fewer checks (k8s.io/kubernetes plugin/pkg/admission/noderestriction/admission.go
	// admitPodStatus).
	if !p.version.AtLeast(1, 34) {
		return nil
	}
	if same, err := isSame[*corev1.PodExtendedResourceClaimStatus](r, "status", "extendedResourceClaimStatus"); err != nil {
		return err
	} else if !same {
		return r.forbidden("node %q cannot update extended resource claim status", r.node)
	}
	if !p.version.AtLeast(1, 37) {
		return nil
	}
	if same, err := isSame[[]corev1.NodeAllocatableResourceClaimStatus](r, "status", "nodeAllocatableResourceClaimStatuses"); err != nil {
		return err
	} else if !same {
		return r.forbidden("node %q cannot update node allocatable resource claim statuses", r.node)
	}
	return nil
}

func (p *plugin) checkEviction(r *request) error {
	if operation := r.Operation(); operation != codec.Create {
		return r.forbidden("unexpected operation %s", operation)
	}
	name := r.Name()
	if name == "" {
		if name = r.Object.Get("metadata", "name").String(); name == "" {
			return r.forbidden("could not determine pod from request data")
		}
	}
	pod, err := p.getPod(r.Namespace(), name)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != r.node {
		return r.forbidden("node %s can only evict pods with spec.nodeName set to itself", r.node)
	}
	return nil
}
