// Package podtopologylabels is the admission plugin PodTopologyLabels.
//
// It copies the zone and region of a node to the pods that are bound to it, so that a pod
// can read from its own labels where it runs. Without it, pods need permission to read
// nodes.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/podtopologylabels with the default
// feature gates, which enable it.
package podtopologylabels

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "PodTopologyLabels",
		Summary: "labels pods with the zone and region of their node",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Create},
			Groups:     []string{""},
			Versions:   []string{"v1"},
			Resources:  []string{"pods", "pods/binding"},
		}},
		Mutates:     true,
		OnByDefault: true,
		OnSince:     "1.35", // gate PodTopologyLabelsAdmission (k8s.io/kubernetes pkg/features/kube_features.go)
		Needs:       []cluster.Need{cluster.Nodes.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{nodes: cluster.Nodes.In(setup.Cluster), copied: copiedSince134}
			if !setup.Version.AtLeast(1, 34) {
				p.copied = copiedBefore134
			}
			return admission.Handler{Admit: p.admit}, nil
		},
	}
}

type plugin struct {
	nodes  *cluster.Objects[*corev1.Node]
	copied [2]string // the labels that are copied
}

// The labels that are copied (k8s.io/kubernetes plugin/pkg/admission/podtopologylabels/admission.go
// topologyLabelKeys). Kubernetes v1.33 has other keys.
var (
	copiedSince134  = [2]string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion}
	copiedBefore134 = [2]string{"topology.k8s.io/zone", "topology.k8s.io/region"}
)

// admit adds labels to a new pod with a node, or to a binding: kube-apiserver copies the
// labels of a binding to the pod.
func (p *plugin) admit(_ context.Context, review *codec.Review) admission.Result {
	object := &review.Object
	var name codec.Value
	if review.SubResource() == "" {
		name = object.Get("spec", "nodeName")
	} else if object.Get("target", "kind").EqualString("Node") {
		name = object.Get("target", "name")
	}
	node, known := p.nodes.Cached("", name.String())
	if !known {
		return admission.Allowed() // as in-tree, an unknown node is not denied
	}
	for _, label := range p.copied {
		if value, ok := node.Labels[label]; ok {
			object.SetString(value, "metadata", "labels", label)
		}
	}
	return admission.Allowed()
}
