// Package podresizevalidator is the admission plugin PodResizeValidator.
//
// It denies the resize of a Pod to more than its node has, or on a node that does not run
// Linux. Without it, such a resize would wait forever, because the kubelet cannot do it.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/podresize.
package podresizevalidator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/podupdate"
)

// Causes of denials, in the details of the status.
const (
	reasonNodeCapacity        metav1.CauseType = "NodeCapacity"
	reasonUnsupportedPlatform metav1.CauseType = "UnsupportedPlatform"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:         "PodResizeValidator",
		Summary:      "denies the resize of pods to more than their node has",
		Rules:        []admission.Rule{admission.NewRule("", "v1", "pods/resize", codec.Update)},
		Validates:    true,
		OnByDefault:  true,
		FirstRelease: "1.36",
		Needs:        []cluster.Need{cluster.Nodes.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{nodes: cluster.Nodes.In(setup.Cluster)}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	nodes *cluster.Objects[*corev1.Node]
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	if changes, result := podupdate.ChangesSpec(review); !changes {
		return result
	}
	name := review.Object.Get("spec", "nodeName").String()
	node, ok := p.nodes.Cached("", name)
	if !ok {
		return admission.Denied(admission.Forbidden(review, fmt.Errorf("node %q not found", name)))
	}
	if system, ok := node.Labels[corev1.LabelOSStable]; ok && system != "linux" {
		return deny(review, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system),
			reasonUnsupportedPlatform)
	}
	return admission.ValidateTyped(func(_ context.Context, review *codec.Review, pod, _ *corev1.Pod) admission.Result {
		if lacks := lacking(pod, node.Status.Allocatable); len(lacks) > 0 {
			return deny(review, errors.New("node didn't have enough allocatable resources: "+strings.Join(lacks, "; ")),
				reasonNodeCapacity)
		}
		return admission.Allowed()
	})(ctx, review)
}

// deny returns a denial with the reason as a cause.
func deny(review *codec.Review, err error, reason metav1.CauseType) admission.Result {
	result := admission.Denied(admission.Forbidden(review, err))
	result.Denial.Details.Causes = append(result.Denial.Details.Causes, codec.Cause{Type: string(reason)})
	return result
}

// lacking lists the resources of which the pod requests more than the node has. It changes
// the pod.
func lacking(pod *corev1.Pod, allocatable corev1.ResourceList) []string {
	// For each init container, PodRequests adds all resources of those before it. Only these
	// two resources matter.
	for _, containers := range [...][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			requests := containers[i].Resources.Requests
			for name := range requests {
				if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
					delete(requests, name)
				}
			}
		}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var lacks []string
	if want, has := requests.Cpu(), allocatable.Cpu(); want.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("cpu, requested: %d, allocatable: %d", want.MilliValue(), has.MilliValue()))
	}
	if want, has := requests.Memory(), allocatable.Memory(); want.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("memory, requested: %d, allocatable: %d", want.Value(), has.Value()))
	}
	return lacks
}
