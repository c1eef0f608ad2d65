package noderestriction

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
)

// checkNode allows a kubelet to write its own Node, except the fields that decide where
// pods are scheduled.
func checkNode(r *request) error {
	if name := r.Name(); name != r.node {
		return r.forbidden("node %q is not allowed to modify node %q", r.node, name)
	}
	switch r.Operation() {
	case codec.Create:
		if r.Object.Get("spec", "configSource").IsSet() {
			return r.forbidden("node %q is not allowed to create pods with a non-nil configSource", r.node)
		}
		if labels := forbiddenLabels(r); len(labels) > 0 {
			return r.forbidden("node %q is not allowed to set the following labels: %s", r.node, strings.Join(labels, ", "))
		}
	case codec.Update:
		return checkNodeUpdate(r)
	}
	return nil
}

func checkNodeUpdate(r *request) error {
	// A kubelet that does not know the field may drop it.
	if r.Object.Get("spec", "configSource").IsSet() {
		if same, err := isSame[*corev1.NodeConfigSource](r, "spec", "configSource"); err != nil {
			return err
		} else if !same {
			return r.forbidden("node %q is not allowed to update configSource to a new non-nil configSource", r.node)
		}
	}
	if same, err := isSame[[]corev1.Taint](r, "spec", "taints"); err != nil {
		return err
	} else if !same {
		return r.forbidden("node %q is not allowed to modify taints", r.node)
	}
	if same, err := isSame[[]metav1.OwnerReference](r, "metadata", "ownerReferences"); err != nil {
		return err
	} else if !same {
		return r.forbidden("node %q is not allowed to modify ownerReferences", r.node)
	}
	if labels := forbiddenLabels(r); len(labels) > 0 {
		return r.forbidden("is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}
	return nil
}

// isSame reports whether a field is equal in the object and the old object. Equal values
// nearly always have equal JSON, so this hardly ever decodes.
func isSame[T any](r *request, path ...string) (bool, error) {
	now, was := r.Object.Get(path...), r.OldObject.Get(path...)
	if now.JSON() == was.JSON() {
		return true, nil
	}
	var a, b T
	for _, side := range []struct {
		value codec.Value
		into  *T
	}{{now, &a}, {was, &b}} {
		if !side.value.IsSet() || !side.value.FitsDecoded() {
			continue
		}
		if err := json.UnmarshalCaseSensitivePreserveInts([]byte(side.value.JSON()), side.into); err != nil {
			return false, &failureError{fmt.Errorf("cannot read %s: %w", strings.Join(path, "."), err)}
		}
	}
	return apiequality.Semantic.DeepEqual(a, b), nil
}

// forbiddenLabels returns the labels of the node that were added, changed or removed, and
// that a kubelet may not change, sorted.
func forbiddenLabels(r *request) []string {
	now, was := r.Object.Get("metadata", "labels"), r.OldObject.Get("metadata", "labels")
	if now.JSON() == was.JSON() {
		return nil
	}
	// A label with two values, which no API server sends, counts as changed.
	values := func(labels codec.Value) map[string]string {
		values := make(map[string]string)
		for name, value := range labels.Members() {
			values[name] = value.String()
		}
		return values
	}
	var forbidden []string
	add := func(labels codec.Value, others map[string]string) {
		for name, value := range labels.Members() {
			if other, ok := others[name]; (!ok || value.String() != other) && isForbidden(name) {
				forbidden = append(forbidden, name)
			}
		}
	}
	add(now, values(was))
	add(was, values(now))
	slices.Sort(forbidden)
	return slices.Compact(forbidden)
}

// kubeletLabels are labels that a kubelet may set on its Node (k8s.io/kubelet
// pkg/apis/well_known_labels.go).
var kubeletLabels = []string{
	corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
	corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
	corev1.LabelInstanceType, corev1.LabelInstanceTypeStable, corev1.LabelOSStable, corev1.LabelArchStable,
	"beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// isForbidden reports whether a kubelet may not change the label. It may not change
// Kubernetes' labels, except kubelet labels. Labels that isolate nodes, in
// node-restriction.kubernetes.io, are among the forbidden ones; in-tree checks them
// separately.
func isForbidden(label string) bool {
	namespace, _, ok := strings.Cut(label, "/")
	return ok && (isIn(namespace, "kubernetes.io") || isIn(namespace, "k8s.io")) &&
		!slices.Contains(kubeletLabels, label) &&
		!isIn(namespace, corev1.LabelNamespaceSuffixKubelet) && !isIn(namespace, corev1.LabelNamespaceSuffixNode)
}

// isIn reports whether the namespace of a label is the domain or a subdomain of it.
func isIn(namespace, domain string) bool {
	before, ok := strings.CutSuffix(namespace, domain)
	return ok && (before == "" || strings.HasSuffix(before, "."))
}
