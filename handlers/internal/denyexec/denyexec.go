// Package denyexec contains the common code of the admission plugins DenyEscalatingExec
// and DenyExecOnPrivileged.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/exec v1.20.15, the last
// release that had them.
package denyexec

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns a plugin that denies exec and attach for pods with a privileged
// container. If hostNamespaces is true, it also denies them for pods that use the network,
// PID or IPC namespace of their node.
func Plugin(name, summary string, hostNamespaces bool) admission.Plugin {
	return admission.Plugin{
		Name:    name,
		Summary: summary,
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Connect},
			Groups:     []string{""},
			Versions:   []string{"v1"},
			Resources:  []string{"pods/exec", "pods/attach"},
		}},
		Validates:   true,
		Needs:       []cluster.Need{cluster.Pods.Called("get")},
		LastRelease: "1.20",
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{pods: cluster.Pods.In(setup.Cluster), hostNamespaces: hostNamespaces}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	pods           *cluster.Objects[*corev1.Pod]
	hostNamespaces bool
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	// The review has the options of the command, but not the Pod.
	pod, err := p.pods.GetLive(ctx, review.Namespace(), review.Name())
	if err != nil && !apierrors.IsNotFound(err) && !cluster.IsInvalidName(err) {
		return admission.Errored(fmt.Errorf("error looking up pod %s/%s: %w", review.Namespace(), review.Name(), err))
	}
	if err == nil {
		err = p.check(&pod.Spec)
	}
	if err != nil {
		return admission.Denied(admission.Forbidden(review, err))
	}
	return admission.Allowed()
}

// check returns why running commands in a Pod is denied, nil if it is allowed.
func (p *plugin) check(spec *corev1.PodSpec) error {
	switch {
	case p.hostNamespaces && spec.HostNetwork:
		return errors.New("cannot exec into or attach to a container using host network")
	case p.hostNamespaces && spec.HostPID:
		return errors.New("cannot exec into or attach to a container using host pid")
	case p.hostNamespaces && spec.HostIPC:
		return errors.New("cannot exec into or attach to a container using host ipc")
	case hasPrivileged(spec):
		return errors.New("cannot exec into or attach to a privileged container")
	}
	return nil
}

// hasPrivileged reports whether any container is privileged, not only the one that the
// command runs in.
func hasPrivileged(spec *corev1.PodSpec) bool {
	for i := range spec.InitContainers {
		if isPrivileged(spec.InitContainers[i].SecurityContext) {
			return true
		}
	}
	for i := range spec.Containers {
		if isPrivileged(spec.Containers[i].SecurityContext) {
			return true
		}
	}
	for i := range spec.EphemeralContainers {
		if isPrivileged(spec.EphemeralContainers[i].SecurityContext) {
			return true
		}
	}
	return false
}

func isPrivileged(c *corev1.SecurityContext) bool {
	return c != nil && c.Privileged != nil && *c.Privileged
}
