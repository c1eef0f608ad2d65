// Package nodedeclaredfeaturevalidator is the admission plugin
// NodeDeclaredFeatureValidator.
//
// It denies an update of a Pod that needs a feature which the Pod's node does not declare,
// such as the resize of an init container. Without it, kubelets of an older version, or with
// the feature disabled, would get pods that they cannot run.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/nodedeclaredfeatures.
package nodedeclaredfeaturevalidator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/podupdate"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "NodeDeclaredFeatureValidator",
		Summary: "denies updates of pods that need a feature which their node does not declare",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Update}, Groups: []string{""}, Versions: []string{"v1"},
			Resources: []string{"pods", "pods/resize"},
		}},
		Validates:    true,
		OnByDefault:  true,
		FirstRelease: "1.35",
		OnSince:      "1.36", // gate NodeDeclaredFeatures (k8s.io/kubernetes pkg/features/kube_features.go)
		Needs:        []cluster.Need{cluster.Nodes.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{nodes: cluster.Nodes.In(setup.Cluster), release: version.MajorMinor(1, uint(setup.Version.Minor())),
				features: featuresOf(setup.Version)}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	nodes *cluster.Objects[*corev1.Node]
	// release is the kube-apiserver release of the plugin. Later releases may assume that
	// all nodes have a feature.
	release  *version.Version
	features *nodedeclaredfeatures.Framework
}

// since are the releases whose plugin first knew a feature (k8s.io/component-helpers
// nodedeclaredfeatures/features/registry.go). v1.35 knew all others that an update of a Pod can need.
var since = map[string]int{
	"ExtendWebSocketsToKubelet":                    36,
	"InPlacePodVerticalScalingInitContainers":      36,
	"UserNamespacesHostNetworkSupport":             36,
	"InPlacePodVerticalScalingMemoryBackedVolumes": 37,
}

// featuresOf returns the features that the plugin of a release knows.
func featuresOf(release admission.Version) *nodedeclaredfeatures.Framework {
	known := slices.DeleteFunc(slices.Clone(features.AllFeatures), func(f types.Feature) bool {
		return !release.AtLeast(1, since[f.Name()])
	})
	return nodedeclaredfeatures.New(known)
}

// validate decodes only pods on a node whose spec changes, which are few.
func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	if changes, result := podupdate.ChangesSpec(review); !changes {
		return result
	}
	return admission.ValidateTyped(p.validateUpdate)(ctx, review)
}

func (p *plugin) validateUpdate(_ context.Context, review *codec.Review, pod, old *corev1.Pod) admission.Result {
	deny := func(err error) admission.Result { return admission.Denied(admission.Forbidden(review, err)) }
	if len(pod.Spec.InitContainers) < len(old.Spec.InitContainers) { // the library would panic
		return deny(errors.New("failed to infer pod capability requirements: init containers cannot be removed"))
	}
	needed, err := p.features.InferForPodUpdate(&nodedeclaredfeatures.PodInfo{Spec: &old.Spec, Status: &old.Status},
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
	if p.release.LessThan(version.MajorMinor(1, 36)) { // which looks for features in any order
		node = node.DeepCopy()
		slices.Sort(node.Status.DeclaredFeatures)
	}
	match, err := p.features.MatchNode(needed, node)
	if err != nil {
		return admission.Errored(err)
	}
	if !match.IsMatch {
		return deny(fmt.Errorf("pod update requires features %s which are not available on node %q",
			strings.Join(match.UnsatisfiedRequirements, ", "), node.Name))
	}
	return admission.Allowed()
}
