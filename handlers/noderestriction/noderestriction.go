// Package noderestriction is the admission plugin NodeRestriction.
//
// It restricts a kubelet to objects of its own node: its Node, Lease and CSINode, the pods
// that run there, and their tokens. Without it, an attacker with the credentials of one
// machine could take over the cluster: relabel nodes to attract workloads, request tokens of
// pods on other nodes, or evict these pods.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/noderestriction, with
// the feature gates at their defaults.
package noderestriction

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "NodeRestriction",
		Summary: "limits each kubelet to its own node and the pods on it",
		Rules:   rules(),
		Mutates: true, // it only denies, but in-tree it does so before other plugins change the object
		Needs: []cluster.Need{
			cluster.Nodes.Watched(), knownPods.Watched(), cluster.ServiceAccounts.Watched(),
			cluster.PersistentVolumeClaims.Watched(), cluster.PersistentVolumes.Watched(), cluster.CSIDrivers.Watched(),
			cluster.SubjectAccessReviews.Called("create"),
		},
		New: func(setup admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: newPlugin(setup.Cluster, setup.Version).admit}, nil
		},
	}
}

// rules select the requests that a kubelet may send only for its own node. They have all
// subresources of pods that can be written, because in-tree denies those that a kubelet does
// not need.
func rules() []admission.Rule {
	const create, update, remove = codec.Create, codec.Update, codec.Delete
	rule := func(group, versions string, operations []codec.Operation, resources ...string) admission.Rule {
		return admission.Rule{
			Operations: operations, Groups: []string{group}, Versions: strings.Split(versions, ","), Resources: resources,
		}
	}
	all := []codec.Operation{create, update, remove}
	return []admission.Rule{
		rule("", "v1", all,
			"pods", "pods/binding", "pods/ephemeralcontainers", "pods/eviction", "pods/resize", "pods/status",
			"nodes", "nodes/status", "persistentvolumeclaims", "persistentvolumeclaims/status"),
		rule("", "v1", []codec.Operation{create}, "serviceaccounts/token"),
		// v1alpha1 in Kubernetes v1.34, v1beta1 in v1.35 and v1.36, v1 since v1.37
		rule("certificates.k8s.io", "v1,v1beta1,v1alpha1", all, "podcertificaterequests", "podcertificaterequests/status"),
		rule("certificates.k8s.io", "v1", []codec.Operation{create}, "certificatesigningrequests"),
		rule("coordination.k8s.io", "v1", all, "leases"),
		rule("storage.k8s.io", "v1", all, "csinodes", "csinodes/status"), // the status since v1.37
		// v1 since v1.34
		rule("resource.k8s.io", "v1,v1beta2,v1beta1", []codec.Operation{create, remove}, "resourceslices"),
	}
}

type plugin struct {
	version  admission.Version
	nodes    *cluster.Objects[*corev1.Node]
	pods     *cluster.Objects[*knownPod]
	accounts *cluster.Objects[*corev1.ServiceAccount]
	claims   *cluster.Objects[*corev1.PersistentVolumeClaim]
	volumes  *cluster.Objects[*corev1.PersistentVolume]
	drivers  *cluster.Objects[*storagev1.CSIDriver]
	access   *cluster.Access
}

func newPlugin(view *cluster.View, version admission.Version) *plugin {
	return &plugin{
		version:  version,
		nodes:    cluster.Nodes.In(view),
		pods:     knownPods.In(view),
		accounts: cluster.ServiceAccounts.In(view),
		claims:   cluster.PersistentVolumeClaims.In(view),
		volumes:  cluster.PersistentVolumes.In(view),
		drivers:  cluster.CSIDrivers.In(view),
		access:   cluster.AccessIn(view),
	}
}

// A request is a request of a node.
type request struct {
	*codec.Review
	node string
}

// admit allows requests of users that are not nodes. It checks this first, because nearly
// all requests are.
func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	node, isNode := nodeOf(review)
	if !isNode {
		return admission.Allowed()
	}
	r := &request{Review: review, node: node}
	if err := p.check(ctx, r); err != nil {
		if failure, failed := errors.AsType[*failureError](err); failed {
			return admission.Errored(failure.error)
		}
		return admission.Denied(err)
	}
	return admission.Allowed()
}

// nodeOf returns the name of the node that sent the review. isNode is false if the user is
// not a node (k8s.io/kubernetes pkg/auth/nodeidentifier).
func nodeOf(review *codec.Review) (name string, isNode bool) {
	user := review.UserInfo()
	name, isNode = strings.CutPrefix(user.Get("username").String(), "system:node:")
	if !isNode {
		return "", false
	}
	for _, group := range user.Get("groups").Elements() {
		if group.EqualString("system:nodes") {
			return name, true
		}
	}
	return "", false
}

// check returns the error with which in-tree denies, or a failureError.
func (p *plugin) check(ctx context.Context, r *request) error {
	if r.node == "" {
		return r.forbidden("could not determine node from user %q", r.Username())
	}
	operation := r.Operation()
	if operation != codec.Delete && !r.Object.Root().IsSet() || operation == codec.Update && !r.OldObject.Root().IsSet() {
		return r.forbidden("unexpected type <nil>")
	}
	switch resource := r.Resource(); resource.Resource {
	case "pods":
		return p.checkPods(r)
	case "nodes":
		return checkNode(r)
	case "persistentvolumeclaims":
		if r.SubResource() != "status" {
			return r.forbidden("may only update PVC status")
		}
		return checkClaimStatus(r)
	case "serviceaccounts":
		return p.checkToken(ctx, r)
	case "podcertificaterequests":
		return p.checkPodCertificate(ctx, r)
	case "leases":
		return checkLease(r)
	case "csinodes":
		return checkCSINode(r)
	case "resourceslices":
		return checkResourceSlice(r)
	case "certificatesigningrequests":
		return checkCertificate(r)
	}
	return nil
}

// forbidden returns the error of nearly all denials.
func (r *request) forbidden(format string, args ...any) error {
	return admission.Forbidden(r.Review, fmt.Errorf(format, args...))
}

// nameWritten returns the name of the object: a creation has it only there.
func (r *request) nameWritten() string {
	if r.Operation() == codec.Create {
		return r.Object.Get("metadata", "name").String()
	}
	return r.Name()
}

// A failureError is not a denial: the plugin could not decide.
type failureError struct{ error }

// lookup returns a cached object, or the same error as in-tree, which names the resource in
// the singular (k8s.io/client-go listers) and does not ask the API server.
func lookup[T cluster.Object](objects *cluster.Objects[T], resource schema.GroupResource, namespace, name string) (T, error) {
	object, ok := objects.Cached(namespace, name)
	if !ok {
		if err := objects.LeftOut(namespace, name); err != nil {
			return object, err
		}
		return object, apierrors.NewNotFound(resource, name)
	}
	return object, nil
}

func (p *plugin) getNode(name string) (*corev1.Node, error) {
	return lookup(p.nodes, schema.GroupResource{Resource: "node"}, "", name)
}

func (p *plugin) getPod(namespace, name string) (*knownPod, error) {
	return lookup(p.pods, schema.GroupResource{Resource: "pod"}, namespace, name)
}
