// Package nodedeclaredfeaturevalidator is the admission plugin
// NodeDeclaredFeatureValidator.
//
// It denies an update of a Pod for which the Pod's node would need a feature that the
// node does not declare, such as the resize of an init container. Without it, kubelets
// of an older version, or with the feature off, are given what they cannot do.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/nodedeclaredfeatures.
package nodedeclaredfeaturevalidator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "NodeDeclaredFeatureValidator",
		Summary: "denies updates of pods that need a feature which their node does not declare",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Update}, Groups: []string{""}, Versions: []string{"v1"}, Resources: []string{"pods", "pods/resize"},
		}},
		Validates:   true,
		OnByDefault: true,
		Needs:       []cluster.Need{cluster.Nodes.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{nodes: cluster.Nodes.In(setup.Cluster), release: version.MustParseSemantic("1.36.3")}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	nodes *cluster.Objects[*corev1.Node]
	// release is the one of kube-apiserver that the plugin is from. A later one may
	// take for granted that nodes have a feature.
	release *version.Version
}

// validate decodes only pods on a node whose spec changes, which few updates do.
func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	pod, old := &review.Object, &review.OldObject
	if pod.Get("spec", "nodeName").String() == "" {
		return admission.Allowed()
	}
	if !old.Root().IsSet() {
		return admission.Denied(apierrors.NewBadRequest("expected an old pod but got a <nil>"))
	}
	generation, _ := pod.Get("metadata", "generation").Int64()
	if was, _ := old.Get("metadata", "generation").Int64(); generation == was {
		return admission.Allowed()
	}
	return admission.ValidateTyped(p.validateUpdate)(ctx, review)
}

func (p *plugin) validateUpdate(_ context.Context, review *codec.Review, pod, old *corev1.Pod) admission.Result {
	deny := func(err error) admission.Result { return admission.Denied(admission.Forbidden(review, err)) }
	if len(pod.Spec.InitContainers) < len(old.Spec.InitContainers) { // which the library does not survive
		return deny(errors.New("failed to infer pod capability requirements: init containers cannot be removed"))
	}
	features := nodedeclaredfeatures.DefaultFramework
	needed, err := features.InferForPodUpdate(&nodedeclaredfeatures.PodInfo{Spec: &old.Spec, Status: &old.Status},
		&nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, p.release)
	if err != nil {
		return admission.Errored(err)
	}
	if needed.IsEmpty() {
		return admission.Allowed()
	}
	node, ok := p.nodes.Cached("", pod.Spec.NodeName)
	if !ok {
		return deny(fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	match, err := features.MatchNode(needed, node)
	if err != nil {
		return admission.Errored(err)
	}
	if !match.IsMatch {
		return deny(fmt.Errorf("pod update requires features %s which are not available on node %q",
			strings.Join(match.UnsatisfiedRequirements, ", "), node.Name))
	}
	return admission.Allowed()
}
